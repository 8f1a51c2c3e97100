"""Progress for people: one small interface, with a look for terminals and one for everything else."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


class Advance(Protocol):
    """Say that `amount` more is done."""

    def __call__(self, amount: int, /) -> None: ...


def unseen(_amount: int, /) -> None:
    """Progress that nobody looks at."""


@contextmanager
def progress(what: str, total: int | None = None) -> Iterator[Advance]:
    """A bar on a terminal (a pulse where no total is known), and nothing at all in a log."""
    if not sys.stderr.isatty():
        yield unseen
        return
    columns = [TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()]
    if total is not None:
        columns.insert(2, MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False) as bar:
        task = bar.add_task(what, total=total)
        yield lambda amount: bar.advance(task, amount)
