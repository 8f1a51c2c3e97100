"""The Spark job that looks at all rows of some topics: only counts, and the first rows that are wrong, come here.

It asks where every row stands, counted by topic, layer and day, why those messages stand nowhere that do, and which
records have more than one row; and for names only where something is wrong.
"""

import pickle
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from leanops.batch import blame
from leanops.batch.isolation import Jobs
from leanops.batch.scan import Scan, Task, read_table, work_where_read
from leanops.batch.topics import Outcome
from leanops.checkpointed import checkpointed
from leanops.ledger.account import SHOWN
from leanops.ledger.planned import CAME_IN, HELD, KEPT, REFUSED, PlannedLedger, in_place
from leanops.ledger.rows import (
    DAY,
    LANDED,
    LEDGER,
    LOST,
    PLACED,
    PLACES,
    fates_of_unwritten,
    first_of_each_day,
    is_finding,
    is_to_explain,
    marked_if_unwritten,
    missing_elements,
    names_of,
    rows_sharing,
    shared_keys,
    standing,
    standing_in,
    standing_of_shares,
    told_apart,
    with_ids_of,
    with_keys_of,
)
from leanops.ledger.shares import rows_of_shares
from leanops.ledger.tally import Tally
from leanops.ledger.worker import rows_of_ledgers
from leanops.names import ERRORS, Layer, spark_table, table
from leanops.slices import sized
from leanops.standardized.table import key_plan
from leanops.standardized.transform import MESSAGE, RECORD_KEY, horizons_of
from leanops.tables import find_table

_MOST_SENT = 1_000_000
"""So many rows fit into the memory of every worker."""

_MISSING = "transform(filter(broken_rules, each -> each.rule = 'cde'), each -> each.column)"
"""The Critical Data Elements that an invalid row lacks."""

Tallies = dict[tuple[str, Layer], Tally]


@dataclass(frozen=True)
class LedgerJob:
    """The ledgers of some topics, each with one or more of its layers."""

    jobs: Jobs
    catalog: Catalog
    planned: Mapping[str, Sequence[PlannedLedger]]
    is_large: bool

    def tally(self) -> dict[str, Outcome[list[Tally]]]:
        """What was found out about the rows of each topic."""
        spark = self.jobs.sessions()
        files = _files(each for own in self.planned.values() for each in own)
        sized(spark, sum(file.record_count for file in files))
        return self.jobs.isolated([*self.planned], lambda topics: self._questions(spark, topics).ask())

    def _questions(self, spark: SparkSession, topics: Sequence[str]) -> "_Questions":
        planned = [each for topic in topics for each in self.planned[topic]]
        return _Questions(spark, self.catalog, planned, self.is_large)


