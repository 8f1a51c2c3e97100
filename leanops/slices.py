"""Which rows a build reads, and how large it therefore is."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, timedelta
from weakref import WeakKeyDictionary

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from leanops.table_files import TableFile

SMALL = 5_000
"""Up to so many rows are not worth being shared out among tasks."""

_COMPILED = 100_000
"""Up to so many rows take less time to be worked on than a query takes to be compiled, and planned anew by stages."""

_ROWS_PER_SHUFFLE_PARTITION = 250_000
_LAST = 2**62
_LEAST_PARTITIONS = 4

_settings: WeakKeyDictionary[SparkSession, dict[str, str]] = WeakKeyDictionary()
"""What sessions were set to."""


@dataclass(frozen=True)
class Slice:
    """The rows that landed after one landing_seq and up to another, and whole days of what landed before."""

    after: int
    upto: int
    days: frozenset[date] = frozenset()

    @classmethod
    def of_days(cls, days: Iterable[date]) -> "Slice":
        """All that has ever landed of whole days."""
        return cls(_LAST, _LAST, frozenset(days))

    def capped(self, upto: int) -> "Slice":
        """What of it landed up to a number."""
        return Slice(min(self.after, upto), min(self.upto, upto), self.days)

    @property
    def is_empty(self) -> bool:
        return self.upto <= self.after and not self.days

    @property
    def is_whole(self) -> bool:
        return self.after == 0

    @property
    def rows_landed(self) -> int:
        """How many rows landed: they are numbered without gaps."""
        return self.upto - self.after

    @property
    def text(self) -> str:
        """The rows, as a condition in SQL."""
        return f"landing_seq <= {self.upto} AND ({self.open_end})"

    @property
    def open_end(self) -> str:
        """The rows and whatever landed later, as a condition in SQL."""
        landed = f"landing_seq > {self.after}"
        return f"{landed} OR {self.on_days}" if self.days else landed

    @property
    def on_days(self) -> str:
        """All rows of the whole days, as a condition in SQL."""
        return " OR ".join(map(_published_on, sorted(self.days)))

    @property
    def place(self) -> str:
        """Where the rows' errors stand, as a condition in SQL: on whole days, whatever number they claim to have."""
        if self.is_whole:
            return "true"
        # Spark makes of a range that holds nothing what Iceberg does not understand.
        landed = [f"(landing_seq > {self.after} AND landing_seq <= {self.upto})"] if self.rows_landed > 0 else []
        return f"({' OR '.join([*landed, *([self.on_days] if self.days else [])])})"

    def may_be_in(self, file: TableFile) -> bool:
        """Whether a file may hold such rows."""
        return file.may_hold(self.after, self.upto) or (file.day in self.days and file.may_hold(-1, self.upto))

    def may_be_in_or_later(self, file: TableFile) -> bool:
        """Whether a file may hold such rows, or any that landed later."""
        return file.may_hold(self.after, _LAST) or file.day in self.days

    def may_be_beside(self, file: TableFile) -> bool:
        """Whether a file may hold other rows that had landed by then."""
        is_inside = file.day in self.days or (file.first_seq is not None and file.first_seq > self.after)
        return file.may_hold(-1, self.upto) and not is_inside

    def holds(self, rows: pa.Table) -> pa.ChunkedArray:
        """Which rows of a table they are; as workers ask, who have no SQL."""
        return pc.and_kleene(pc.less_equal(rows["landing_seq"], self.upto), self.holds_or_later(rows))

    def holds_or_later(self, rows: pa.Table) -> pa.ChunkedArray:
        """The same of the rows and whatever landed later."""
        landed = pc.greater(rows["landing_seq"], self.after)
        return pc.or_kleene(landed, self.holds_days_of(rows)) if self.days else landed

    def holds_days_of(self, rows: pa.Table) -> pa.ChunkedArray:
        """The same of all rows of the whole days."""
        return pc.is_in(pc.cast(rows["publish_time"], pa.date32()), pa.array(sorted(self.days), pa.date32()))

    def is_beside(self, rows: pa.Table) -> pa.ChunkedArray:
        """The same of everything else that had landed by then."""
        return pc.and_kleene(pc.less_equal(rows["landing_seq"], self.upto), pc.invert(self.holds(rows)))


def _published_on(day: date) -> str:
    """The rows of a publish day, as a condition in SQL that meets the tables' partitions edge to edge."""
    start, end = (f"TIMESTAMP '{each} 00:00:00+00:00'" for each in (day, day + timedelta(days=1)))
    return f"(publish_time >= {start} AND publish_time < {end})"


def sized(spark: SparkSession, rows: int) -> None:
    """Set the session as so many rows need it, if it is not: its own settings are for neither few nor many.

    What is set stays set, for every setting is a call to the server, and most builds are of a size.
    """
    partitions = 1 if rows <= SMALL else max(_LEAST_PARTITIONS, rows // _ROWS_PER_SHUFFLE_PARTITION)
    is_compiled = rows > _COMPILED
    wanted = {
        "spark.sql.shuffle.partitions": str(partitions),
        "spark.sql.codegen.wholeStage": str(is_compiled).lower(),
        "spark.sql.codegen.factoryMode": "FALLBACK" if is_compiled else "NO_CODEGEN",
        "spark.sql.adaptive.enabled": str(is_compiled).lower(),
        # Few rows are brought together by topic, and joined where they are: to send some to all would be a job each.
        "spark.sql.autoBroadcastJoinThreshold": "10MB" if is_compiled else "-1",
    }
    held = _settings.setdefault(spark, {})
    for name, value in wanted.items():
        if held.get(name) != value:
            spark.conf.set(name, value)
            held[name] = value
