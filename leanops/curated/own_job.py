"""A Spark job that builds Curated of one large topic: by Spark's own Iceberg reader and writer, on a branch."""

from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from leanops.checkpointed import checkpointed
from leanops.curated.built import CuratedBuild
from leanops.curated.errors import error_changes, open_errors, write_errors
from leanops.curated.planned import Planned
from leanops.curated.transform import IS_INVALID, rows_of, valid_rows, validated
from leanops.inventory import days_changed
from leanops.names import Layer, spark_table
from leanops.observed import Observed
from leanops.slices import sized


@dataclass(frozen=True)
class OwnJob:
    """One build, in the order of the spec's steps."""

    spark: SparkSession
    planned: Planned

    def build(self) -> CuratedBuild:
        sized(self.spark, self.planned.row_count)
        return self._build()

    def _build(self) -> CuratedBuild:
        planned, draft, contract = self.planned, self.planned.draft, self.planned.build.contract
        draft.begin()
        rows = validated(self._rows(), [planned.binding])
        updated = self._take_out(rows)
        observed = Observed(
            rows, read=F.count("*"), invalid=F.count_if(IS_INVALID), last_ingestion_ts=F.max("ingestion_ts")
        )
        draft.append(observed.rows.transform(valid_rows, contract, draft.columns), planned.checkpoint)
        draft.require_not_overtaken()
        counted = observed.facts
        self._write_errors(rows, counted["invalid"])
        snapshot = draft.publish(planned.checkpoint)
        days = days_changed(draft.table, draft.base_id, snapshot.snapshot_id)
        days |= days_changed(planned.source, planned.since.snapshot, planned.source_snapshot)
        return CuratedBuild.of(
            planned,
            snapshot,
            days,
            rows=counted["read"],
            invalid=counted["invalid"],
            updated=updated,
            last_ingestion_ts=counted["last_ingestion_ts"],
            errors_by_rule=self._count_by_rule() if counted["invalid"] else {},
        )

    def _rows(self) -> DataFrame:
        planned = self.planned
        at = self.spark.read.option("versionAsOf", str(planned.source_snapshot))
        source = at.table(spark_table(Layer.STANDARDIZED, planned.topic)).where(planned.part.condition)
        return rows_of(source, planned.binding)

    def _take_out(self, rows: DataFrame) -> int:
        """Delete what is made anew, and whatever is held of records of which there is a later version now."""
        planned, draft = self.planned, self.planned.draft
        if planned.part.is_whole:
            if not draft.is_of_nothing:
                draft.delete(self.spark, "true")
            return 0
        held = self.spark.read.option("versionAsOf", str(draft.base_id)).table(
            spark_table(Layer.CURATED, planned.topic)
        )
        if planned.lost is not None:
            gone = held.where(F.col("landing_seq").isin(list(planned.lost)))
        else:
            if planned.part.days:
                draft.delete(self.spark, planned.part.on_days)
                held = held.where(F.expr(f"NOT ({planned.part.on_days})"))
            gone = held.join(rows.select("idempotency_key"), "idempotency_key", "left_semi")
        gone = checkpointed(gone.select("landing_seq"))
        if count := gone.count():
            draft.delete_rows(self.spark, gone)
        return count

    def _write_errors(self, rows: DataFrame, invalid: int) -> None:
        """Open the errors of the rows that are invalid now, and close those of records that are not any more."""
        if not invalid and self.planned.lost == []:
            return
        changes = checkpointed(error_changes(self.spark, [self.planned], rows))
        if found := {row["is_there"] for row in changes.select("is_there").distinct().collect()}:
            write_errors(changes, True in found)

    def _count_by_rule(self) -> dict[str, int]:
        """How often each rule of each column is broken."""
        errors = open_errors(self.spark, [self.planned.topic]).where(self.planned.part.condition)
        found = errors.select(F.inline("broken_rules")).groupBy("column", "rule").count()
        return {f"{row['column']}: {row['rule']}": row["count"] for row in sorted(found.collect())}
