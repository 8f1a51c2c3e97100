"""What a night's maintenance costs, and what it is worth: tables of many small commits, before and after it."""

import time
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

from pyiceberg.table import Table

from benchmarks.engine import Platform, both_layers, say, seconds_of
from benchmarks.engine_data import SHRINK, History, append_raw, land_history
from benchmarks.report import Section
from leanops import maintenance
from leanops.maintenance import maintain_nightly, maintain_weekly, read_by_next
from leanops.names import SOURCE, Layer, spark_table, table

TOPICS, TICKS, TICK_MESSAGES = max(5 // SHRINK, 1), 96, 40
LAYERS = (Layer.RAW, *SOURCE)


def measure(folder: Path) -> Section:
    """A day of ticks for each topic, then a night, then a week's maintenance, then a night with nothing to do."""
    # All of it has just happened; a night would find it hours old.
    maintenance.YOUNG = timedelta(0)
    histories = [History(f"topic_{number}", 100, days=2) for number in range(TOPICS)]
    with Platform.in_folder(folder) as platform:
        spark = platform.session()
        for number, history in enumerate(histories):
            land_history(platform.catalog, history)
            for tick in range(TICKS):
                append_raw(platform.catalog, history.topic, history.tick(tick, TICK_MESSAGES))
                both_layers(platform, spark, history)
            say(f"{TICKS} ticks of topic {number + 1} of {TOPICS}")

        def tables() -> Iterator[tuple[Table, int | None]]:
            for history in histories:
                for layer in LAYERS:
                    held = platform.catalog.load_table(table(layer, history.topic))
                    yield held, read_by_next(platform.catalog, history.topic, layer)

        def night() -> Counter[str]:
            return sum((maintain_nightly(lambda: spark, held, read) for held, read in tables()), Counter())

        def week() -> Counter[str]:
            return sum((maintain_weekly(lambda: spark, held) for held, _ in tables()), Counter())

        def read_all() -> None:
            for history in histories:
                for layer in LAYERS:
                    spark.read.table(spark_table(layer, history.topic)).agg({"landing_seq": "max"}).collect()

        rows: list[tuple[object, ...]] = []
        before = seconds_of(read_all)
        count = len(histories) * len(LAYERS)
        for name, work in (("a night after a day", night), ("a week", week), ("a night, nothing to do", night)):
            files = _files(folder)
            begun = time.perf_counter()
            done = work()
            took = time.perf_counter() - begun
            rows.append((name, f"{took:.0f}", f"{1000 * took / count:.0f}", _listed(done), files, _files(folder)))
        after = seconds_of(read_all)
    return Section(
        "Maintenance",
        ("what", "seconds", "ms a table", "done", "files before", "files after"),
        rows,
        f"{TOPICS} topics of {TICKS} ticks of {TICK_MESSAGES} messages, corrections of the day before among them: "
        f"{count} tables, one after the other, on a warm server, each with a day's snapshots; files are all of the "
        f"warehouse's. To read every table through Spark took {after / before:.2f} x as long afterwards as before. A "
        "fleet of 700 topics has 2,100 such tables, of which a night works on those that have had commits.",
    )


def _files(folder: Path) -> int:
    return sum(path.is_file() for path in (folder / "home" / "warehouse").rglob("*"))


def _listed(done: Counter[str]) -> str:
    return ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in done.items())
