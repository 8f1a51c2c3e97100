"""The Spark job that builds Standardized of some topics: workers read their files, and write them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from itertools import chain

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from leanops.batch import blame
from leanops.batch.layer import LayerJob, without
from leanops.batch.scan import Scan, Task, read_tables, together, work_where_read
from leanops.batch.topics import Outcome
from leanops.batch.write import write_rows
from leanops.checkpointed import checkpointed
from leanops.commits import replace_rows, replaced_text
from leanops.key_index.upkeep import IndexJob, write_index
from leanops.names import Layer, spark_table
from leanops.ops.drift_log import log_drift
from leanops.slices import Slice
from leanops.standardized.built import StandardizedBuild
from leanops.standardized.flatten_plan import FlattenPlan
from leanops.standardized.planned import PlannedStandardized
from leanops.standardized.table import mapping_of
from leanops.standardized.transform import (
    CANDIDATE,
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
    horizons_of,
    in_landing_order,
    new_fields,
    parse_errors,
    payload_reader,
    read_payloads,
    read_with_past,
    with_fates,
)
from leanops.standardized.worker import FOREIGN, Report
from leanops.table_files import file_day
from leanops.tables import foreign_rows

_SAMPLE = 5_000
"""The first messages of a new topic: most of its fields are among theirs."""

_MANY_MESSAGES = 50_000
"""Of so many messages it takes longer to read fields that no plan knows than to look at the first ones twice."""

_MANY_DAYS = 8
"""Messages of more days are sorted by day before they are written: each worker would write a file for each day."""


class StandardizedJob(LayerJob[PlannedStandardized, Report, StandardizedBuild]):
    """The builds of some topics, in the order of the spec's steps."""

    def decide(self, spark: SparkSession, planned: Sequence[PlannedStandardized]) -> dict[str, Outcome[Report]]:
        is_large = planned[0].is_large
        plans = {each.topic: _foreseen(spark, each) if _has_many(each) else each.plan for each in planned}
        rows = _with_fates(spark, planned, plans, is_large)
        if is_large and len({file_day(task.file) for task in planned[0].rows.files}) > _MANY_DAYS:
            rows = rows.repartition(F.to_date("publish_time"))
        writers = {each.topic: each.writer(plans[each.topic]) for each in planned}
        found, back = write_rows(rows, writers, REFUSED, is_large)
        reports = {topic: reduce(Report.and_also, shares, Report()) for topic, shares in found.items()}
        if is_large:
            reports = {each.topic: _with_late(each, plans[each.topic], reports[each.topic], back) for each in planned}
            reports = {each.topic: _with_index(spark, each, reports[each.topic]) for each in planned}
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
        snapshot, days = planned.publish(written, report.new_fields)
        return StandardizedBuild.of(planned, snapshot, report, days)


def _read(spark: SparkSession, messages: Sequence[Scan], plans: Mapping[str, FlattenPlan]) -> DataFrame:
    return read_tables(spark, messages, MESSAGE, payload_reader(plans), READ)


def _horizons(planned: Sequence[PlannedStandardized]) -> dict[str, int]:
    return horizons_of({each.topic: each.build.contract for each in planned})


def _has_many(planned: PlannedStandardized) -> bool:
    return planned.is_large or planned.row_count > _MANY_MESSAGES


def _foreseen(spark: SparkSession, planned: PlannedStandardized) -> FlattenPlan:
    """The plan with the fields of a new topic's first messages, most of all it has: known ones are read faster."""
    if not planned.part.is_whole:
        return planned.plan
    first = _read(spark, [planned.messages(Slice(0, min(_SAMPLE, planned.part.upto)))], {planned.topic: planned.plan})
    decided = first.transform(_as_candidates).transform(candidates).transform(with_fates, _horizons([planned]))
    counted = decided.where(F.coalesce("fate", F.lit("")) != Fate.DUPLICATE)
    return planned.plan.extended(new_fields(counted))


def _with_late(planned: PlannedStandardized, plan: FlattenPlan, report: Report, back: DataFrame) -> Report:
    """What becomes of a large topic when those messages are written, too, whose fields had no column yet."""
    if not report.late or report.foreign:
        return report
    grown = plan.extended(in_landing_order(report.late))
    again = read_payloads(back.where(F.col("error_kind").isNull()), {planned.topic: grown})
    again = again.transform(_as_candidates).withColumn("fate", F.lit(None).cast("string"))
    found, _ = write_rows(again, {planned.topic: planned.writer(grown)}, REFUSED, is_large=True)
    late = reduce(Report.and_also, found[planned.topic], Report())
    assert not late.late, "a plan that has grown knows all fields that it has room for"
    return replace(report, late={}).and_also(replace(late, messages=0))


