"""A build of many messages, in Spark: all readable ones are written, and what is not to stay is taken out again.

To keep a million messages until they are decided costs as much as to write them, and few are taken out.
"""

from dataclasses import dataclass

from pyiceberg.catalog import Catalog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from leanops.commits import Draft, replace_rows
from leanops.contracts.model import Contract
from leanops.names import OVERFLOW_COLUMN, Layer, spark_table
from leanops.observed import Observed
from leanops.picked import Sorted
from leanops.slices import SMALL, Slice
from leanops.standardized.built import StandardizedBuild, evolve
from leanops.standardized.flatten_plan import FlattenPlan
from leanops.standardized.table import mapping_of
from leanops.standardized.transform import (
    VERSION,
    Fate,
    fates,
    flat_rows,
    map_envelope,
    narrow,
    new_paths,
    parse_errors,
    read_payloads,
)
from leanops.tables import foreign_rows


@dataclass(frozen=True)
class ManyMessages:
    """One build, in the order of the spec's steps."""

    spark: SparkSession
    catalog: Catalog
    topic: str
    contract: Contract
    part: Slice
    draft: Draft

    def build(self, plan: FlattenPlan, checkpoint: dict[str, str]) -> StandardizedBuild:
        raw = self._table(Layer.RAW, checkpoint["raw-snapshot"])
        messages = raw.where(self.part.condition)
        foreseen = self._foreseen(messages, plan)
        if foreseen != plan:
            evolve(self.catalog, self.topic, self.draft.table, foreseen)
        if self.part.days:
            self._require_landed(raw)
        self._make_room()
        read = Observed(
            messages.transform(self._read, foreseen),
            messages=F.count("*"),
            new=F.count("new_paths"),
            last=F.max("ingestion_ts"),
        )
        readable = read.rows.where(F.col("error_kind").isNull())
        self.draft.append(readable.transform(flat_rows, foreseen, self.draft.columns), {})

        if self.part.days:
            self._require_same_keys()
        decided = Sorted.many(fates(self._written(messages), self._copies(raw), self._held()), "fate")
        refused = decided.picked(Fate.PARSE_ERROR).among(messages).transform(self._read, foreseen)
        self._write_parse_errors(refused, decided.counts[Fate.PARSE_ERROR])
        grown = self._move_to_new_columns(messages, foreseen, decided) if read.facts["new"] else foreseen
        checkpoint["replaced"] = decided.picked(Fate.REPLACED).text
        checkpoint["mapping"] = mapping_of(self.contract, grown)
        self.draft.delete_rows(self.spark, decided.picked(Fate.DUPLICATE, Fate.SUPERSEDED, Fate.REPLACED))
        snapshot = self.draft.publish(checkpoint)
        new_columns = tuple(column.name for column in grown.columns[len(plan.columns) :])
        facts = read.facts
        return StandardizedBuild.of(
            snapshot, checkpoint, self.part, facts["messages"], facts["last"], decided.counts, new_columns
        )

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
            evolve(self.catalog, self.topic, self.draft.table, grown)
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

    def _copies(self, raw: DataFrame) -> DataFrame | None:
        """Where the messages may have landed before."""
        if self.part.is_whole:
            return None
        return raw.where(self.part.outside).select("landing_seq", "message_id")

    def _held(self) -> DataFrame | None:
        """The versions that the table holds of any records, but those of days that are made anew."""
        if self.part.is_whole:
            return None
        rows = self._table(Layer.STANDARDIZED, str(self.draft.base_id))
        if self.part.days:
            rows = rows.where(F.expr(f"NOT ({self.part.on_days})"))
        return rows.select(
            "landing_seq", "message_id", F.col("idempotency_key").alias("key"), "publish_time", "ingestion_ts"
        )

    def _write_parse_errors(self, refused: DataFrame, count: int) -> None:
        """Put this build's parse errors in the place of those that an earlier one has left for the same messages."""
        table = spark_table(Layer.PARSE_ERRORS, self.topic)
        where = f"topic_name = '{self.topic}' AND {self.part.place}"
        if self.draft.is_second_try:
            self.spark.sql(f"DELETE FROM {table} WHERE {where}")  # noqa: S608 - our own words and numbers
        if count or self.part.days or (self.part.is_whole and not self.draft.is_of_nothing):
            replace_rows(refused.transform(parse_errors), table, F.expr(where))

    def _require_landed(self, raw: DataFrame) -> None:
        """Days are made anew among rows that RAW has just so. What others have displaced may lie on any day."""
        held = self._table(Layer.STANDARDIZED, str(self.draft.base_id)).select("landing_seq", *VERSION)
        self._require_none(held.join(raw, ["landing_seq", *VERSION], "left_anti"))

    def _require_same_keys(self) -> None:
        """The same of the records that rows of these days have stood for."""
        keyed = ["landing_seq", "idempotency_key"]
        held = self._table(Layer.STANDARDIZED, str(self.draft.base_id)).where(self.part.on_days)
        written = self.spark.read.table(self.draft.spark_name).where(self.part.condition)
        self._require_none(held.select("message_id", *keyed).join(written.select(*keyed), keyed, "left_anti"))

    def _require_none(self, foreign: DataFrame) -> None:
        for row in foreign.take(1):
            raise foreign_rows(self.draft.table, row["message_id"])

    def _make_room(self) -> None:
        """Delete what is made anew."""
        if self.part.is_whole and not self.draft.is_of_nothing:
            self.draft.delete(self.spark, "true")
        elif self.part.days:
            self.draft.delete(self.spark, self.part.on_days)

    def _read(self, messages: DataFrame, plan: FlattenPlan) -> DataFrame:
        return messages.transform(read_payloads, plan).transform(map_envelope)

    def _table(self, layer: Layer, snapshot_id: str) -> DataFrame:
        return self.spark.read.option("versionAsOf", snapshot_id).table(spark_table(layer, self.topic))
