"""One Spark job that builds Standardized of many small topics: workers read their files, and write them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pyiceberg.catalog import Catalog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from leanops.batch.isolation import Jobs
from leanops.batch.scan import read_tables, together
from leanops.batch.topics import Outcome, each_topic
from leanops.batch.write import by_topic
from leanops.checkpointed import checkpointed
from leanops.commits import replace_rows, replaced_text
from leanops.names import Layer, spark_table
from leanops.ops.drift_log import log_drift
from leanops.slices import sized
from leanops.standardized.built import StandardizedBuild
from leanops.standardized.planned import Planned
from leanops.standardized.table import mapping_of
from leanops.standardized.transform import (
    COPY,
    HELD,
    MESSAGE,
    READ,
    RECORD_KEY,
    REFUSED,
    STANDING,
    VERSION,
    Fate,
    candidates,
    parse_errors,
    payload_reader,
    with_fates,
)
from leanops.standardized.worker import FOREIGN, Report
from leanops.table_files import file_day
from leanops.tables import foreign_rows


@dataclass(frozen=True)
class SharedJob:
    """The builds of some topics, in the order of the spec's steps."""

    jobs: Jobs
    catalog: Catalog
    planned: Mapping[str, Planned]

    def build(self) -> dict[str, Outcome[StandardizedBuild]]:
        spark = self.jobs.sessions()
        sized(spark, sum(each.rows for each in self.planned.values()))
        found = self.jobs.isolated([*self.planned], lambda topics: self._decide(spark, topics))
        done: dict[str, Outcome[StandardizedBuild]] = {
            topic: each for topic, each in found.items() if isinstance(each, Exception)
        }
        reports = {topic: each for topic, each in found.items() if isinstance(each, Report)}
        grown = {topic: each.new_columns for topic, each in reports.items() if each.new_columns}
        log_drift(self.catalog, grown)
        todo = [self.planned[topic] for topic in reports]
        return done | each_topic(todo, lambda each: self._commit(each, reports[each.topic]))

    def _decide(self, spark: SparkSession, topics: Sequence[str]) -> dict[str, Outcome[Report]]:
        """Decide about all messages, write the files of Standardized, and commit the parse errors."""
        planned = [self.planned[topic] for topic in topics]
        reader = payload_reader({each.topic: each.plan for each in planned})
        read = read_tables(spark, [each.messages for each in planned], MESSAGE, reader, READ)
        rows = _with_fates(read, planned)
        found, refused = by_topic(rows, {each.topic: each.writer() for each in planned}, REFUSED)
        reports = {topic: found.get(topic, Report()) for topic in topics}
        return reports | self._write_parse_errors(reports, refused)

    def _write_parse_errors(self, reports: Mapping[str, Report], rows: DataFrame) -> dict[str, Outcome[Report]]:
        """Put these builds' parse errors in the place of those that earlier ones have left for the same messages.

        A build that could not be begun writes none.
        """
        refused = {topic for topic, each in reports.items() if each.fates[Fate.PARSE_ERROR]}
        again = {topic for topic, each in reports.items() if self.planned[topic].is_repeated and not each.foreign}
        begun = each_topic([self.planned[topic] for topic in sorted(refused | again)], lambda each: each.draft.begin())
        failed: dict[str, Outcome[Report]] = {topic: each for topic, each in begun.items() if each is not None}
        own = rows.where(~F.col("topic").isin(sorted(failed))) if failed else rows
        name = spark_table(Layer.PARSE_ERRORS, "")
        if again := again - {*failed}:
            places = (f"(topic_name = '{topic}' AND {self.planned[topic].part.place})" for topic in sorted(again))
            replace_rows(own.transform(parse_errors), name, " OR ".join(places))
        elif refused - {*failed}:
            own.transform(parse_errors).writeTo(name).append()
        return failed

    def _commit(self, planned: Planned, report: Report) -> StandardizedBuild:
        if report.foreign:
            raise foreign_rows(planned.draft.table, report.foreign)
        plan, written = planned.plan, report.written
        grown = replace(plan, columns=(*plan.columns, *report.new_columns))
        planned.checkpoint["mapping"] = mapping_of(planned.build.contract, grown)
        planned.checkpoint["replaced"] = replaced_text(written.gone)
        dropped = [*planned.dropped, *planned.held.files_called(written.rewritten)]
        snapshot = planned.draft.publish_files(
            self.jobs.sessions, written, dropped, report.new_fields, planned.checkpoint
        )
        days = frozenset(file_day(file) for file in (*dropped, *written.added))
        return StandardizedBuild.of(
            planned, snapshot, report.messages, report.last_ingestion_ts, report.fates, report.new_columns, days
        )


def _with_fates(read: DataFrame, planned: Sequence[Planned]) -> DataFrame:
    """All that workers have to know, topic by topic: every message with its fate, and the rows that are replaced."""
    standing = [scan for each in planned for scan in each.standing if scan.files]
    scans = {role: [scan for scan in standing if scan.role == role] for role in (COPY, HELD)}
    others = {role: read_tables(read.sparkSession, own, STANDING) for role, own in scans.items() if own}
    rebuilt = [each.topic for each in planned if each.part.days]
    if rebuilt and others:
        # Each is asked for twice.
        read, others = checkpointed(read), {role: checkpointed(each) for role, each in others.items()}
    copies, held = others.get(COPY), others.get(HELD)
    versions = held.where(F.col("role") == HELD) if held is not None else None
    rows = together(candidates(read, copies, versions), standing).transform(with_fates)
    if not rebuilt or held is None:
        return rows
    foreign = _foreign(held.where(F.col("topic").isin(rebuilt)), read, copies)
    return rows.unionByName(foreign.withColumn("fate", F.lit(FOREIGN)), allowMissingColumns=True)


def _foreign(held: DataFrame, read: DataFrame, copies: DataFrame | None) -> DataFrame:
    """Days are made anew among rows that RAW has just so. What others have displaced may lie on any day."""
    place = ["topic", "landing_seq", *VERSION]
    landed = read.select(*place)
    landed = landed if copies is None else landed.unionByName(copies.select(*place))
    mine = read.select("topic", "landing_seq", RECORD_KEY)
    is_other = (F.col("idempotency_key") != F.col(RECORD_KEY)) | F.col("idempotency_key").isNull()
    names = ("topic", "message_id")
    moved = held.join(landed, place, "left_anti").select(*names)
    return moved.unionByName(held.join(mine, ["topic", "landing_seq"]).where(is_other).select(*names))