@dataclass(frozen=True)
class _Questions:
    """All that Spark is asked about some topics."""

    spark: SparkSession
    catalog: Catalog
    planned: Sequence[PlannedLedger]
    is_large: bool
    """Whether they are of one topic that is large."""

    def ask(self) -> dict[str, Outcome[list[Tally]]]:
        """What was found out about each topic, in the order in which one answer leads to the next question."""
        tallies = {(each.topic, each.layer): Tally(each) for each in self.planned}
        rows = self._rows(self.planned)
        if self.is_large:
            # They are read again for each question.
            stood = checkpointed(rows_of_shares(self.spark, self.planned, [*self._refused(self.planned)]))
            stand, fates = standing_of_shares(stood), self._fates_of_large(stood, rows)
        else:
            rows = checkpointed(rows.repartition("topic"))
            stand = rows.transform(standing)
            fates = self._fates(stand, rows)
        is_sharing = self._count(tallies, stand, rows, fates)
        if findings := [*self._odd(tallies, stand, rows), *_lost(tallies, fates)]:
            self._name(tallies, reduce(DataFrame.unionByName, findings))
        if is_sharing:
            self._name_sharing(tallies, rows)
        found: dict[str, Outcome[list[Tally]]] = {}
        for topic in dict.fromkeys(each.topic for each in self.planned):
            found[topic] = [each for each in tallies.values() if each.planned.topic == topic]
        return found

    def _rows(self, planned: Sequence[PlannedLedger]) -> DataFrame:
        """All rows, in all places in which they stand."""
        if self.is_large:
            rows = self._read([scan for each in planned for scan in each.places], PLACED)
        else:
            rows = self._rows_with_past(planned)
        return reduce(DataFrame.unionByName, self._refused(planned), rows)

    def _read(self, scans: Sequence[Scan], shape: StructType) -> DataFrame:
        return reduce(DataFrame.unionByName, (read_table(self.spark, each, shape) for each in scans))

    def _rows_with_past(self, planned: Sequence[PlannedLedger]) -> DataFrame:
        scans = [scan for each in planned for scan in (*each.looked_at, *each.look_ups)]
        plans = {each.topic: pickle.dumps(key_plan(each.request.contract)) for each in planned}
        seconds = blame.TOPIC_SECONDS

        def work(tasks: Sequence[Task]) -> Iterator[pa.RecordBatch]:
            for task in tasks:
                yield from rows_of_ledgers(task, pickle.loads(plans[task.topic]), seconds)  # noqa: S301 - our own

        return work_where_read(self.spark, scans, work, PLACED, by_topic=True)

    def _refused(self, planned: Sequence[PlannedLedger]) -> Iterator[DataFrame]:
        """What stands among the errors, which all topics have in common."""
        for layer, errors in ERRORS.items():
            own = [each for each in planned if each.layer is layer]
            if not own or find_table(self.catalog, table(errors, "")) is None:
                continue
            rows = self.spark.read.table(spark_table(errors, "")).where(_is_refused(own))
            rows = rows.where(F.col("closed").isNull()) if errors is Layer.ERRORS else rows
            missing = F.expr(_MISSING) if errors is Layer.ERRORS else F.lit(None).cast("array<string>")
            nothing, role = F.lit(None).cast("string"), F.lit(in_place(layer, REFUSED))
            columns = {"topic": F.col("topic_name"), "role": role, "missing": missing}
            columns |= {"error_kind": nothing, RECORD_KEY: nothing}
            yield rows.select(*(columns.get(name, F.col(name)).alias(name) for name in PLACED.names))

    def _fates(self, stand: DataFrame, rows: DataFrame) -> DataFrame | None:
        """Why messages stand nowhere: by their payloads, copies and other versions, which are looked for."""
        if not self._of_messages:
            return None
        landed, versions = (rows.where(standing_in(Layer.STANDARDIZED, *each)) for each in ((LANDED,), (KEPT, HELD)))
        landed = landed.transform(marked_if_unwritten, stand.where(is_to_explain()))
        return fates_of_unwritten(landed, versions, self._horizons)

    def _fates_of_large(self, stood: DataFrame, rows: DataFrame) -> DataFrame | None:
        """The same of a topic whose workers have found these messages: only such rows are sorted as can explain one."""
        if not self._of_messages:
            return None
        unwritten = stood.where("rows IS NULL").transform(told_apart).withColumn("is_unwritten", F.lit(True))
        is_sent = unwritten.count() <= _MOST_SENT
        copies = self._read([each.copies for each in self._of_messages], MESSAGE)
        copies = copies.transform(with_ids_of, unwritten, is_sent)
        versions = rows.where(standing_in(Layer.STANDARDIZED, KEPT, HELD)).transform(with_keys_of, unwritten, is_sent)
        landed = unwritten.unionByName(copies, allowMissingColumns=True)
        return fates_of_unwritten(landed, versions, self._horizons)

    @property
    def _of_messages(self) -> list[PlannedLedger]:
        return [each for each in self.planned if each.layer is Layer.STANDARDIZED]

    @property
    def _horizons(self) -> dict[str, int]:
        return horizons_of({each.topic: each.request.contract for each in self._of_messages})

    def _count(self, tallies: Tallies, stand: DataFrame, rows: DataFrame, fates: DataFrame | None) -> bool:
        """Count rows by where they stand and what they lack; whether any records have more than one row."""
        counted = stand.groupBy(*DAY, *PLACES, is_finding().alias("is_finding")).agg(F.sum("rows").alias("rows"))
        sharing = rows.transform(shared_keys).select(*LEDGER, F.lit(True).alias("is_sharing")).distinct()
        asked = [counted, sharing, rows.transform(missing_elements)]
        if fates is not None:
            asked.append(fates.groupBy(*DAY, "fate").agg(F.count("*").alias("rows")))
        is_sharing = False
        for row in reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), asked).collect():
            tally = tallies[row["topic"], Layer(row["layer"])]
            if row["is_sharing"]:
                is_sharing = True
            elif row["column"]:
                tally.missing[row["day"]][row["column"]] = row["rows"]
            elif fates is not None and row["fate"]:
                tally.add_fate(row)
            else:
                tally.add_standing(row)
        return is_sharing

    def _odd(self, tallies: Tallies, stand: DataFrame, rows: DataFrame) -> Iterator[DataFrame]:
        """The rows that are wrong by where they stand, looked at again by their ids."""
        if any(each.odd.total() for each in tallies.values()):
            yield rows.where(standing_in(None, *PLACES)).transform(names_of, stand.where(is_finding()))

    def _name(self, tallies: Tallies, findings: DataFrame) -> None:
        for row in first_of_each_day(findings, SHOWN, ["landing_seq", "message_id"]).collect():
            tallies[row["topic"], Layer(row["layer"])].add_name(row)

    def _name_sharing(self, tallies: Tallies, rows: DataFrame) -> None:
        """The rows whose record has another row."""
        rows = rows.where(standing_in(None, KEPT, HELD)).transform(rows_sharing, rows.transform(shared_keys))
        for row in first_of_each_day(rows, SHOWN, ["idempotency_key", "landing_seq"]).collect():
            tallies[row["topic"], Layer(row["layer"])].add_sharing(row)


def _files(planned: Iterable[PlannedLedger]) -> Collection[DataFile]:
    """The files of some ledgers, each once: those of Standardized are looked at for both layers."""
    files: dict[str, DataFile] = {}
    for each in planned:
        files |= each.files
    return files.values()


def _is_refused(planned: Sequence[PlannedLedger]) -> Column:
    """Where the errors of topics stand. Most topics ask for the same: of these one condition is made."""
    topics: dict[str, list[str]] = {}
    for each in planned:
        topics.setdefault(each.refused, []).append(each.topic)
    # As text: a plan has room for no hundred levels of columns.
    own = (f"(topic_name IN ({', '.join(map(repr, names))}) AND ({where}))" for where, names in topics.items())
    return F.expr(" OR ".join(own))


def _lost(tallies: Tallies, fates: DataFrame | None) -> Iterator[DataFrame]:
    """Messages that came in and stand nowhere, for no reason."""
    if fates is not None and any(each.lost.total() for each in tallies.values()):
        places = {place: F.lit(int(place == CAME_IN)) for place in PLACES}
        yield fates.where(F.col("fate") == LOST).drop("fate").withColumns(places)
