"""A build of many rows, in Spark."""

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from leanops.commits import Draft, replace_rows
from leanops.contracts.model import Contract
from leanops.curated.binding import BoundColumn
from leanops.curated.built import CuratedBuild
from leanops.curated.errors import close_errors, count_by_rule, has_errors, merge_errors, open_errors
from leanops.curated.transform import IS_BROKEN, broken, judged, kept
from leanops.names import Layer, spark_table
from leanops.observed import Observed
from leanops.picked import Picked, Sorted
from leanops.slices import Slice


@dataclass(frozen=True)
class ManyRows:
    """One build, in the order of the spec's steps."""

    spark: SparkSession
    topic: str
    contract: Contract
    bound: Sequence[BoundColumn]
    part: Slice
    lost: Picked | None
    draft: Draft

    def build(self, checkpoint: dict[str, str]) -> CuratedBuild:
        standardized = self._table(Layer.STANDARDIZED, checkpoint["standardized-snapshot"])
        rows = standardized.where(self.part.condition).transform(judged, self.contract, self.bound)
        healed = self._healed()
        updated = self._take_out(rows, healed)
        observed = Observed(
            rows, read=F.count("*"), broken=F.count_if(IS_BROKEN), last_ingestion_ts=F.max("ingestion_ts")
        )
        self.draft.append(observed.rows.transform(kept, self.contract, self.draft.columns), checkpoint)
        self.draft.require_not_overtaken()
        counted = observed.facts
        by_rule = self._write_errors(rows, healed, counted["broken"])
        snapshot = self.draft.publish(checkpoint)
        return CuratedBuild(
            is_new=True,
            snapshot_id=snapshot.snapshot_id,
            standardized_snapshot=int(checkpoint["standardized-snapshot"]),
            last_ingestion_ts=counted["last_ingestion_ts"],
            part=self.part,
            rows_read=counted["read"],
            written=counted["read"] - counted["broken"],
            updated=updated,
            broken=counted["broken"],
            errors_by_rule=by_rule,
        )

    def _healed(self) -> Picked:
        """The open errors of those rows that Standardized is known to have lost."""
        if self.lost is None or not self.lost.count:
            return Picked(0)
        healed = [row.landing_seq for row in self.lost.among(open_errors(self.spark, self.topic)).collect()]
        return Picked(len(healed), healed)

    def _take_out(self, rows: DataFrame, healed: Picked) -> int:
        """Delete what is made anew, and whatever is held of records of which there is a later version now."""
        if self.part.is_whole:
            if not self.draft.is_of_nothing:
                self.draft.delete(self.spark, "true")
            return 0
        # A row that was lost is held here, unless it was broken.
        gone = self._held_again(rows) if self.lost is None else self.lost.without(healed)
        self.draft.delete_rows(self.spark, gone)
        return gone.count

    def _held_again(self, rows: DataFrame) -> Picked:
        """What is held of the records that are judged now, on days that are not made anew as a whole."""
        held = self._table(Layer.CURATED, str(self.draft.base_id))
        if self.part.days:
            self.draft.delete(self.spark, self.part.on_days)
            held = held.where(F.expr(f"NOT ({self.part.on_days})"))
        again = held.join(rows.select("idempotency_key"), "idempotency_key", "left_semi")
        return Sorted.many(again.select("landing_seq", F.lit("held").alias("decision")), "decision").picked("held")

    def _write_errors(self, rows: DataFrame, healed: Picked, count: int) -> dict[str, int]:
        """Open the errors of the rows that are broken now, and close those of records that are not any more."""
        found = rows.transform(broken, self.topic, self.contract)
        if self.lost is None and has_errors(self.spark, self.topic):
            merge_errors(self.spark, self.topic, self.part, rows, found)
        else:
            close_errors(self.spark, self.topic, healed)
            if count:
                own = (F.col("topic_name") == self.topic) & self.part.condition
                replace_rows(found, spark_table(Layer.ERRORS, self.topic), own)
        return count_by_rule(open_errors(self.spark, self.topic).where(self.part.condition)) if count else {}

    def _table(self, layer: Layer, snapshot_id: str) -> DataFrame:
        return self.spark.read.option("versionAsOf", snapshot_id).table(spark_table(layer, self.topic))
