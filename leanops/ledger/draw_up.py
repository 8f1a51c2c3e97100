"""Draw up the accounts of a topic's layers: every row, one by one, from the layer before to where it stands now."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date

from pyiceberg.catalog import Catalog
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from leanops.checkpointed import checkpointed
from leanops.commits import checkpoint_of
from leanops.contracts.model import Contract
from leanops.curated.errors import open_errors
from leanops.errors import LedgerImpossible
from leanops.inventory import table_days
from leanops.ledger.account import SHOWN, Account, Finding, Findings
from leanops.ledger.rows import (
    LOST,
    PLACES,
    fates_of_unwritten,
    first_of_each_day,
    is_odd,
    is_unwritten,
    publish_day,
    standing,
)
from leanops.names import SOURCE, Layer, spark_table, table
from leanops.slices import SMALL, Slice, sized
from leanops.standardized.table import key_plan
from leanops.standardized.transform import RECORD_KEY, Fate, map_envelope, read_payloads
from leanops.tables import find_table

REFUSED = {Layer.STANDARDIZED: "parse_errors", Layer.CURATED: "open_errors"}

_ByDay = dict[date, Findings]


def draw_up(
    spark: SparkSession, catalog: Catalog, topic: str, contract: Contract, layer: Layer, part: Slice | None = None
) -> list[Account]:
    """A layer's account of each publish day, over all its rows or over those of a part. None before its first build.

    Nobody may build the topic meanwhile: a build writes errors before it publishes its rows.
    """
    held = find_table(catalog, table(layer, topic))
    said = checkpoint_of(held)
    if not said:
        return []
    upto, read = int(said["upto"]), said[f"{SOURCE[layer]}-snapshot"]
    part = Slice(0, upto) if part is None else part.capped(upto)
    source = catalog.load_table(table(SOURCE[layer], topic))
    if layer is Layer.CURATED and source.snapshot_by_id(int(read)) is None:
        raise LedgerImpossible(
            f"Snapshot {read} of {'.'.join(source.name())}, from which Curated was built, has expired.",
            "Rebuild a day of the topic: Curated is then built from a snapshot that is there.",
        )
    rows = part.rows_landed + sum(day.rows for day in table_days(source, part.days).values())
    with sized(spark, rows):
        return list(_Book(spark, topic, contract, layer, part, upto, read, rows <= SMALL).accounts())


@dataclass(frozen=True)
class _Book:
    """What one layer's accounts are drawn up from."""

    spark: SparkSession
    topic: str
    contract: Contract
    layer: Layer
    part: Slice
    upto: int
    read: str
    """The snapshot of the layer before that the layer stands for."""
    is_small: bool

    def accounts(self) -> Iterator[Account]:
        stand = checkpointed(standing(self._source(), self._kept(), self._refused()))
        came_in, kept, refused, unwritten, odd = (Counter[date]() for _ in range(5))
        for row in stand.groupBy("day", *PLACES, is_unwritten().alias("u"), is_odd().alias("o")).count().collect():
            came_in[row.day] += row["count"] * row.came_in
            kept[row.day] += row["count"] * row.kept
            refused[row.day] += row["count"] * row.refused
            unwritten[row.day] += row["count"] * row.u
            odd[row.day] += row["count"] * row.o
        fates, lost = self._explained(stand.where(is_unwritten()), unwritten)
        findings = _first(stand.where(is_odd()), odd, self._problem)
        shared = self._shared(stand)
        days = self.part.days if self.part.days and not self.part.rows_landed else {*came_in, *shared}
        for day in sorted(days):
            yield Account(
                topic=self.topic,
                layer=self.layer,
                day=day,
                is_of_new_rows=not self.part.is_whole and not self.part.days,
                upto=self.upto,
                came_in=came_in[day],
                fates={self.layer.value: kept[day], REFUSED[self.layer]: refused[day], **fates[day]},
                findings=lost.get(day, Findings()).and_also(findings.get(day, Findings())),
                shared=shared.get(day, Findings()),
            )

    def _explained(self, unwritten: DataFrame, count: Counter[date]) -> tuple[dict[date, dict[str, int]], _ByDay]:
        """How many messages of each day were rightly not written, and why; and those that are lost."""
        if self.layer is Layer.CURATED:
            return defaultdict(dict), _first(unwritten, count, self._problem)
        found: dict[date, dict[str, int]] = defaultdict(lambda: {"duplicates": 0, "superseded": 0})
        lost = Counter[date]()
        if not count.total():
            return found, {}
        told = checkpointed(self._told(unwritten))
        for row in told.groupBy("day", "fate").count().collect():
            match row.fate:
                case Fate.DUPLICATE:
                    found[row.day]["duplicates"] = row["count"]
                case Fate.SUPERSEDED:
                    found[row.day]["superseded"] = row["count"]
                case _:
                    lost[row.day] = row["count"]
        return found, _first(told.where(F.col("fate") == LOST), lost, self._problem)

    def _told(self, unwritten: DataFrame) -> DataFrame:
        """Each message that stands nowhere, with the reason. Its payload is read again for its record's key."""
        plan, landed = key_plan(self.contract), self._table(Layer.RAW).where(F.col("landing_seq") <= self.upto)
        messages = self._with(landed, "landing_seq", unwritten, "landing_seq")
        read = messages.transform(read_payloads, plan).transform(map_envelope, plan)
        columns = ("landing_seq", "message_id", "publish_time", "ingestion_ts", "error_kind", RECORD_KEY)
        mine = checkpointed(read.select(*columns))
        copies = self._with(landed, "message_id", mine, "message_id")
        versions = self._with(self._table(Layer.STANDARDIZED), "idempotency_key", mine, RECORD_KEY)
        return fates_of_unwritten(mine, copies, versions)

    def _shared(self, stand: DataFrame) -> _ByDay:
        """The rows whose record has another row. Where only a part is looked at, the other may stand anywhere."""
        kept = self._table(self.layer)
        if not self.part.is_whole:
            kept = self._with(kept, "idempotency_key", stand.where("kept > 0"), "key")
        again = kept.groupBy("idempotency_key").count().where("count > 1").select("idempotency_key")
        keys = [row.idempotency_key for row in again.limit(SHOWN).collect()]
        if not keys:
            return {}
        rows = kept.where(F.col("idempotency_key").isin(keys)).withColumn("day", publish_day()).collect()
        found: dict[date, list[Finding]] = defaultdict(list)
        for row in sorted(rows, key=lambda each: (each.idempotency_key, each.landing_seq)):
            problem = f"its record {row.idempotency_key} has another row"
            found[row.day].append(Finding(row.landing_seq, row.message_id, problem))
        return {day: Findings(len(each), each[:SHOWN]) for day, each in found.items()}

    def _source(self) -> DataFrame:
        if self.layer is Layer.STANDARDIZED:
            return self._table(Layer.RAW).where(self.part.condition)
        at = self.spark.read.option("versionAsOf", self.read)
        return at.table(spark_table(Layer.STANDARDIZED, self.topic)).where(self.part.condition)

    def _kept(self) -> DataFrame:
        """What stands in the layer, whatever number it claims to have."""
        rows = self._table(self.layer)
        return rows if self.part.is_whole else rows.where(F.expr(self.part.open_end))

    def _refused(self) -> DataFrame:
        if self.layer is Layer.CURATED:
            return open_errors(self.spark, self.topic).where(self.part.condition)
        errors = self._table(Layer.PARSE_ERRORS).where(F.col("topic_name") == self.topic)
        return errors.where(self.part.condition)

    def _with(self, rows: DataFrame, column: str, wanted: DataFrame, wanted_column: str) -> DataFrame:
        """The rows with any of the wanted values: few are asked for by name, which bloom filters answer."""
        values = wanted.select(F.col(wanted_column).alias(column)).distinct()
        if self.is_small:
            return rows.where(F.col(column).isin([row[0] for row in values.collect()]))
        return rows.join(values, column, "left_semi")

    def _problem(self, row: Row) -> str:
        """What is wrong with a row, by where it stands."""
        source, kept, refused = (str(each) for each in (SOURCE[self.layer], self.layer, REFUSED[self.layer]))
        if "fate" in row:
            return f"no fate: in {source}, and neither in {kept} nor in {refused}, no copy and not superseded"
        if not row.came_in:
            return f"in {kept if row.kept else refused}, and not in {source} on this day"
        if not row.kept + row.refused:
            return f"no fate: in {source}, and neither in {kept} nor in {refused}"
        return f"{row.kept + row.refused} fates: {row.kept} x in {kept}, {row.refused} x in {refused}"

    def _table(self, layer: Layer) -> DataFrame:
        return self.spark.read.table(spark_table(layer, self.topic))


def _first(rows: DataFrame, counts: Counter[date], problem: Callable[[Row], str]) -> _ByDay:
    """How many such rows each day has, and the first of them."""
    found: dict[date, list[Finding]] = defaultdict(list)
    for row in first_of_each_day(rows, SHOWN).collect() if counts.total() else ():
        found[row.day].append(Finding(row.landing_seq, row.message_id, problem(row)))
    return {day: Findings(counts[day], first) for day, first in found.items()}
