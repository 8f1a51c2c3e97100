"""The account of a publish day: what came into a layer, what became of it, and which rows do not add up."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date

from leanops.ledger.pending import PendingRows
from leanops.names import SOURCE, Layer

SHOWN = 20
"""So many rows that do not add up are named in an account; the others are counted, and its query lists them all."""

REFUSED = {Layer.STANDARDIZED: "parse_errors", Layer.CURATED: "open_errors"}
"""What the rows are called that did not make it into a layer."""


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
    """Rows of the layer before, up to that number."""
    fates: Mapping[str, int]
    """What became of them, counted."""
    findings: Findings = field(default_factory=Findings)
    """Rows without exactly one fate."""
    shared: Findings = field(default_factory=Findings)
    """Rows whose record has another row."""
    pending: PendingRows = field(default_factory=PendingRows)
    """Rows of the layer before that the layer has not built yet."""
    missing: Mapping[str, int] = field(default_factory=dict)
    """How many rows lack each Critical Data Element, by its column."""

    @property
    def numbers(self) -> dict[str, float | int | str | bool | None]:
        """What it says, by the names that these numbers have wherever they are shown or kept."""
        return {
            "looked_at": "rows taken in" if self.is_of_new_rows else "whole day",
            SOURCE[self.layer].value: self.came_in + self.pending.rows,
            **self.fates,
            "pending": self.pending.rows,
            "pending_since": self.pending.since.isoformat() if self.pending.since else None,
            "accounted_percent": None if self.is_nothing_but_pending else round(self.accounted, 4),
            "does_not_add_up": self.findings.count,
            "closed": self.closes,
            "upto": self.upto,
        }

    @property
    def adds_up(self) -> bool:
        """Whether every row that was built has exactly one fate, by count and one by one."""
        return self.came_in == sum(self.fates.values()) and not self.findings.count

    @property
    def closes(self) -> bool:
        """Whether it adds up, and no row is pending."""
        return self.adds_up and not self.pending.rows

    @property
    def is_clean(self) -> bool:
        """Whether it adds up, and every record has one row."""
        return self.adds_up and not self.shared.count

    @property
    def is_nothing_but_pending(self) -> bool:
        """Whether the layer has built nothing of the day yet."""
        return bool(self.pending.rows) and not self.came_in

    @property
    def accounted(self) -> float:
        """How many percent of the rows that were built have a fate."""
        return 100.0 * sum(self.fates.values()) / self.came_in if self.came_in else 100.0


def fates(layer: Layer, kept: int = 0, refused: int = 0, duplicates: int = 0, superseded: int = 0) -> dict[str, int]:
    """The fates that a row of a layer can have, counted."""
    found = {layer.value: kept, REFUSED[layer]: refused}
    return found | {"duplicates": duplicates, "superseded": superseded} if layer is Layer.STANDARDIZED else found


def not_built(topic: str, layer: Layer, upto: int, waiting: Mapping[date, PendingRows]) -> Iterator[Account]:
    """The accounts of days of which nothing is known but that rows are pending."""
    for day, rows in sorted(waiting.items()):
        yield Account(topic, layer, day, False, upto, 0, fates(layer), pending=rows)
