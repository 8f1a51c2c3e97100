"""One Spark job that builds Curated of many small topics: workers read their files, and write them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from leanops.batch.isolation import Jobs
from leanops.batch.scan import read_tables
from leanops.batch.topics import Outcome, each_topic
from leanops.batch.write import by_topic
from leanops.checkpointed import checkpointed
from leanops.curated.built import CuratedBuild
from leanops.curated.errors import error_changes, write_errors
from leanops.curated.planned import HELD, LOST, Planned
from leanops.curated.transform import ROW, validated
from leanops.curated.worker import Report
from leanops.inventory import days_changed
from leanops.slices import sized
from leanops.table_files import file_day

_HELD = ROW.__class__(
    [each for each in ROW.fields if each.name in ("topic", "idempotency_key", "landing_seq", "publish_time")]
)
_HELD = _HELD.add("role", "string").add("file", "string")


@dataclass(frozen=True)
class SharedJob:
    """The builds of some topics, in the order of the spec's steps."""

    jobs: Jobs
    planned: Mapping[str, Planned]

    def build(self) -> dict[str, Outcome[CuratedBuild]]:
        spark = self.jobs.sessions()
        sized(spark, sum(each.row_count for each in self.planned.values()))
        found = self.jobs.isolated([*self.planned], lambda topics: self._validate(spark, topics))
        done: dict[str, Outcome[CuratedBuild]] = {
            topic: each for topic, each in found.items() if isinstance(each, Exception)
        }
        reports = {topic: each for topic, each in found.items() if isinstance(each, Report)}
        todo = [self.planned[topic] for topic in reports]
        return done | each_topic(todo, lambda each: self._commit(each, reports[each.topic]))

    def _validate(self, spark: SparkSession, topics: Sequence[str]) -> dict[str, Outcome[Report]]:
        """Validate all rows, write the files of Curated, and commit the errors."""
        planned = [self.planned[topic] for topic in topics]
        source = read_tables(spark, [each.rows for each in planned], ROW)
        # Apart from what led to it: each question that it is part of would plan all casts and rules again.
        rows = checkpointed(validated(source, [each.binding for each in planned]))
        gone = _gone(spark, planned, rows)
        to_write = rows if gone is None else rows.unionByName(gone, allowMissingColumns=True)
        if gone is None:
            to_write = to_write.withColumn("file", F.lit(None).cast("string"))
        reports: dict[str, Outcome[Report]] = {topic: Report() for topic in topics}
        reports |= by_topic(to_write, {each.topic: each.writer() for each in planned})
        return reports | self._write_errors(spark, planned, reports, rows)

    def _write_errors(
        self, spark: SparkSession, planned: Sequence[Planned], reports: Mapping[str, Outcome[Report]], rows: DataFrame
    ) -> dict[str, Outcome[Report]]:
        """Change the errors, once it is certain that no other build has been faster. One that was writes none."""
        invalid = {topic for topic, each in reports.items() if isinstance(each, Report) and each.invalid}
        if not invalid and not any(each.lost is None or each.lost for each in planned):
            return {}
        changes = checkpointed(error_changes(spark, planned, rows))
        changed = changes.groupBy("topic_name", "is_there").count().collect()
        topics = sorted({row["topic_name"] for row in changed})
        begun = each_topic([self.planned[topic] for topic in topics], lambda each: each.draft.begin())
        failed: dict[str, Outcome[Report]] = {topic: each for topic, each in begun.items() if each is not None}
        if {*topics} - {*failed}:
            own = changes.where(~F.col("topic_name").isin([*failed])) if failed else changes
            write_errors(own, any(row["is_there"] for row in changed if row["topic_name"] not in failed))
        return failed

    def _commit(self, planned: Planned, report: Report) -> CuratedBuild:
        written = report.written
        dropped = [*planned.dropped, *planned.held.files_called(written.rewritten)]
        snapshot = planned.draft.publish_files(self.jobs.sessions, written, dropped, (), planned.checkpoint)
        own = frozenset(file_day(file) for file in (*dropped, *written.added))
        others = days_changed(planned.source, planned.since.snapshot, planned.source_snapshot)
        return CuratedBuild.of(
            planned,
            snapshot,
            own | others,
            rows=report.rows,
            invalid=report.invalid,
            updated=len(written.gone),
            last_ingestion_ts=report.last_ingestion_ts,
            errors_by_rule=report.errors_by_rule,
        )


def _gone(spark: SparkSession, planned: Sequence[Planned], rows: DataFrame) -> DataFrame | None:
    """The rows of the tables that give way: those that were lost, and those of records that are validated again."""
    scans = [each.held for each in planned if not each.part.is_whole and each.held.files]
    if not scans:
        return None
    held = read_tables(spark, scans, _HELD)
    again = held.where(F.col("role") == HELD).join(
        rows.select("topic", "idempotency_key"), ["topic", "idempotency_key"], "left_semi"
    )
    gone = held.where(F.col("role") == LOST).unionByName(again)
    return gone.select("topic", "landing_seq", "file")
