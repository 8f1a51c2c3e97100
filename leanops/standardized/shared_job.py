"""One Spark job that builds Standardized of many small topics: workers read their files, and write them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from pyiceberg.catalog import Catalog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from leanops.batch.isolation import Jobs
from leanops.batch.scan import ON_DAYS, read_tables
from leanops.batch.topics import Outcome, each_topic
from leanops.batch.write import by_topic
from leanops.checkpointed import checkpointed
from leanops.commits import replace_rows, replaced_text
from leanops.names import Layer, spark_table
from leanops.ops.drift_log import log_drift
from leanops.slices import sized
from leanops.standardized.built import StandardizedBuild
from leanops.standardized.planned import COPY, HELD, Planned
from leanops.standardized.table import mapping_of
from leanops.standardized.transform import (
    MESSAGE,
    READ,
    RECORD_KEY,
    STANDING,
    VERSION,
    Fate,
    fates,
    new_fields,
    parse_errors,
    payload_reader,
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
        # Apart from what led to them: each question that they are part of would plan all of it again.
        read = checkpointed(read_tables(spark, [each.messages for each in planned], MESSAGE, reader, READ))
        standing = self._standing(spark, planned)
        decided = checkpointed(fates(read, standing.get(COPY), standing.get(HELD)))
        rows = _to_write(read, decided, self._foreign(planned, read, standing))
        reports: dict[str, Outcome[Report]] = {topic: Report() for topic in topics}
        reports |= by_topic(rows, {each.topic: each.writer() for each in planned})
        return reports | self._write_parse_errors(reports, read, decided)

    def _standing(self, spark: SparkSession, planned: Sequence[Planned]) -> dict[str, DataFrame]:
        scans = [scan for each in planned for scan in each.standing if scan.files]
        if not scans:
            return {}
        copies = read_tables(spark, [scan for scan in scans if scan.role == COPY], STANDING)
        held = read_tables(spark, [scan for scan in scans if scan.role == HELD], STANDING)
        return {COPY: copies, HELD: held.where(F.col("role") == HELD), ON_DAYS: held.where(F.col("role") == ON_DAYS)}

    def _foreign(
        self, planned: Sequence[Planned], read: DataFrame, standing: Mapping[str, DataFrame]
    ) -> DataFrame | None:
        """Days are made anew among rows that RAW has just so. What others have displaced may lie on any day."""
        topics = [each.topic for each in planned if each.part.days]
        if not topics or not standing:
            return None
        held = standing[HELD].unionByName(standing[ON_DAYS]).where(F.col("topic").isin(topics))
        place = ["topic", "landing_seq", *VERSION]
        landed = read.select(*place).unionByName(standing[COPY].select(*place))
        mine = read.select("topic", "landing_seq", RECORD_KEY)
        is_other = (F.col("idempotency_key") != F.col(RECORD_KEY)) | F.col("idempotency_key").isNull()
        names = ("topic", "message_id")
        moved = held.join(landed, place, "left_anti").select(*names)
        return moved.unionByName(held.join(mine, ["topic", "landing_seq"]).where(is_other).select(*names))

    def _write_parse_errors(
        self, reports: Mapping[str, Outcome[Report]], read: DataFrame, decided: DataFrame
    ) -> dict[str, Outcome[Report]]:
        """Put these builds' parse errors in the place of those that earlier ones have left for the same messages.

        A build that could not be begun writes none.
        """
        refused = {
            topic for topic, each in reports.items() if isinstance(each, Report) and each.fates[Fate.PARSE_ERROR]
        }
        found = {topic for topic, each in reports.items() if isinstance(each, Report) and not each.foreign}
        again = {topic for topic in found if self.planned[topic].is_repeated}
        begun = each_topic([self.planned[topic] for topic in sorted(refused | again)], lambda each: each.draft.begin())
        failed: dict[str, Outcome[Report]] = {topic: each for topic, each in begun.items() if each is not None}
        is_refused = (F.col("fate") == Fate.PARSE_ERROR) & F.col("topic").isin(sorted(refused - {*failed}))
        rows = read.join(decided.where(is_refused).select("topic", "landing_seq"), ["topic", "landing_seq"])
        name = spark_table(Layer.PARSE_ERRORS, "")
        if again := again - {*failed}:
            own = (f"(topic_name = '{topic}' AND {self.planned[topic].part.place})" for topic in sorted(again))
            replace_rows(rows.transform(parse_errors), name, " OR ".join(own))
        elif refused - {*failed}:
            rows.transform(parse_errors).writeTo(name).append()
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


def _to_write(read: DataFrame, decided: DataFrame, foreign: DataFrame | None) -> DataFrame:
    """All that workers have to know, topic by topic: every message with its fate, what is replaced, the new fields."""
    own = decided.where(F.col("fate") != Fate.REPLACED).select("topic", "landing_seq", "fate")
    # Most messages are written: the fates of the others fit into the memory of every worker.
    messages = read.join(F.broadcast(own), ["topic", "landing_seq"], "left")
    is_first = F.coalesce(F.col("fate") != Fate.DUPLICATE, F.lit(True))
    is_written = F.col("fate").isNull()
    kept = {name: F.when(is_written, F.col(name)) for name in ("texts", "json_payload")}
    parts = [
        messages.withColumns(kept),
        decided.where(F.col("fate") == Fate.REPLACED),
        messages.where(is_first).transform(new_fields),
    ]
    if foreign is not None:
        parts.append(foreign.withColumn("fate", F.lit(FOREIGN)))
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), parts)
