"""How a measurement is told: a heading, a table, and what to know about it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime


@dataclass(frozen=True)
class Section:
    """One benchmark's result."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[object, ...]]
    note: str
    measured: date = field(default_factory=lambda: datetime.now(UTC).date())

    def __str__(self) -> str:
        lines = [f"## {self.title}", "", _row(self.columns), _row(["---"] * len(self.columns))]
        return "\n".join([*lines, *map(_row, self.rows), "", f"{self.note} Measured on {self.measured}.", ""])


def _row(cells: object) -> str:
    return f"| {' | '.join(str(cell) for cell in cells)} |"  # type: ignore[attr-defined]
