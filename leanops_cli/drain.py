"""`leanops drain`: brings what waits in the sources to RAW, once."""

from typing import Annotated, Any

import typer

from leanops.names import topic_name
from leanops.settings import Settings
from leanops_cli.output import print_json_lines, print_table


def drain(
    topic: Annotated[list[str] | None, typer.Option(help="Only this topic; may be given several times.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per topic.")] = False,
) -> None:
    """Bring what waits in the landing folder, or in queues, to RAW: what the automation does every minute.

    Messages that cannot land are dead letters (`leanops dlq list`). A topic most of whose messages fail is held back
    for a while. Exit code 1 if any topic could not be drained to its end; nothing is lost then, and it comes again.
    """
    from leanops_assets.raw.drain_once import drain_once

    settings = Settings.load()
    for name in topic or ():
        topic_name(name)
    rows = drain_once(settings, topic or ())
    if as_json:
        print_json_lines(rows)
    else:
        print_drained(rows)
    if any(row["failed"] for row in rows):
        raise typer.Exit(1)


def print_drained(rows: list[dict[str, Any]]) -> None:
    """Tell what a drain has done with each topic."""
    from leanops_assets.raw.drain_job import COLUMNS

    if not rows:
        print("Nothing waits.")
        return
    numbers = [name for name in COLUMNS if name not in ("topic", "source", "said")]
    print_table(COLUMNS, ([row[name] for name in COLUMNS] for row in rows), right=numbers)