def _with_index(spark: SparkSession, planned: PlannedStandardized, report: Report) -> Report:
    """What becomes of a large topic, with the key index of all that was written by its workers."""
    update = planned.index_update
    if update is None or report.foreign:
        return report
    job = IndexJob.of(planned.topic, planned.source, planned.draft.table, update, planned.rows)
    job = replace(job, rows=replace(job.rows, uncommitted=report.written.added), gone=report.written.gone)
    return replace(report, written=replace(report.written, index=write_index(spark, job)))


def _with_fates(
    spark: SparkSession, planned: Sequence[PlannedStandardized], plans: Mapping[str, FlattenPlan], is_large: bool
) -> DataFrame:
    """All that workers have to know, topic by topic: every message with its fate, and the rows that are replaced.

    A worker that reads the messages of a topic looks up itself what they meet. Only for what is large, or days that are
    made anew, is all of the past read, beside the messages.
    """
    anew = [each for each in planned if not each.is_looked_up]
    looked_up = [each for each in planned if each.is_looked_up]
    parts = []
    if looked_up:
        parts.append(_read_with_past(spark, looked_up, plans).transform(candidates))
    foreign = None
    if anew:
        rows, foreign = _beside_past(spark, anew, plans)
        parts.append(rows.transform(candidates))
    rows = reduce(DataFrame.unionByName, parts)
    rows = rows if is_large else together(rows, [scan for each in anew for scan in each.standing])
    decided = rows.transform(with_fates, _horizons(planned))
    if foreign is None:
        return decided
    return decided.unionByName(foreign.withColumn("fate", F.lit(FOREIGN)), allowMissingColumns=True)


def _read_with_past(
    spark: SparkSession, planned: Sequence[PlannedStandardized], plans: Mapping[str, FlattenPlan]
) -> DataFrame:
    scans = [scan for each in planned for scan in (each.rows, *each.standing)]
    read, seconds = payload_reader({each.topic: plans[each.topic] for each in planned}), blame.TOPIC_SECONDS

    def work(tasks: Sequence[Task]) -> Iterator[pa.RecordBatch]:
        return chain.from_iterable(read_with_past(task, read, seconds) for task in tasks)

    return work_where_read(spark, scans, work, CANDIDATE, by_topic=True)


def _beside_past(
    spark: SparkSession, planned: Sequence[PlannedStandardized], plans: Mapping[str, FlattenPlan]
) -> tuple[DataFrame, DataFrame | None]:
    """Messages, and all that has landed or stands beside them; and rows of days made anew that RAW does not have so."""
    read = _read(spark, [each.rows for each in planned], plans)
    scans = [scan for each in planned for scan in each.standing]
    standing = read_tables(spark, scans, STANDING) if scans else spark.createDataFrame([], STANDING)
    rebuilt = [each.topic for each in planned if each.part.days]
    foreign = None
    if rebuilt and scans:
        # Both are asked for twice.
        read, standing = checkpointed(read), checkpointed(standing)
        foreign = _foreign(read, standing).where(F.col("topic").isin(rebuilt))
    return read.transform(_as_candidates).unionByName(standing, allowMissingColumns=True), foreign


def _as_candidates(read: DataFrame) -> DataFrame:
    """Messages that were read, with the columns of what their fates depend on."""
    nothing = {each.name: F.lit(None).cast(each.dataType) for each in CANDIDATE if each.name not in READ.names}
    return read.withColumns({**nothing, "role": F.lit(NEW)})


def _foreign(read: DataFrame, standing: DataFrame) -> DataFrame:
    """Days are made anew among rows that RAW has just so. What others have displaced may lie on any day."""
    place, is_copy = ["topic", "landing_seq", *VERSION], F.col("role") == COPY
    landed = read.select(*place).unionByName(standing.where(is_copy).select(*place))
    mine, held = read.select("topic", "landing_seq", RECORD_KEY), standing.where(~is_copy)
    is_other = (F.col("idempotency_key") != F.col(RECORD_KEY)) | F.col("idempotency_key").isNull()
    names = ("topic", "message_id")
    moved = held.join(landed, place, "left_anti").select(*names)
    return moved.unionByName(held.join(mine, ["topic", "landing_seq"]).where(is_other).select(*names))
