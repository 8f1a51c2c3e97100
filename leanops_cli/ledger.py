"""`leanops ledger`: what became of every row, by topic and day."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from leanops.settings import Settings
from leanops_cli.known_topics import require_known
from leanops_cli.output import print_json_lines, print_table
from leanops_cli.warm import warm_session

if TYPE_CHECKING:
    from leanops_assets.topic_ledgers import DayLine

_HEADINGS = {
    "received": "received",
    "dead_letters": "dead letters",
    "in_flight": "in flight",
    "pre_raw_percent": "pre-RAW %",
    "raw": "RAW",
    "standardized": "= standardized",
    "parse_errors": "+ parse errors",
    "duplicates": "+ duplicates",
    "superseded": "+ superseded",
    "post_raw_percent": "post-RAW %",
    "curated": "curated",
    "open_errors": "+ open errors",
    "curated_percent": "curated %",
    "pending": "pending",
    "pending_since": "pending since",
}
_TEXTS = ("pending since",)


def ledger(
    topic: Annotated[list[str] | None, typer.Option(help="Only this topic; may be given several times.")] = None,
    day: Annotated[datetime | None, typer.Option(formats=["%Y-%m-%d"], help="Only this publish day.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per topic and day.")] = False,
    strict: Annotated[bool, typer.Option(help="Pending rows are an error: exit code 1.")] = False,
) -> None:
    """Draw up the ledger: what became of every message, from its queue to Curated.

    Received = RAW + dead letters + in flight; RAW = standardized + parse errors + duplicates + superseded;
    standardized = curated + open errors. Every row is looked at in the tables themselves. Rows with no fate, or with
    two, are named: exit code 1. Rows that a layer has not built yet are pending: they are in RAW or standardized beside
    the sum, and the day is not closed before they are built. That is exit code 1 with --strict.
    """
    from leanops_assets.manifests import planned_manifest
    from leanops_assets.topic_ledgers import topic_ledgers
    from leanops_resources.state.stores import state_store

    settings = Settings.load()
    require_known(topic or (), settings)
    store, manifest = state_store(settings), planned_manifest(settings)
    only = day.date() if day else None
    with warm_session(settings) as (catalog, spark):
        ledgers = list(topic_ledgers(lambda: spark, catalog, store, manifest, "leanops ledger", topic, only))
    lines = [line for each in ledgers for line in each.days()]
    if as_json:
        print_json_lines(_document(line) for line in lines)
    elif lines:
        rows = ([line.topic, line.day, *_cells(line), line.state] for line in lines)
        numbers = tuple(heading for heading in _HEADINGS.values() if heading not in _TEXTS)
        print_table(("topic", "day", *_HEADINGS.values(), "closed"), rows, right=numbers)
    else:
        print("Nothing has landed yet.")
    for each in ledgers:
        if each.pending.rows and strict:
            typer.echo(f"error: {each.topic}: {each.pending_text}", err=True)
        elif each.pending.rows and not as_json:
            print(f"{each.topic}: {each.pending_text}")
        if each.problem:
            typer.echo(f"error: {each.topic}: {each.problem}", err=True)
    for line in lines:
        for message_id, problem in line.findings:
            typer.echo(f"error: {line.topic} {line.day}: {message_id}: {problem}", err=True)
    if not all(each.closes if strict else each.adds_up for each in ledgers):
        raise typer.Exit(1)


def _cells(line: "DayLine") -> list[object]:
    return [_cell(value) for value in line.numbers.values()]


def _cell(value: object) -> object:
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}"
    return f"{value:.2f}" if isinstance(value, float) else value


def _document(line: "DayLine") -> dict[str, object]:
    found = [{"message_id": message_id, "problem": problem} for message_id, problem in line.findings]
    since = line.numbers["pending_since"]
    numbers = {**line.numbers, "pending_since": since.isoformat() if since else None}
    return {"topic": line.topic, "day": line.day, "closed": line.closes, **numbers, "findings": found}
