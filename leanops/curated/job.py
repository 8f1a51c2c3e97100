"""The Spark job that builds Curated of some topics: workers read their files, validate the rows, and write them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from leanops.batch.layer import LayerJob, without
from leanops.batch.scan import read_tables
from leanops.batch.topics import Outcome
from leanops.batch.write import Target, write_rows, write_where_read
from leanops.checkpointed import checkpointed
from leanops.curated.built import CuratedBuild
from leanops.curated.errors import INVALID, error_changes, is_looked_at, write_errors
from leanops.curated.planned import PlannedCurated
from leanops.curated.worker import HELD, Report, RowEraser
from leanops.inventory import days_changed
from leanops.standardized.transform import STANDING


class CuratedJob(LayerJob[PlannedCurated, Report, CuratedBuild]):
    """The builds of some topics, in the order of the spec's steps."""

    def decide(self, spark: SparkSession, planned: Sequence[PlannedCurated]) -> dict[str, Outcome[Report]]:
        is_large = planned[0].is_large
        scans = [each.rows for each in planned]
        if not is_large:
            scans += [each.held for each in planned if each.is_held_looked_at]
        writers = {each.topic: each.writer() for each in planned}
        found, back = write_where_read(spark, scans, writers, INVALID, is_large)
        reports = {topic: reduce(Report.and_also, shares, Report()) for topic, shares in found.items()}
        if is_large and planned[0].is_held_looked_at:
            [topic] = reports
            reports[topic] = _with_gone(spark, planned[0], reports[topic])
        return {**reports, **self._write_errors(spark, planned, reports, back)}

    def _write_errors(
        self, spark: SparkSession, planned: Sequence[PlannedCurated], reports: Mapping[str, Report], rows: DataFrame
    ) -> dict[str, Exception]:
        """Change the errors, once it is certain that no other build has been faster."""
        changes = error_changes(spark, planned, rows)
        replaces = {topic: False for topic, each in reports.items() if each.invalid}
        if any(is_looked_at(each) for each in planned):
            changes = checkpointed(changes)
            found = changes.groupBy("topic_name").agg(F.max("is_there").alias("is_there")).collect()
            replaces = {row["topic_name"]: row["is_there"] for row in found}
        failed = self.begin(replaces)
        if own := {*replaces} - {*failed}:
            write_errors(without(failed, changes, "topic_name"), any(replaces[topic] for topic in own))
        return failed

    def commit(self, planned: PlannedCurated, report: Report) -> CuratedBuild:
        snapshot, days = planned.publish(report.written)
        days |= days_changed(planned.source, planned.since.snapshot, planned.source_snapshot)
        return CuratedBuild.of(planned, snapshot, report, days)


def _with_gone(spark: SparkSession, planned: PlannedCurated, report: Report) -> Report:
    """What rows of a large topic's table give way: what was lost, and other versions of the records that came in."""
    held = read_tables(spark, [planned.held], STANDING)
    if planned.lost is None:
        came_in = replace(planned.rows, columns=planned.held.columns)
        keys = read_tables(spark, [came_in], STANDING).select("idempotency_key")
        held = held.where(F.col("role") == HELD).join(keys, "idempotency_key", "left_semi")
    gone = held.where(F.col("landing_seq").isNotNull())
    eraser = {planned.topic: RowEraser(Target.of(planned.draft.table))}
    found, _ = write_rows(gone, eraser, INVALID, is_large=True)
    return reduce(Report.and_also, found[planned.topic], report)
