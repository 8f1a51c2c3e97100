"""What a contract that is not active would do with the rows of Standardized. Nothing is written."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from leanops.batch import blame
from leanops.batch.scan import Scan, Task, merged, work_where_read
from leanops.contracts.model import Contract
from leanops.curated.binding import BoundColumn, bound_columns
from leanops.curated.errors import INVALID
from leanops.curated.validation import Binding, validate
from leanops.errors import RehearsalImpossible
from leanops.inventory import table_days
from leanops.names import DAY_FIELD, Layer, table
from leanops.slices import Slice, sized
from leanops.standardized.table import flat_columns
from leanops.tables import find_table

_SAMPLES, _SAMPLE_LENGTH = 3, 200
# Samples are the newest rows of so many slots: as little is held of many rows as of few, and neighbours share no slot.
_SLOTS = 31
# Before a column's name: the column as the active contract has it. No column is called so.
_TODAY = "today: "
_FAILS_TODAY = "fails_today"
BROKEN = "broken_rules"
_VALIDATED = ("message_id", "landing_seq", BROKEN)

_Group = tuple[str | None, str]
_PASSING: _Group = (None, "passing")
_FAILING: _Group = (None, "failing")
_NEWLY_PASSING: _Group = (None, "newly passing")
_NEWLY_FAILING: _Group = (None, "newly failing")


@dataclass(frozen=True)
class BrokenRule:
    """A rule that a row would break, and what Standardized holds in that column."""

    column: str
    rule: str
    value: str | None

    def __str__(self) -> str:
        return f"{self.column} is {_shown(self.value)} ({self.rule})"


@dataclass(frozen=True)
class Sample:
    """A row that would break a rule, and what Standardized holds in its column."""

    message_id: str
    value: str | None

    def __str__(self) -> str:
        return f"{self.message_id}: {_shown(self.value)}"


@dataclass(frozen=True)
class FailingRow:
    """A row, and every rule that it would break."""

    message_id: str
    broken_rules: tuple[BrokenRule, ...]

    def breaking(self, column: str, rule: str) -> Sample:
        """The row as a sample of those that break a rule."""
        [value] = [each.value for each in self.broken_rules if (each.column, each.rule) == (column, rule)]
        return Sample(self.message_id, value)


@dataclass(frozen=True)
class Failure:
    """A rule of a column, how many rows would break it, and some of them."""

    column: str
    rule: str
    rows: int
    samples: tuple[Sample, ...]


@dataclass(frozen=True)
class Rehearsal:
    """What a contract would do with the rows of some publish days, beside what the active one does with them."""

    topic: str
    version: int
    active_version: int | None
    """None while no contract is active: then there is nothing to compare with, and nothing passes or fails newly."""
    days: tuple[date, ...]
    rows: int
    passing: int
    failing: int
    newly_passing: int
    """Rows that fail today and would pass."""
    newly_failing: int
    """Rows that pass today and would fail."""
    newly_failing_samples: tuple[FailingRow, ...]
    failures: tuple[Failure, ...]
    """The rules that would be broken, the one that most rows break first."""
    unknown_columns: tuple[str, ...]
    """Columns of the contract whose fields no message has had."""
    envelope_changes: tuple[str, ...]
    """Envelope columns that come, go, or are filled from another field."""

    @property
    def sentences(self) -> Iterator[str]:
        """The rehearsal in words."""
        rows = "1 row" if self.rows == 1 else f"{self.rows:,} rows"
        days = str(self.days[0]) if len(self.days) == 1 else f"{len(self.days)} days, {self.days[0]} to {self.days[-1]}"
        yield f"Version {self.version} of the contract, on {rows} of {self.topic} in Standardized ({days})."
        yield (
            f"{self.passing:,} would pass ({self.percent(self.passing)}), "
            f"{self.failing:,} would fail ({self.percent(self.failing)})."
        )
        if self.active_version is None:
            yield "No contract is active: there is nothing to compare with."
        else:
            fail_today = self.failing - self.newly_failing + self.newly_passing
            yield (
                f"By version {self.active_version}, which is active, {self.rows - fail_today:,} pass today, of which "
                f"{self.newly_failing:,} would fail; {fail_today:,} fail, of which {self.newly_passing:,} would pass."
            )
        for name in self.unknown_columns:
            yield f"{name}: no message has had this field."
        if self.envelope_changes:
            yield f"Not rehearsed is what comes before Standardized: {', '.join(self.envelope_changes)} would change."
        if "idempotency_key" in self.envelope_changes:
            yield "The record keys would change, and with them which messages are versions of one record."

    def percent(self, rows: int) -> str:
        """So many rows, as a part of all that were looked at."""
        return f"{100 * rows / self.rows:.2f} %"


def rehearse(
    spark: SparkSession, catalog: Catalog, topic: str, contract: Contract, active: Contract | None, days: int
) -> Rehearsal:
    """Judge the rows of the last publish days that hold any, by `contract` and by the active one."""
    source = find_table(catalog, table(Layer.STANDARDIZED, topic))
    held = _last_days(source, days) if source and source.current_snapshot() else {}
    if not source or not held:
        raise RehearsalImpossible(
            f"Standardized holds no rows of {topic}: nothing was built yet.",
            "A contract is rehearsed on rows that were built under an active one: run a tick under the first.",
        )
    today, columns = active or contract, flat_columns(source.schema())
    bound = bound_columns(contract, columns)
    both = Binding(contract, [*bound, *map(_as_today, bound_columns(today, columns))])
    sized(spark, sum(held.values()))
    rows = validated_rows(spark, topic, source, Slice.of_days(held), both).transform(_by_both)
    found = _Found.among(rows)
    samples = found.samples(rows)

    counts = found.counts
    return Rehearsal(
        topic=topic,
        version=contract.version,
        active_version=active.version if active else None,
        days=tuple(held),
        rows=sum(counts[outcome] for outcome in (_PASSING, _FAILING, _NEWLY_PASSING, _NEWLY_FAILING)),
        passing=counts[_PASSING] + counts[_NEWLY_PASSING],
        failing=counts[_FAILING] + counts[_NEWLY_FAILING],
        newly_passing=counts[_NEWLY_PASSING],
        newly_failing=counts[_NEWLY_FAILING],
        newly_failing_samples=tuple(samples[seq] for seq in found.newest.get(_NEWLY_FAILING, ())),
        failures=tuple(found.failures(samples)),
        unknown_columns=tuple(each.column.name for each in bound if each.is_unknown),
        envelope_changes=tuple(_envelope_changes(contract, today)),
    )


def _last_days(source: Table, count: int) -> dict[date, int]:
    """The last days that hold rows, and how many. Of a day whose rows were all replaced there may still be files."""
    partitions = source.inspect.partitions()["partition"].to_pylist()
    held = table_days(source, {partition[DAY_FIELD] for partition in partitions})
    return {day: held[day].rows for day in sorted(day for day in held if held[day].rows)[-count:]}


def _envelope_changes(contract: Contract, today: Contract) -> list[str]:
    then, now = ({(each.name, each.source) for each in every.envelope_columns} for every in (contract, today))
    return sorted({name for name, _ in then ^ now})


def _as_today(bound: BoundColumn) -> BoundColumn:
    """A column of today's contract under a name of its own, so that the table is read once for both contracts."""
    named = bound.column.model_copy(update={"name": _TODAY + bound.column.name})
    return replace(bound, column=named)


