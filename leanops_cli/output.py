"""How results are printed: a table for people, one JSON document per row for programs."""

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], right: Sequence[str] = ()) -> None:
    """Rows under their headings; columns named in `right` are numbers."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*("" if cell is None else printable(str(cell)) for cell in row))
    # A pipe has no width of its own: nothing is folded there.
    Console(width=None if sys.stdout.isatty() else 10_000, markup=False, highlight=False, emoji=False).print(
        table, end=""
    )


def printable(text: str) -> str:
    """Data is shown, not obeyed: what would move a terminal's cursor is written out."""
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)


def print_json_lines(rows: Iterable[dict[str, Any]]) -> None:
    """One JSON object per line."""
    for row in rows:
        print(json.dumps(row, ensure_ascii=False, default=str))
