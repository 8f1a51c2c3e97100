"""`leanops demo`: the sample messages of six topics through the main job."""

from leanops.errors import RunFailed
from leanops.home import Home
from leanops.names import Layer, table
from leanops.progress import progress, unseen
from leanops.settings import Settings
from leanops_cli.output import print_table
from leanops_cli.tick import print_tick


def demo() -> None:
    """Land the sample messages of six topics and build their tables, through Dagster, as a tick does.

    Everything stays under LEANOPS_HOME to be looked at. A second demo lands the same messages again: they are
    duplicates then, and no table after RAW changes.
    """
    from leanops_assets.instance import PROJECT
    from leanops_assets.raw.landing import land_and_report
    from leanops_assets.tick import tick_once
    from leanops_resources.spark.server import running, stop

    settings = Settings.load()
    home = Home(settings.home).prepare()
    was_up = running(home) is not None
    samples = sorted((PROJECT / "examples").glob("*.ndjson"))
    with progress("Landing", total=len(samples)) as advance:
        for sample in samples:
            landed = land_and_report(settings, sample.stem, sample, skip_bad=False, advance=unseen)
            print(f"landed   {landed.rows:3} messages of {landed.topic}")
            advance(1)
    print()
    try:
        with progress("Building") as advance:
            ticked = tick_once(settings, advance=advance)
    finally:
        if not was_up:
            stop(home)
    if not print_tick(ticked):
        raise RunFailed("The demo's tick failed.", "`make dev` shows the run under Runs.")
    print()
    _print_outcome(home)
    print(
        "\nreplaced: further copies of a message, and versions of a record that a later one corrects\n"
        "See it in the UI with `make dev`, or ask: .venv/bin/leanops sql 'SELECT * FROM iceberg_curated_db.orders'"
    )


def _print_outcome(home: Home) -> None:
    """What became of the messages of each topic, by the tables' own metadata."""
    from pyiceberg.expressions import EqualTo

    from leanops.inventory import table_totals
    from leanops.tables import find_table
    from leanops_resources.catalog import LocalCatalog

    catalog = LocalCatalog(home)
    tables = catalog.load()

    def rows(layer: Layer, topic: str) -> int | None:
        held = find_table(tables, table(layer, topic))
        return table_totals(held).rows if held else None

    outcome: list[tuple[object, ...]] = []
    for topic in catalog.raw_topics():
        raw, standardized, curated = (rows(layer, topic) for layer in (Layer.RAW, Layer.STANDARDIZED, Layer.CURATED))
        if standardized is None or curated is None:
            outcome.append((topic, raw, None, None, None, None, "buffers in RAW: no contract in use"))
            continue
        parse_errors = tables.load_table(table(Layer.PARSE_ERRORS, topic))
        refused = parse_errors.scan(row_filter=EqualTo(term="topic_name", value=topic)).count()
        replaced = (raw or 0) - standardized - refused
        outcome.append((topic, raw, replaced, refused, standardized, curated, f"{standardized - curated} broken"))
    columns = ("topic", "raw", "replaced", "parse_errors", "standardized", "curated", "contract")
    print_table(columns, outcome, right=columns[1:-1])
