"""What was found out about the rows of a layer, and what the accounts of its days say therefore."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date

from pyspark.sql import Row

from leanops.ledger.account import REFUSED, Account, Finding, Findings, fates
from leanops.ledger.pending import PendingRows
from leanops.ledger.planned import PlannedLedger, is_of_days
from leanops.ledger.rows import LOST, PLACES
from leanops.names import SOURCE, Layer
from leanops.standardized.transform import Fate


@dataclass
class Tally:
    """What was found out about the rows of each day."""

    planned: PlannedLedger
    came_in: Counter[date] = field(default_factory=Counter)
    kept: Counter[date] = field(default_factory=Counter)
    refused: Counter[date] = field(default_factory=Counter)
    duplicates: Counter[date] = field(default_factory=Counter)
    superseded: Counter[date] = field(default_factory=Counter)
    odd: Counter[date] = field(default_factory=Counter)
    """Rows without exactly one fate, by where they stand."""
    lost: Counter[date] = field(default_factory=Counter)
    """Messages that stand nowhere, and are neither copies nor superseded."""
    named: defaultdict[date, list[Finding]] = field(default_factory=lambda: defaultdict(list))
    """The first of both."""
    shared: defaultdict[date, Findings] = field(default_factory=lambda: defaultdict(Findings))

    missing: defaultdict[date, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    """How many rows lack each Critical Data Element, by its column."""

    def add_standing(self, row: Row) -> None:
        """So many rows of a day stand in so many places."""
        for each, place in zip((self.came_in, self.kept, self.refused), PLACES, strict=True):
            each[row["day"]] += row["rows"] * row[place]
        self.odd[row["day"]] += row["rows"] * row["is_finding"]

    def add_fate(self, row: Row) -> None:
        """So many messages of a day stand nowhere for one reason."""
        by_fate = {Fate.DUPLICATE: self.duplicates, Fate.SUPERSEDED: self.superseded, LOST: self.lost}
        by_fate[row["fate"]][row["day"]] += row["rows"]

    def add_name(self, row: Row) -> None:
        """A row that does not add up."""
        problem = self._problem(*(row[place] for place in PLACES))
        self.named[row["day"]].append(Finding(row["landing_seq"], row["message_id"], problem))

    def add_sharing(self, row: Row) -> None:
        """A row, one of so many of its day, whose record has another one."""
        found = Finding(row["landing_seq"], row["message_id"], f"its record {row['idempotency_key']} has another row")
        self.shared[row["day"]] = Findings(row["of_day"], [*self.shared[row["day"]].first, found])

    def accounts(self) -> Iterator[Account]:
        """What is to be said of each day."""
        planned, part = self.planned, self.planned.part
        for day in sorted(part.days if is_of_days(part) else {*self.came_in, *self.shared, *planned.waiting}):
            yield Account(
                topic=planned.topic,
                layer=planned.layer,
                day=day,
                is_of_new_rows=not part.is_whole and not part.days,
                upto=planned.upto,
                came_in=self.came_in[day],
                fates=fates(
                    planned.layer, self.kept[day], self.refused[day], self.duplicates[day], self.superseded[day]
                ),
                findings=Findings(self.odd[day] + self.lost[day], self.named[day]),
                shared=self.shared[day],
                missing=self.missing[day],
                pending=planned.waiting.get(day, PendingRows()),
            )

    def _problem(self, came_in: int, kept: int, refused: int) -> str:
        """What is wrong with a row that stands in so many places of each kind."""
        layer = self.planned.layer
        source, keeps, refuses = SOURCE[layer].value, layer.value, REFUSED[layer]
        if not came_in:
            return f"in {keeps if kept else refuses}, and not in {source} on this day"
        if not kept + refused:
            others = ", no copy and not superseded" if layer is Layer.STANDARDIZED else ""
            return f"no fate: in {source}, and neither in {keeps} nor in {refuses}{others}"
        return f"{kept + refused} fates: {kept} x in {keeps}, {refused} x in {refuses}"
