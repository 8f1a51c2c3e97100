"""`leanops drain`: brings what waits in the sources to RAW, once."""

import time
from collections.abc import Collection
from typing import Annotated, Any

import typer

from leanops.home import Home
from leanops.names import topic_name
from leanops.settings import Settings
from leanops_cli.output import print_json_lines, print_table

_LOOK_SECONDS = 0.1


def drain(
    topic: Annotated[list[str] | None, typer.Option(help="Only this topic; may be given several times.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per topic.")] = False,
) -> None:
    """Bring what waits in the landing folder, or in queues, to RAW: what the automation does every minute.

    Messages that cannot land are dead letters (`leanops dlq list`). A topic most of whose messages fail is held back
    for a while. Exit code 1 if any topic could not be drained to its end; nothing is lost then, and it comes again.
    A file that has just been written is waited for: it is taken when it has been still for some seconds.
    """
    from leanops_assets.raw.drain_once import drain_once

    settings = Settings.load()
    for name in topic or ():
        topic_name(name)
    _wait_until_still(settings, topic)
    rows = drain_once(settings, topic or ())
    if as_json:
        print_json_lines(rows)
    else:
        print_drained(rows)
    if any(row["failed"] for row in rows):
        raise typer.Exit(1)


def _wait_until_still(settings: Settings, topics: Collection[str] | None) -> None:
    """Wait for files that may still be written, for as long as one that is complete needs; and name those that are."""
    if settings.queue_prefix is not None:
        return

    from leanops_resources.sources.folder import LandingFolder

    landing = LandingFolder(Home(settings.home).prepare().landing, settings.landing_still_seconds)
    deadline = time.monotonic() + settings.landing_still_seconds
    while written := [each for each in landing.being_written() if not topics or each.parent.name in topics]:
        if time.monotonic() > deadline:
            break
        time.sleep(_LOOK_SECONDS)
    for file in written:
        typer.echo(
            f"warning: {file} is being written: it is taken when it has been still for "
            f"{settings.landing_still_seconds:g} s, or was renamed into place.",
            err=True,
        )


def print_drained(rows: list[dict[str, Any]]) -> None:
    """Tell what a drain has done with each topic."""
    from leanops_assets.raw.drain_job import COLUMNS

    if not rows:
        print("Nothing waits.")
        return
    numbers = [name for name in COLUMNS if name not in ("topic", "source", "said")]
    print_table(COLUMNS, ([row[name] for name in COLUMNS] for row in rows), right=numbers)
