"""Progress for people: one small interface, with a look for terminals and one for everything else."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


class Advance(Protocol):
    """Say that `amount` more is done."""

    def __call__(self, amount: int, /) -> None: ...


_show_stage: ContextVar[Callable[[str, int, int], None] | None] = ContextVar("show_stage", default=None)


def at_stage(doing: str, done: int, of: int) -> None:
    """Say what is done now, and how much of all, on the bar that is shown, if there is one."""
    if show := _show_stage.get():
        show(doing, done, of)


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
    with (
        # A way to the terminal of its own: Dagster has what a step writes to stderr go into the step's log.
        os.fdopen(os.dup(sys.stderr.fileno()), "w", encoding="utf-8") as terminal,
        Progress(
            *columns, console=Console(file=terminal), transient=True, redirect_stdout=False, redirect_stderr=False
        ) as bar,
    ):
        task = bar.add_task(what, total=total)
        before = _show_stage.set(lambda doing, done, of: bar.update(task, description=doing, completed=done, total=of))
        try:
            yield lambda amount: bar.advance(task, amount)
        finally:
            _show_stage.reset(before)
