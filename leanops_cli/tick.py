"""`leanops tick`: does once, in the foreground, what the automation would request."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from leanops.progress import progress
from leanops.settings import Settings
from leanops_cli.known_topics import require_known
from leanops_cli.output import print_table

if TYPE_CHECKING:
    from leanops_assets.tick import Ticked

_NUMBERS = {
    "read": "rows_read",
    "written": "rows_written",
    "updated": "rows_updated",
    "duplicates": "duplicates",
    "superseded": "superseded",
    "parse errors": "parse_errors",
    "errors": "errors",
    "seconds": "seconds",
}


def tick(
    topic: Annotated[list[str] | None, typer.Option(help="Only this topic; may be given several times.")] = None,
) -> None:
    """Build what has landed, once, in the foreground: what the automation does every 15 minutes.

    Prints what became of the messages of each topic, and why topics were held back. Exit code 1 if any topic failed.
    """
    from leanops_assets.tick import tick_once

    settings = Settings.load()
    require_known(topic or (), settings)
    with progress("Looking for what has landed") as advance:
        ticked = tick_once(settings, topic, advance)
    if not print_tick(ticked):
        raise typer.Exit(1)


def print_tick(ticked: "Ticked") -> bool:
    """Tell what a tick has done; False if any of it failed."""
    rows = list(_rows(ticked))
    if rows:
        print_table(("topic", "layer", *_NUMBERS), rows, right=tuple(_NUMBERS))
    else:
        print("Nothing to build.")
    for topic, reason in ticked.skipped.items():
        print(f"skipped {topic}: {reason}")
    for topic, problem in ticked.failed.items():
        typer.echo(f"error: {topic} failed: {problem}", err=True)
    return not ticked.failed


def _rows(ticked: "Ticked") -> Iterator[list[object]]:
    for (topic, layer), metadata in sorted(ticked.built.items()):
        yield [topic, layer, *(metadata.get(key) for key in _NUMBERS.values())]
