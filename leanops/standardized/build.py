"""Build a topic's Standardized table and its parse errors from what RAW has gained."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from pyiceberg.catalog import Catalog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from leanops.commits import Draft, checkpoint_of, current_id, replace_rows
from leanops.contracts.model import Contract
from leanops.inventory import days_changed, table_days
from leanops.names import Layer, spark_table
from leanops.observed import Observed
from leanops.ops.drift_log import log_drift
from leanops.picked import Sorted
from leanops.raw.table import ensure_raw_table, last_landing_seq
from leanops.slices import SMALL, Slice, sized
from leanops.standardized.flatten_plan import OVERFLOW_COLUMN, FlattenPlan
from leanops.standardized.table import (
    add_columns,
    ensure_parse_errors_table,
    ensure_standardized_table,
    envelope_text,
    plan_of,
)
from leanops.standardized.transform import (
    RECORD_KEY,
    Fate,
    fates,
    flat_rows,
    map_envelope,
    narrow,
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
    part: Slice | None = None
    """Which messages it took in."""
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
    """How many messages there are, whether any has new fields, when the last landed; of a small build also which."""

    messages: int
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
    envelope = envelope_text(contract)
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
        way = self._decide_and_write if self.rows <= SMALL else self._write_and_take_out
        facts, counts, grown = way(raw, messages, plan, checkpoint)
        snapshot = self.draft.publish(checkpoint)
        unwritten = counts[Fate.DUPLICATE] + counts[Fate.PARSE_ERROR] + counts[Fate.SUPERSEDED]
        return StandardizedBuild(
            is_new=True,
            snapshot_id=snapshot.snapshot_id,
            days=days_changed(self.draft.table, self.draft.base.snapshot_id, snapshot.snapshot_id),
            raw_snapshot=int(checkpoint["raw-snapshot"]),
            last_ingestion_ts=facts.last_ingestion_ts,
            part=self.part,
            rows_read=facts.messages,
            written=facts.messages - unwritten,
            duplicates=counts[Fate.DUPLICATE],
            parse_errors=counts[Fate.PARSE_ERROR],
            superseded=counts[Fate.SUPERSEDED],
            updated=counts[Fate.REPLACED],
            new_columns=tuple(column.name for column in grown.columns[len(plan.columns) :]),
        )

    def _decide_and_write(
        self, raw: DataFrame, messages: DataFrame, plan: FlattenPlan, checkpoint: dict[str, str]
    ) -> tuple[_Facts, Mapping[str, int], FlattenPlan]:
        """A small build: the messages are kept in memory until every fate is decided, and written once."""
        read = messages.transform(self._read, plan).persist()
        try:
            facts = self._facts(read)
            decided = Sorted.few(
                fates(read.transform(narrow), self._copies(raw, facts.ids), self._held(facts.keys)), "fate"
            )
            counts, complete, grown = decided.counts, read, plan
            if facts.drifted:
                firsts = decided.picked(Fate.DUPLICATE).left_out_of(read)
                grown = plan.extended(new_paths(firsts, plan))
            if grown != plan:
                self._add_columns(grown)
                complete = messages.transform(self._read, grown)
            self._write_parse_errors(decided.picked(Fate.PARSE_ERROR).among(read), counts[Fate.PARSE_ERROR])
            self._make_room()
            replaced = decided.picked(Fate.REPLACED)
            checkpoint["replaced"] = replaced.text
            self.draft.delete_rows(self.spark, replaced)
            others = decided.picked(Fate.DUPLICATE, Fate.PARSE_ERROR, Fate.SUPERSEDED)
            if facts.messages > others.count:
                rows = others.left_out_of(complete).transform(flat_rows, grown, self.draft.columns)
                self.draft.append(rows, checkpoint)
        finally:
            read.unpersist()
        return facts, counts, grown

    def _write_and_take_out(
        self, raw: DataFrame, messages: DataFrame, plan: FlattenPlan, checkpoint: dict[str, str]
    ) -> tuple[_Facts, Mapping[str, int], FlattenPlan]:
        """A large build: all readable messages are written at once, and what is not to stay is taken out again.

        To keep a million messages until they are decided costs as much as to write them, and few are taken out.
        """
        foreseen = self._foreseen(messages, plan)
        if foreseen != plan:
            self._add_columns(foreseen)
        self._make_room()
        read = Observed(
            messages.transform(self._read, foreseen),
            messages=F.count("*"),
            new=F.count("new_paths"),
            last=F.max("ingestion_ts"),
        )
        readable = read.rows.where(F.col("error_kind").isNull())
        self.draft.append(readable.transform(flat_rows, foreseen, self.draft.columns), {})
        facts = _Facts(read.facts["messages"], bool(read.facts["new"]), read.facts["last"])

        decided = Sorted.many(fates(self._written(messages), self._copies(raw), self._held()), "fate")
        refused = decided.picked(Fate.PARSE_ERROR).among(messages).transform(self._read, foreseen)
        self._write_parse_errors(refused, decided.counts[Fate.PARSE_ERROR])
        grown = self._move_to_new_columns(messages, foreseen, decided) if facts.drifted else foreseen
        checkpoint["replaced"] = decided.picked(Fate.REPLACED).text
        self.draft.delete_rows(self.spark, decided.picked(Fate.DUPLICATE, Fate.SUPERSEDED, Fate.REPLACED))
        return facts, decided.counts, grown

    def _written(self, messages: DataFrame) -> DataFrame:
        """What the fates of all messages depend on. Those that the draft does not hold were refused."""
        rows = self.spark.read.table(self.draft.spark_name).where(self.part.condition)
        written = rows.select(
            "landing_seq",
            "message_id",
            F.col("idempotency_key").alias("key"),
            "publish_time",
            "ingestion_ts",
            F.lit(False).alias("is_refused"),
        )
        landed = messages.select("landing_seq", "message_id", "publish_time", "ingestion_ts")
        refused = landed.join(written.select("landing_seq"), "landing_seq", "left_anti")
        return written.unionByName(refused.withColumn("is_refused", F.lit(True)), allowMissingColumns=True)

    def _move_to_new_columns(self, messages: DataFrame, plan: FlattenPlan, decided: Sorted) -> FlattenPlan:
        """Write those rows again whose fields had no column yet. Until then these are in the overflow."""
        rows = self.spark.read.table(self.draft.spark_name).where(self.part.condition)
        late = rows.where(F.col(OVERFLOW_COLUMN).isNotNull()).select("landing_seq", F.lit("late").alias("decision"))
        moved = Sorted.many(late, "decision").picked("late")
        again = moved.among(messages)
        firsts = decided.picked(Fate.DUPLICATE).left_out_of(again)
        grown = plan.extended(new_paths(firsts.transform(self._read, plan), plan))
        if grown != plan:
            self._add_columns(grown)
            self.draft.delete_rows(self.spark, moved)
            self.draft.append(again.transform(self._read, grown).transform(flat_rows, grown, self.draft.columns), {})
        return grown

    def _foreseen(self, messages: DataFrame, plan: FlattenPlan) -> FlattenPlan:
        """The plan with the fields of a new topic's first messages, most of all it has: known ones are read faster."""
        if not self.part.is_whole:
            return plan
        first = messages.where(F.col("landing_seq") <= SMALL).transform(self._read, plan)
        copies = Sorted.few(fates(first.transform(narrow), None, None), "fate").picked(Fate.DUPLICATE)
        return plan.extended(new_paths(copies.left_out_of(first), plan))

    def _facts(self, read: DataFrame) -> _Facts:
        """One look at the messages of a small build, which also caches them."""
        has_new_paths = F.col("new_paths").isNotNull().alias("drifted")
        rows = read.select(has_new_paths, "ingestion_ts", "message_id", RECORD_KEY).collect()
        return _Facts(
            messages=len(rows),
            drifted=any(row.drifted for row in rows),
            last_ingestion_ts=max((row.ingestion_ts for row in rows), default=None),
            ids=list({row.message_id for row in rows}),
            keys=list({row[RECORD_KEY] for row in rows}),
        )

    def _copies(self, raw: DataFrame, ids: Sequence[str] | None = None) -> DataFrame | None:
        """Where the messages may have landed before."""
        if self.part.is_whole:
            return None
        others = raw.where(self.part.outside)
        return (others if ids is None else others.where(F.col("message_id").isin(ids))).select(
            "landing_seq", "message_id"
        )

    def _held(self, keys: Sequence[str] | None = None) -> DataFrame | None:
        """The versions that the table holds of the messages' records, but those of days that are made anew."""
        if self.part.is_whole:
            return None
        rows = self._table(Layer.STANDARDIZED, str(self.draft.base.snapshot_id))
        if self.part.days:
            rows = rows.where(F.expr(f"NOT ({self.part.on_days})"))
        return (rows if keys is None else rows.where(F.col("idempotency_key").isin(keys))).select(
            "landing_seq", "message_id", F.col("idempotency_key").alias("key"), "publish_time", "ingestion_ts"
        )

    def _add_columns(self, grown: FlattenPlan) -> None:
        """Evolve: a column for each new field, logged before it is there."""
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

    def _make_room(self) -> None:
        """Delete what is made anew."""
        if self.part.is_whole and not self.draft.is_of_nothing:
            self.draft.delete(self.spark, "true")
        elif self.part.days:
            self.draft.delete(self.spark, self.part.on_days)

    def _read(self, messages: DataFrame, plan: FlattenPlan) -> DataFrame:
        return messages.transform(read_payloads, plan).transform(map_envelope, plan)

    def _table(self, layer: Layer, snapshot_id: str) -> DataFrame:
        return self.spark.read.option("versionAsOf", snapshot_id).table(spark_table(layer, self.topic))
