"""The account of a publish day: what came into a layer, what became of it, and which rows do not add up."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date

from leanops.names import SOURCE, Layer

SHOWN = 20
"""So many rows that do not add up are named in an account; the others are counted, and its query lists them all."""


@dataclass(frozen=True, order=True)
class Finding:
    """A row that does not add up: it has no fate, or more than one, or came from nowhere."""

    landing_seq: int | None
    message_id: str
    problem: str


@dataclass(frozen=True)
class Findings:
    """Rows of a day that do not add up: how many there are, and the first ones."""

    count: int = 0
    first: Sequence[Finding] = ()

    def and_also(self, others: "Findings") -> "Findings":
        return Findings(self.count + others.count, [*self.first, *others.first][:SHOWN])


@dataclass(frozen=True)
class Account:
    """A layer's account of one day of a topic."""

    topic: str
    layer: Layer
    day: date
    is_of_new_rows: bool
    """Whether only those rows were looked at that a build has just taken in; else all of the day."""
    upto: int
    """The number of the last message that the layer stands for."""
    came_in: int
    """Rows of the layer before."""
    fates: Mapping[str, int]
    """What became of them, counted."""
    findings: Findings = field(default_factory=Findings)
    """Rows without exactly one fate."""
    shared: Findings = field(default_factory=Findings)
    """Rows whose record has another row."""

    @property
    def numbers(self) -> dict[str, float | int | str | bool]:
        """What it says, by the names that these numbers have wherever they are shown or kept."""
        return {
            "looked_at": "rows taken in" if self.is_of_new_rows else "whole day",
            SOURCE[self.layer].value: self.came_in,
            **self.fates,
            "accounted_percent": round(self.accounted, 4),
            "does_not_add_up": self.findings.count,
            "closed": self.closes,
            "upto": self.upto,
        }

    @property
    def closes(self) -> bool:
        """Whether every row has exactly one fate, by count and one by one."""
        return self.came_in == sum(self.fates.values()) and not self.findings.count

    @property
    def is_clean(self) -> bool:
        """Whether it closes, and every record has one row."""
        return self.closes and not self.shared.count

    @property
    def accounted(self) -> float:
        """How many percent of the rows that came in have a fate."""
        return 100.0 * sum(self.fates.values()) / self.came_in if self.came_in else 100.0