def validated_rows(spark: SparkSession, topic: str, source: Table, part: Slice, binding: Binding) -> DataFrame:
    """The rows of a part of Standardized, by their ids and numbers, each with every rule that it breaks."""
    seconds = blame.TOPIC_SECONDS

    def work(tasks: Sequence[Task]) -> Iterator[pa.RecordBatch]:
        for batch in merged(tasks).batches(None, None, seconds):
            rows = pa.Table.from_batches([batch])
            named = rows.select(["message_id", "landing_seq"])
            yield from named.append_column(BROKEN, validate(rows, binding).rules_of_all()).to_batches()

    scan = Scan(topic, source, binding.columns, part.holds, part.may_be_in)
    return work_where_read(spark, [scan], work, StructType([INVALID[name] for name in _VALIDATED]))


def _by_both(validated: DataFrame) -> DataFrame:
    """Every row, the rules of the contract that it breaks, and whether it breaks one of today's."""
    return validated.select(
        "message_id",
        "landing_seq",
        F.filter(BROKEN, lambda rule: ~_is_todays(rule)).alias(BROKEN),
        F.exists(BROKEN, _is_todays).alias(_FAILS_TODAY),
    )


def _is_todays(rule: Column) -> Column:
    return rule["column"].startswith(_TODAY)


