"""The Spark job that builds Standardized of some topics: workers read their files, and write them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from leanops.batch.layer import LayerJob, without
from leanops.batch.scan import Scan, read_tables, together
from leanops.batch.topics import Outcome
from leanops.batch.write import write_rows
from leanops.checkpointed import checkpointed
from leanops.commits import replace_rows, replaced_text
from leanops.names import Layer, spark_table
from leanops.ops.drift_log import log_drift
from leanops.slices import Slice
from leanops.standardized.built import StandardizedBuild
from leanops.standardized.flatten_plan import FlattenPlan
from leanops.standardized.planned import PlannedStandardized
from leanops.standardized.table import mapping_of
from leanops.standardized.transform import (
    COPY,
    MESSAGE,
    NEW,
    READ,
    RECORD_KEY,
    REFUSED,
    STANDING,
    VERSION,
    Fate,
    candidates,
    in_landing_order,
    new_fields,
    parse_errors,
    payload_reader,
    read_payloads,
    with_fates,
)
from leanops.standardized.worker import FOREIGN, Report
from leanops.table_files import file_day
from leanops.tables import foreign_rows

_SAMPLE = 5_000
"""The first messages of a new topic: most of its fields are among theirs."""

_MANY_DAYS = 8
"""Messages of more days are sorted by day before they are written: each worker would write a file for each day."""


class StandardizedJob(LayerJob[PlannedStandardized, Report, StandardizedBuild]):
    """The builds of some topics, in the order of the spec's steps."""

    def decide(self, spark: SparkSession, planned: Sequence[PlannedStandardized]) -> dict[str, Outcome[Report]]:
        is_large = planned[0].is_large
        plans = {each.topic: _foreseen(spark, each) if is_large else each.plan for each in planned}
        read = _read(spark, [each.rows for each in planned], plans)
        rows = _with_fates(read, planned, is_large)
        if is_large and len({file_day(task.file) for task in planned[0].rows.files}) > _MANY_DAYS:
            rows = rows.repartition(F.to_date("publish_time"))
        writers = {each.topic: each.writer(plans[each.topic]) for each in planned}
        found, back = write_rows(rows, writers, REFUSED, is_large)
        reports = {topic: reduce(Report.and_also, shares, Report()) for topic, shares in found.items()}
        if is_large:
            reports = {each.topic: _with_late(each, plans[each.topic], reports[each.topic], back) for each in planned}
        failed = self._write_parse_errors(reports, back.where(F.col("error_kind").isNotNull()))
        log_drift(self.catalog, {topic: new for topic, each in reports.items() if (new := each.new_columns)})
        return {**reports, **failed}

    def _write_parse_errors(self, reports: Mapping[str, Report], rows: DataFrame) -> dict[str, Exception]:
        """Put these builds' parse errors in the place of those that earlier ones have left for the same messages."""
        refused = {topic for topic, each in reports.items() if each.fates[Fate.PARSE_ERROR]}
        again = {topic for topic, each in reports.items() if self.planned[topic].is_repeated and not each.foreign}
        failed = self.begin(refused | again)
        own, name = without(failed, rows).transform(parse_errors), spark_table(Layer.PARSE_ERRORS, "")
        if again := again - {*failed}:
            places = (f"(topic_name = '{topic}' AND {self.planned[topic].part.place})" for topic in sorted(again))
            replace_rows(own, name, " OR ".join(places))
        elif refused - {*failed}:
            own.writeTo(name).append()
        return failed

    def commit(self, planned: PlannedStandardized, report: Report) -> StandardizedBuild:
        if report.foreign:
            raise foreign_rows(planned.draft.table, report.foreign)
        written, plan = report.written, report.plan or planned.plan
        planned.checkpoint["mapping"] = mapping_of(planned.build.contract, plan)
        planned.checkpoint["replaced"] = replaced_text(written.gone)
        snapshot, days = planned.publish(self.jobs.sessions, written, report.new_fields)
        return StandardizedBuild.of(planned, snapshot, report, days)


def _read(spark: SparkSession, messages: Sequence[Scan], plans: Mapping[str, FlattenPlan]) -> DataFrame:
    return read_tables(spark, messages, MESSAGE, payload_reader(plans), READ)


def _foreseen(spark: SparkSession, planned: PlannedStandardized) -> FlattenPlan:
    """The plan with the fields of a new topic's first messages, most of all it has: known ones are read faster."""
    if not planned.part.is_whole:
        return planned.plan
    first = _read(spark, [planned.messages(Slice(0, min(_SAMPLE, planned.part.upto)))], {planned.topic: planned.plan})
    decided = candidates(first, None).transform(with_fates)
    counted = decided.where(F.coalesce("fate", F.lit("")) != Fate.DUPLICATE)
    return planned.plan.extended(new_fields(counted))


def _with_late(planned: PlannedStandardized, plan: FlattenPlan, report: Report, back: DataFrame) -> Report:
    """What becomes of a large topic when those messages are written, too, whose fields had no column yet."""
    if not report.late or report.foreign:
        return report
    grown = plan.extended(in_landing_order(report.late))
    again = read_payloads(back.where(F.col("error_kind").isNull()), {planned.topic: grown})
    nothing = F.lit(None).cast("string")
    again = again.withColumns({"role": F.lit(NEW), "file": nothing, "fate": nothing})
    found, _ = write_rows(again, {planned.topic: planned.writer(grown)}, REFUSED, is_large=True)
    late = reduce(Report.and_also, found[planned.topic], Report())
    assert not late.late, "a plan that has grown knows all fields that it has room for"
    return replace(report, late={}).and_also(replace(late, messages=0))


def _with_fates(read: DataFrame, planned: Sequence[PlannedStandardized], is_large: bool) -> DataFrame:
    """All that workers have to know, topic by topic: every message with its fate, and the rows that are replaced."""
    scans = [scan for each in planned for scan in each.standing]
    standing = read_tables(read.sparkSession, scans, STANDING) if scans else None
    rebuilt = [each.topic for each in planned if each.part.days]
    if rebuilt and standing is not None:
        # Both are asked for twice.
        read, standing = checkpointed(read), checkpointed(standing)
    rows = candidates(read, standing)
    rows = (rows if is_large else together(rows, scans)).transform(with_fates)
    if not rebuilt or standing is None:
        return rows
    foreign = _foreign(read, standing).where(F.col("topic").isin(rebuilt))
    return rows.unionByName(foreign.withColumn("fate", F.lit(FOREIGN)), allowMissingColumns=True)


def _foreign(read: DataFrame, standing: DataFrame) -> DataFrame:
    """Days are made anew among rows that RAW has just so. What others have displaced may lie on any day."""
    place, is_copy = ["topic", "landing_seq", *VERSION], F.col("role") == COPY
    landed = read.select(*place).unionByName(standing.where(is_copy).select(*place))
    mine, held = read.select("topic", "landing_seq", RECORD_KEY), standing.where(~is_copy)
    is_other = (F.col("idempotency_key") != F.col(RECORD_KEY)) | F.col("idempotency_key").isNull()
    names = ("topic", "message_id")
    moved = held.join(landed, place, "left_anti").select(*names)
    return moved.unionByName(held.join(mine, ["topic", "landing_seq"]).where(is_other).select(*names))
