"""Build a topic's Standardized table and its parse errors from what RAW has gained."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import date

from pyiceberg.catalog import Catalog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from leanops.commits import Draft, checkpoint_of, current_id, replace_rows
from leanops.contracts.model import Contract
from leanops.inventory import days_changed, table_days
from leanops.names import Layer, spark_table
from leanops.ops.drift_log import log_drift
from leanops.picked import Picked, Sorted
from leanops.raw.table import ensure_raw_table, last_landing_seq
from leanops.slices import SMALL, Slice, published_on, sized
from leanops.standardized.flatten_plan import FlattenPlan
from leanops.standardized.table import add_columns, ensure_parse_errors_table, ensure_standardized_table, plan_of
from leanops.standardized.transform import (
    RECORD_KEY,
    Fate,
    fates,
    flat_rows,
    map_envelope,
    new_paths,
    parse_errors,
    read_payloads,
)


@dataclass(frozen=True)
class StandardizedBuild:
    """What a build did with the messages that it read. `is_new` is False when there was nothing to do."""

    is_new: bool
    snapshot_id: int | None
    raw_snapshot: int | None
    days: frozenset[date] = frozenset()
    """The publish days of which rows came or went."""
    last_ingestion_ts: int | None = None
    is_whole: bool = False
    rows_read: int = 0
    written: int = 0
    duplicates: int = 0
    parse_errors: int = 0
    superseded: int = 0
    updated: int = 0
    """Rows that stood in the table before and gave way to a later version."""
    new_columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Facts:
    """Whether any message has new fields, when the last landed; and, of a small build, which messages and records."""

    drifted: bool
    last_ingestion_ts: int | None
    ids: Sequence[str] | None = None
    keys: Sequence[str] | None = None


def build_standardized(
    sessions: Callable[[], SparkSession],
    catalog: Catalog,
    topic: str,
    contract: Contract,
    rebuild: Collection[date] = (),
) -> StandardizedBuild:
    """Make Standardized what the spec says it is over all of RAW. When nothing has changed, Spark is not asked.

    What landed since the last build is taken in, of whatever day it is, and the days to `rebuild` are made anew from
    all that RAW holds of them. When the contract maps another envelope, everything is.
    """
    raw = ensure_raw_table(catalog, topic)
    target = ensure_standardized_table(catalog, topic, contract)
    ensure_parse_errors_table(catalog)
    landed, said = raw.current_snapshot(), checkpoint_of(target)
    envelope = ",".join(f"{column.name}={column.source}" for column in contract.envelope_columns)
    after = int(said.get("upto", 0)) if said.get("envelope") == envelope else 0
    part = Slice(after, last_landing_seq(raw), frozenset(rebuild) if after else frozenset())
    if landed is None or part.is_empty:
        return StandardizedBuild(False, current_id(target), current_id(raw))

    checkpoint = {"upto": str(part.upto), "raw-snapshot": str(landed.snapshot_id), "envelope": envelope}
    if part.is_whole or part.days:
        checkpoint["rebuilt"] = "all" if part.is_whole else ",".join(map(str, sorted(part.days)))
    rows = part.rows_landed + sum(day.rows for day in table_days(raw, part.days).values())
    draft = Draft.begin(target, after)
    spark = sessions()
    with sized(spark, rows):
        return _Build(spark, catalog, topic, part, rows, draft).run(plan_of(target, contract), checkpoint)


@dataclass(frozen=True)
class _Build:
    """One build, in the order of the spec's steps."""

    spark: SparkSession
    catalog: Catalog
    topic: str
    part: Slice
    rows: int
    draft: Draft

    def run(self, plan: FlattenPlan, checkpoint: dict[str, str]) -> StandardizedBuild:
        raw = self._table(Layer.RAW, checkpoint["raw-snapshot"])
        messages = raw.where(self.part.condition)
        foreseen = self._foreseen(messages, plan)
        read = messages.transform(self._read, foreseen).persist()
        facts = self._facts(read)
        decided = self._sorted(fates(read, self._copies(raw, facts.ids), self._held(facts.keys)))
        counts = decided.counts
        try:
            complete, grown = read, foreseen
            if facts.drifted:
                first_copies = decided.picked(Fate.DUPLICATE).left_out_of(read)
                complete, grown = self._with_new_fields(messages, read, first_copies, foreseen)
            self._add_columns(plan, grown)
            self._write_parse_errors(decided.picked(Fate.PARSE_ERROR).among(read), counts[Fate.PARSE_ERROR])
            self._take_out(decided.picked(Fate.REPLACED))
            checkpoint["replaced"] = str(counts[Fate.REPLACED])
            if counts[Fate.WRITTEN]:
                # Nearly all messages are written: they are found as those that have no other fate.
                others = decided.picked(Fate.DUPLICATE, Fate.PARSE_ERROR, Fate.SUPERSEDED)
                rows = others.left_out_of(complete).transform(flat_rows, grown, self.draft.columns)
                self.draft.append(rows, checkpoint)
            snapshot = self.draft.publish(checkpoint)
        finally:
            read.unpersist()
            decided.forget()
        return StandardizedBuild(
            is_new=True,
            snapshot_id=snapshot.snapshot_id,
            days=days_changed(self.draft.table, self.draft.base.snapshot_id, snapshot.snapshot_id),
            raw_snapshot=int(checkpoint["raw-snapshot"]),
            last_ingestion_ts=facts.last_ingestion_ts,
            is_whole=self.part.is_whole,
            rows_read=sum(counts.values()) - counts[Fate.REPLACED],
            written=counts[Fate.WRITTEN],
            duplicates=counts[Fate.DUPLICATE],
            parse_errors=counts[Fate.PARSE_ERROR],
            superseded=counts[Fate.SUPERSEDED],
            updated=counts[Fate.REPLACED],
            new_columns=tuple(column.name for column in grown.columns[len(plan.columns) :]),
        )

    def _foreseen(self, messages: DataFrame, plan: FlattenPlan) -> FlattenPlan:
        """The plan with the fields of a new topic's first messages, most of all it has: known ones are read faster."""
        if not self.part.is_whole or self.rows <= SMALL:
            return plan
        first = messages.where(F.col("landing_seq") <= SMALL).transform(self._read, plan)
        copies = Sorted.few(fates(first, None, None), "fate").picked(Fate.DUPLICATE)
        return plan.extended(new_paths(copies.left_out_of(first), plan))

    def _facts(self, read: DataFrame) -> _Facts:
        """One look at all messages, which also caches them; of a small build with its ids and keys."""
        if self.rows > SMALL:
            drifted, last = F.count("new_paths").alias("drifted"), F.max("ingestion_ts").alias("last")
            row = read.agg(drifted, last).collect()[0]
            return _Facts(bool(row.drifted), row.last)
        has_new_paths = F.col("new_paths").isNotNull().alias("drifted")
        rows = read.select(has_new_paths, "ingestion_ts", "message_id", RECORD_KEY).collect()
        return _Facts(
            drifted=any(row.drifted for row in rows),
            last_ingestion_ts=max((row.ingestion_ts for row in rows), default=None),
            ids=list({row.message_id for row in rows}),
            keys=list({row[RECORD_KEY] for row in rows}),
        )

    def _copies(self, raw: DataFrame, ids: Sequence[str] | None) -> DataFrame | None:
        """Where the messages may have landed before."""
        if self.part.is_whole:
            return None
        others = raw.where(self.part.outside)
        return (others if ids is None else others.where(F.col("message_id").isin(ids))).select(
            "landing_seq", "message_id"
        )

    def _held(self, keys: Sequence[str] | None) -> DataFrame | None:
        """The versions that the table holds of the messages' records, but those of days that are made anew."""
        if self.part.is_whole:
            return None
        rows = self._table(Layer.STANDARDIZED, str(self.draft.base.snapshot_id))
        if self.part.days:
            rows = rows.where(F.expr(f"NOT ({self._rebuilt_days})"))
        return (rows if keys is None else rows.where(F.col("idempotency_key").isin(keys))).select(
            "landing_seq", "message_id", F.col("idempotency_key").alias("key"), "publish_time", "ingestion_ts"
        )

    def _with_new_fields(
        self, messages: DataFrame, read: DataFrame, first_copies: DataFrame, plan: FlattenPlan
    ) -> tuple[DataFrame, FlattenPlan]:
        """The messages with every field in its column, and the plan for it: those with new fields are read again."""
        grown = plan.extended(new_paths(first_copies, plan))
        if grown == plan:
            return read, plan
        late = read.where(F.col("new_paths").isNotNull())
        again = messages.join(late.select("landing_seq"), "landing_seq", "left_semi")
        reread = again.transform(self._read, grown)
        return read.where(F.col("new_paths").isNull()).unionByName(reread, allowMissingColumns=True), grown

    def _add_columns(self, known: FlattenPlan, grown: FlattenPlan) -> None:
        """Evolve: a column for each new field, logged before it is there."""
        if grown != known:
            log_drift(self.catalog, self.topic, grown)
            add_columns(self.draft.table, grown.columns)

    def _write_parse_errors(self, refused: DataFrame, count: int) -> None:
        """Put this build's parse errors in the place of those that an earlier one has left for the same messages."""
        table = spark_table(Layer.PARSE_ERRORS, self.topic)
        where = f"topic_name = '{self.topic}' AND {self.part.text}"
        if self.draft.is_second_try:
            self.spark.sql(f"DELETE FROM {table} WHERE {where}")  # noqa: S608 - our own words and numbers
        if count or self.part.days or (self.part.is_whole and not self.draft.is_of_nothing):
            replace_rows(refused.transform(parse_errors), table, F.expr(where))

    def _take_out(self, replaced: Picked) -> None:
        """Delete what is made anew, and the versions that later ones replace."""
        if self.part.is_whole and not self.draft.is_of_nothing:
            self.draft.delete(self.spark, "true")
        elif self.part.days:
            self.draft.delete(self.spark, self._rebuilt_days)
        if replaced.count:
            self.draft.delete_rows(self.spark, replaced)

    def _read(self, messages: DataFrame, plan: FlattenPlan) -> DataFrame:
        return messages.transform(read_payloads, plan).transform(map_envelope, plan)

    def _sorted(self, decided: DataFrame) -> Sorted:
        return Sorted.many(decided, "fate") if self.rows > SMALL else Sorted.few(decided, "fate")

    @property
    def _rebuilt_days(self) -> str:
        return " OR ".join(map(published_on, sorted(self.part.days)))

    def _table(self, layer: Layer, snapshot_id: str) -> DataFrame:
        return self.spark.read.option("versionAsOf", snapshot_id).table(spark_table(layer, self.topic))