@dataclass(frozen=True)
class _Found:
    """How many rows break each rule and how many have each outcome, and the numbers of the newest of them."""

    counts: Counter[_Group]
    newest: Mapping[_Group, Sequence[int]]

    @classmethod
    def among(cls, rows: DataFrame) -> "_Found":
        """One job over all rows: numbers alone can be counted without sorting them."""
        counts: Counter[_Group] = Counter()
        newest: dict[_Group, list[int]] = defaultdict(list)
        told = rows.select("landing_seq", F.inline(F.concat(F.array(_outcome()), BROKEN)))
        slots = told.groupBy("column", "rule", (F.col("landing_seq") % _SLOTS).alias("slot"))
        for slot in slots.agg(F.count("*").alias("rows"), F.max("landing_seq").alias("newest")).collect():
            group = slot["column"], slot["rule"]
            counts[group] += slot["rows"]
            newest[group].append(slot["newest"])
        return cls(counts, {group: sorted(seqs, reverse=True)[:_SAMPLES] for group, seqs in newest.items()})

    def samples(self, rows: DataFrame) -> dict[int, FailingRow]:
        """The newest rows that fail, by their numbers. Only files that can hold them are read again."""
        seqs = {seq for group, few in self.newest.items() if group[0] or group == _NEWLY_FAILING for seq in few}
        if not seqs:
            return {}
        few = rows.where(F.col("landing_seq").isin(sorted(seqs))).select("landing_seq", "message_id", _shortened())
        return {
            row["landing_seq"]: FailingRow(row["message_id"], tuple(BrokenRule(*rule) for rule in row[BROKEN]))
            for row in few.collect()
        }

    def failures(self, samples: Mapping[int, FailingRow]) -> Iterator[Failure]:
        """The rules that are broken, the one that most rows break first."""
        for (column, rule), rows in sorted(self.counts.items(), key=lambda item: (-item[1], str(item[0]))):
            if column is not None:
                shown = tuple(samples[seq].breaking(column, rule) for seq in self.newest[column, rule])
                yield Failure(column, rule, rows, shown)


def _outcome() -> Column:
    """What becomes of a row, told like a broken rule of no column."""
    fails, fails_today = F.size(BROKEN) > 0, F.col(_FAILS_TODAY)
    outcome = (
        F.when(fails & fails_today, _FAILING[1])
        .when(fails, _NEWLY_FAILING[1])
        .when(fails_today, _NEWLY_PASSING[1])
        .otherwise(_PASSING[1])
    )
    nothing = F.lit(None).cast("string")
    return F.struct(nothing.alias("column"), outcome.alias("rule"), nothing.alias("value"))


def _shortened() -> Column:
    """The broken rules, with no more of their values than people look at."""
    short = F.transform(BROKEN, lambda rule: rule.withField("value", F.left(rule["value"], F.lit(_SAMPLE_LENGTH))))
    return short.alias(BROKEN)


def _shown(value: str | None) -> str:
    return "NULL" if value is None else repr(value)
