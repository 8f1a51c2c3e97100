"""A Spark job that builds Standardized of one large topic: by Spark's own Iceberg reader and writer, on a branch.

All readable messages are written, and what is not to stay is taken out again: to keep a million messages until they are
decided costs as much as to write them, and few are taken out.
"""

from collections import Counter
from dataclasses import dataclass

from pyiceberg.catalog import Catalog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from leanops.checkpointed import checkpointed
from leanops.commits import MOST_NAMED, replace_rows, replaced_text
from leanops.inventory import days_changed
from leanops.names import OVERFLOW_COLUMN, Layer, spark_table
from leanops.observed import Observed
from leanops.ops.drift_log import log_drift
from leanops.slices import sized
from leanops.standardized.built import StandardizedBuild
from leanops.standardized.flatten_plan import FlattenPlan
from leanops.standardized.planned import Planned
from leanops.standardized.table import add_columns, mapping_of
from leanops.standardized.transform import (
    RECORD_KEY,
    VERSION,
    Fate,
    fates,
    flat_rows,
    new_fields,
    parse_errors,
    read_payloads,
)
from leanops.tables import foreign_rows

_SAMPLE = 5_000
"""The first messages of a new topic: most of its fields are among theirs."""


@dataclass(frozen=True)
class OwnJob:
    """One build, in the order of the spec's steps."""

    spark: SparkSession
    catalog: Catalog
    planned: Planned

    def build(self) -> StandardizedBuild:
        sized(self.spark, self.planned.rows)
        return self._build()

    def _build(self) -> StandardizedBuild:
        planned, part, draft = self.planned, self.planned.part, self.planned.draft
        draft.begin()
        raw = self._table(Layer.RAW, planned.checkpoint["raw-snapshot"])
        messages = raw.where(part.condition)
        foreseen = self._foreseen(messages, planned.plan)
        self._evolve(planned.plan, foreseen)
        if part.days:
            self._require_landed(raw)
        self._make_room()
        read = Observed(
            self._read(messages, foreseen), messages=F.count("*"), new=F.count("new_paths"), last=F.max("ingestion_ts")
        )
        readable = read.rows.where(F.col("error_kind").isNull())
        draft.append(readable.transform(flat_rows, foreseen, draft.columns), {})

        if part.days:
            self._require_same_keys()
        decided = checkpointed(fates(self._written(messages), self._copies(raw), self._held()))
        counts = Counter({row["fate"]: row["count"] for row in decided.groupBy("fate").count().collect()})
        refused = self._among(messages, decided.where(F.col("fate") == Fate.PARSE_ERROR))
        self._write_parse_errors(self._read(refused, foreseen), counts[Fate.PARSE_ERROR])
        grown = self._move_to_new_columns(messages, foreseen, decided) if read.facts["new"] else foreseen
        draft.delete_rows(self.spark, decided.where(F.col("fate") != Fate.PARSE_ERROR))
        planned.checkpoint["replaced"] = replaced_text(self._replaced(decided, counts[Fate.REPLACED]))
        planned.checkpoint["mapping"] = mapping_of(planned.build.contract, grown)
        snapshot = draft.publish(planned.checkpoint)
        days = days_changed(draft.table, draft.base_id, snapshot.snapshot_id)
        new = grown.columns[len(planned.plan.columns) :]
        return StandardizedBuild.of(planned, snapshot, read.facts["messages"], read.facts["last"], counts, new, days)

    def _read(self, messages: DataFrame, plan: FlattenPlan) -> DataFrame:
        return read_payloads(messages, {self.planned.topic: plan})

    def _written(self, messages: DataFrame) -> DataFrame:
        """What the fates of all messages depend on. Those that the draft does not hold were refused."""
        rows = self.spark.read.table(self.planned.draft.spark_name).where(self.planned.part.condition)
        written = rows.select("landing_seq", F.col("idempotency_key").alias(RECORD_KEY), F.lit(True).alias("is_read"))
        landed = messages.select("topic", "landing_seq", *VERSION).join(written, "landing_seq", "left")
        return landed.withColumn("error_kind", F.when(F.col("is_read").isNull(), "refused"))

    def _move_to_new_columns(self, messages: DataFrame, plan: FlattenPlan, decided: DataFrame) -> FlattenPlan:
        """Write those rows again whose fields had no column yet. Until then these are in the overflow."""
        draft = self.planned.draft
        rows = self.spark.read.table(draft.spark_name).where(self.planned.part.condition)
        late = checkpointed(rows.where(F.col(OVERFLOW_COLUMN).isNotNull()).select("landing_seq"))
        again = self._among(messages, late)
        firsts = again.join(decided.where(F.col("fate") == Fate.DUPLICATE), "landing_seq", "left_anti")
        grown = self._extended(plan, self._read(firsts, plan))
        if grown != plan:
            self._evolve(plan, grown)
            draft.delete_rows(self.spark, late)
            draft.append(self._read(again, grown).transform(flat_rows, grown, draft.columns), {})
        return grown

    def _foreseen(self, messages: DataFrame, plan: FlattenPlan) -> FlattenPlan:
        """The plan with the fields of a new topic's first messages, most of all it has: known ones are read faster."""
        if not self.planned.part.is_whole:
            return plan
        first = self._read(messages.where(F.col("landing_seq") <= _SAMPLE), plan)
        copies = fates(first, None, None).where(F.col("fate") == Fate.DUPLICATE)
        return self._extended(plan, first.join(copies, "landing_seq", "left_anti"))

    def _extended(self, plan: FlattenPlan, read: DataFrame) -> FlattenPlan:
        return plan.extended(new_fields(read))

    def _evolve(self, plan: FlattenPlan, grown: FlattenPlan) -> None:
        """A column for each new field, logged before it is there."""
        if grown != plan:
            log_drift(self.catalog, {self.planned.topic: grown.columns[len(plan.columns) :]})
            add_columns(self.planned.draft.table, grown.columns)

    def _copies(self, raw: DataFrame) -> DataFrame | None:
        """Where the messages may have landed before."""
        return None if self.planned.part.is_whole else raw.where(self.planned.part.outside)

    def _held(self) -> DataFrame | None:
        """The versions that the table holds of any records, but those of days that are made anew."""
        part = self.planned.part
        if part.is_whole:
            return None
        rows = self._base().withColumn("file", F.lit(None).cast("string"))
        return rows.where(F.expr(f"NOT ({part.on_days})")) if part.days else rows

    def _replaced(self, decided: DataFrame, count: int) -> list[int] | None:
        """The rows that later versions have replaced; None where there are too many to be named."""
        if count > MOST_NAMED:
            return None
        return [row.landing_seq for row in decided.where(F.col("fate") == Fate.REPLACED).collect()]

    def _write_parse_errors(self, refused: DataFrame, count: int) -> None:
        """Put this build's parse errors in the place of those that an earlier one has left for the same messages."""
        planned, name = self.planned, spark_table(Layer.PARSE_ERRORS, "")
        where = f"topic_name = '{planned.topic}' AND {planned.part.place}"
        if planned.is_repeated:
            replace_rows(refused.transform(parse_errors), name, where)
        elif count:
            refused.transform(parse_errors).writeTo(name).append()

    def _require_landed(self, raw: DataFrame) -> None:
        """Days are made anew among rows that RAW has just so. What others have displaced may lie on any day."""
        held = self._base().select("landing_seq", *VERSION)
        self._require_none(held.join(raw, ["landing_seq", *VERSION], "left_anti"))

    def _require_same_keys(self) -> None:
        """The same of the records that rows of these days have stood for."""
        keyed, part = ["landing_seq", "idempotency_key"], self.planned.part
        written = self.spark.read.table(self.planned.draft.spark_name).where(part.condition)
        held = self._base().where(part.on_days).select("message_id", *keyed)
        self._require_none(held.join(written.select(*keyed), keyed, "left_anti"))

    def _require_none(self, foreign: DataFrame) -> None:
        for row in foreign.take(1):
            raise foreign_rows(self.planned.draft.table, row["message_id"])

    def _make_room(self) -> None:
        """Delete what is made anew."""
        draft, part = self.planned.draft, self.planned.part
        if part.is_whole and not draft.is_of_nothing:
            draft.delete(self.spark, "true")
        elif part.days:
            draft.delete(self.spark, part.on_days)

    def _base(self) -> DataFrame:
        return self._table(Layer.STANDARDIZED, str(self.planned.draft.base_id))

    def _among(self, messages: DataFrame, wanted: DataFrame) -> DataFrame:
        return messages.join(wanted.select("landing_seq"), "landing_seq", "left_semi")

    def _table(self, layer: Layer, snapshot_id: str) -> DataFrame:
        rows = self.spark.read.option("versionAsOf", snapshot_id).table(spark_table(layer, self.planned.topic))
        return rows.withColumn("topic", F.lit(self.planned.topic))
