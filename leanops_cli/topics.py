"""`leanops topics`: what is known of every topic."""

from typing import Annotated, Any

import typer

from leanops.contracts.manifest import Manifest, Topic
from leanops.home import Home
from leanops.settings import Settings
from leanops_cli.output import print_json_lines, print_table


def topics(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per topic.")] = False,
) -> None:
    """List the topics that are known: their contract, their gate, and what RAW holds of them.

    A topic is known by its folder among the contracts or by what has landed for it. Exit code 1 if an active contract
    is broken, or a topic cannot be in the graph: its data buffers in RAW until that is mended. Names that can be no
    topic's are warned of.
    """
    from leanops_resources.catalog import LocalCatalog
    from leanops_resources.known_topics import compile_manifest, strays
    from leanops_resources.schema_store import schema_store
    from leanops_resources.state.stores import state_store

    settings = Settings.load()
    home = Home(settings.home).prepare()
    gates = state_store(settings).gates()
    store = schema_store(settings.schemas)
    manifest = _as_in_the_graph(compile_manifest(home, store, LocalCatalog(home)), settings)
    catalog = LocalCatalog(home).load()
    rows = [
        {"topic": topic.name, **_contract(topic), "gate": _gate(topic, gates), **_raw(catalog, topic.name)}
        for topic in manifest.topics
    ]
    if as_json:
        print_json_lines(rows)
    elif not rows:
        print(f"No topics yet: there is nothing under {settings.schemas}, and nothing has landed in {settings.home}.")
    else:
        print_table(list(rows[0]), [list(row.values()) for row in rows], right=("raw_rows",))

    for warning in strays(settings, store, LocalCatalog(home)):
        typer.echo(f"warning: {warning}", err=True)
    broken = [topic.contract_problem for topic in manifest.topics if topic.contract_problem]
    for problem in broken:
        typer.echo(f"error: {problem}", err=True)
    if broken:
        raise typer.Exit(1)


def _as_in_the_graph(manifest: Manifest, settings: Settings) -> Manifest:
    """The topics, those that Dagster does not take with the reason."""
    from leanops_assets.factory import define_topics

    problems = define_topics(manifest, settings).problems
    topics = (
        Topic(name=topic.name, contract_problem=problems[topic.name]) if topic.name in problems else topic
        for topic in manifest.topics
    )
    return Manifest(topics=tuple(topics))


def _contract(topic: Topic) -> dict[str, Any]:
    if topic.contract is None:
        return {"contract": "broken" if topic.contract_problem else None, "owners": None}
    return {"contract": f"v{topic.contract.version}", "owners": ", ".join(topic.contract.owners)}


def _gate(topic: Topic, gates: dict[str, Any]) -> str:
    """A gate that nobody has set is open exactly when there is a contract that can be used."""
    if topic.contract_problem:
        return "ERROR"
    if gate := gates.get(topic.name):
        return f"{gate.status}: {gate.reason}" if gate.reason else str(gate.status)
    return "READY" if topic.contract else "BUFFERING"


def _raw(catalog: Any, topic: str) -> dict[str, Any]:
    from leanops.inventory import row_count
    from leanops.names import Layer, table
    from leanops.raw.table import landings
    from leanops.tables import find_table

    try:
        held = find_table(catalog, table(Layer.RAW, topic))
        if held is None:
            return {"raw_rows": 0, "last_landed": None}
        rows, last = row_count(held), max(landings(held), default=None)
    except (OSError, ValueError):
        return {"raw_rows": "damaged", "last_landed": None}
    return {"raw_rows": rows, "last_landed": last and f"{last:%Y-%m-%d %H:%M:%S}"}
