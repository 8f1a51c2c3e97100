"""One Spark job that builds Curated of many small topics: workers read their files, and write them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from leanops.batch.isolation import Jobs
from leanops.batch.scan import read_tables, together
from leanops.batch.topics import Outcome, each_topic
from leanops.batch.write import by_topic
from leanops.checkpointed import checkpointed
from leanops.curated.built import CuratedBuild
from leanops.curated.errors import error_changes, is_looked_at, write_errors
from leanops.curated.planned import HELD, LOST, Planned
from leanops.curated.table import KEY_COLUMNS
from leanops.curated.transform import BROKEN, BROKEN_RULES, IS_INVALID, ROW, validated
from leanops.curated.worker import Report
from leanops.inventory import days_changed
from leanops.slices import sized
from leanops.table_files import file_day

_HELD = StructType([ROW[name] for name in ("topic", "idempotency_key", "landing_seq", "publish_time")])
_HELD = _HELD.add("role", "string").add("file", "string")
_REFUSED = StructType([ROW[name] for name in KEY_COLUMNS])
_REFUSED = _REFUSED.add(BROKEN, BROKEN_RULES).add(IS_INVALID, "boolean").add("contract_version", "integer")


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
        rows = _with_gone(validated(source, [each.binding for each in planned]), planned)
        found, refused = by_topic(rows, {each.topic: each.writer() for each in planned}, _REFUSED)
        reports = {topic: found.get(topic, Report()) for topic in topics}
        return reports | self._write_errors(spark, planned, reports, refused)

    def _write_errors(
        self, spark: SparkSession, planned: Sequence[Planned], reports: Mapping[str, Report], rows: DataFrame
    ) -> dict[str, Outcome[Report]]:
        """Change the errors, once it is certain that no other build has been faster. One that was writes none."""
        changes = error_changes(spark, planned, rows)
        replaces = {topic: False for topic, each in reports.items() if each.invalid}
        if any(is_looked_at(each) for each in planned):
            changes = checkpointed(changes)
            found = changes.groupBy("topic_name").agg(F.max("is_there").alias("is_there")).collect()
            replaces = {row["topic_name"]: row["is_there"] for row in found}
        begun = each_topic([self.planned[topic] for topic in sorted(replaces)], lambda each: each.draft.begin())
        failed: dict[str, Outcome[Report]] = {topic: each for topic, each in begun.items() if each is not None}
        if own := {*replaces} - {*failed}:
            changes = changes.where(~F.col("topic_name").isin(sorted(failed))) if failed else changes
            write_errors(changes, any(replaces[topic] for topic in own))
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


def _with_gone(rows: DataFrame, planned: Sequence[Planned]) -> DataFrame:
    """Validated rows, and those of the tables that give way: what was lost, and other versions of the same records."""
    scans = [each.held for each in planned if not each.part.is_whole and each.held.files]
    if not scans:
        return together(rows.withColumn("file", F.lit(None).cast("string")), ())
    both = together(rows.unionByName(read_tables(rows.sparkSession, scans, _HELD), allowMissingColumns=True), scans)
    is_row, role = F.col("file").isNull(), F.col("role")
    is_gone = role == LOST
    if any(scan.role == HELD for scan in scans):
        is_again = F.max(is_row).over(Window.partitionBy("topic", "idempotency_key"))
        is_gone |= (role == HELD) & F.col("idempotency_key").isNotNull() & is_again
    return both.withColumn("is_gone", is_gone).where(is_row | F.col("is_gone")).drop("role", "is_gone")
