"""The Spark job that looks at all rows of some topics: only counts, and the first rows that are wrong, come here.

It asks where every row stands, counted by topic, layer and day, and which records have more than one row. Only where
messages stand nowhere it asks why, and for names only where something is wrong.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from leanops.batch.isolation import Jobs
from leanops.batch.scan import read_tables
from leanops.batch.topics import Outcome, each_topic
from leanops.checkpointed import checkpointed
from leanops.ledger.account import SHOWN
from leanops.ledger.planned import CAME_IN, HELD, KEPT, REFUSED, PlannedLedger
from leanops.ledger.rows import (
    DAY,
    LEDGER,
    LOST,
    PLACED,
    PLACES,
    among,
    fates_of_unwritten,
    first_of_each_day,
    is_finding,
    is_to_explain,
    missing_elements,
    names_of,
    rows_sharing,
    shared_keys,
    standing,
    standing_in,
    with_ids_of,
)
from leanops.ledger.tally import Tally
from leanops.names import ERRORS, Layer, spark_table, table
from leanops.slices import sized
from leanops.standardized.table import key_plan
from leanops.standardized.transform import MESSAGE, RECORD_KEY, VERSION, read_payloads
from leanops.tables import find_table

_KEPT_BYTES = 128 * 2**20
"""Files of so many bytes together are read once, and their rows kept for all questions."""

_MISSING = "transform(filter(broken_rules, each -> each.rule = 'cde'), each -> each.column)"
"""The Critical Data Elements that an invalid row lacks."""

Tallies = dict[tuple[str, Layer], Tally]


@dataclass(frozen=True)
class LedgerJob:
    """The ledgers of some topics, each with one or more of its layers."""

    jobs: Jobs
    catalog: Catalog
    planned: Mapping[str, Sequence[PlannedLedger]]

    def tally(self) -> dict[str, Outcome[list[Tally]]]:
        """What was found out about the rows of each topic."""
        spark = self.jobs.sessions()
        files = _files(each for own in self.planned.values() for each in own)
        sized(spark, sum(file.record_count for file in files))
        return self.jobs.isolated([*self.planned], lambda topics: self._questions(spark, topics).ask())

    def _questions(self, spark: SparkSession, topics: Sequence[str]) -> "_Questions":
        return _Questions(spark, self.catalog, [each for topic in topics for each in self.planned[topic]])


@dataclass(frozen=True)
class _Questions:
    """All that Spark is asked about some topics."""

    spark: SparkSession
    catalog: Catalog
    planned: Sequence[PlannedLedger]

    def ask(self) -> dict[str, Outcome[list[Tally]]]:
        """What was found out about each topic, in the order in which one answer leads to the next question."""
        tallies = {(each.topic, each.layer): Tally(each) for each in self.planned}
        is_small = sum(file.file_size_in_bytes for file in _files(self.planned)) <= _KEPT_BYTES
        rows = checkpointed(self._rows(self.planned)) if is_small else self._rows(self.planned)
        stand = rows.transform(standing) if is_small else checkpointed(rows.transform(standing))
        sharing = self._count(tallies, stand, rows)
        failed, lost = self._explain(tallies, stand, rows)
        if findings := [*self._odd(tallies, stand, rows), *lost]:
            self._name(tallies, reduce(DataFrame.unionByName, findings))
        if sharing:
            self._name_sharing(tallies, rows, sharing)
        found: dict[str, Outcome[list[Tally]]] = {}
        for topic in dict.fromkeys(each.topic for each in self.planned):
            found[topic] = [each for each in tallies.values() if each.planned.topic == topic]
        return found | failed

    def _rows(self, planned: Sequence[PlannedLedger]) -> DataFrame:
        """All rows, in all places in which they stand."""
        rows = read_tables(self.spark, [scan for each in planned for scan in each.places], PLACED)
        return reduce(DataFrame.unionByName, self._refused(planned), rows)

    def _refused(self, planned: Sequence[PlannedLedger]) -> Iterator[DataFrame]:
        """What stands among the errors, which all topics have in common."""
        for layer, errors in ERRORS.items():
            own = [each for each in planned if each.layer is layer]
            if not own or find_table(self.catalog, table(errors, "")) is None:
                continue
            rows = self.spark.read.table(spark_table(errors, "")).where(_is_refused(own))
            rows = rows.where(F.col("closed").isNull()) if errors is Layer.ERRORS else rows
            missing = F.expr(_MISSING) if errors is Layer.ERRORS else F.lit(None).cast("array<string>")
            columns = {"topic": F.col("topic_name"), "role": F.lit(f"{layer} {REFUSED}"), "missing": missing}
            yield rows.select(*(columns.get(name, F.col(name)).alias(name) for name in PLACED.names))

    def _count(self, tallies: Tallies, stand: DataFrame, rows: DataFrame) -> list[PlannedLedger]:
        """Count rows by where they stand and what they lack; the ledgers in which records have more than one row."""
        is_wrong = (is_to_explain().alias("is_to_explain"), is_finding().alias("is_finding"))
        counted = stand.groupBy(*DAY, *PLACES, *is_wrong).agg(F.sum("rows").alias("rows"))
        sharing = rows.transform(shared_keys).select(*LEDGER, F.lit(True).alias("is_sharing")).distinct()
        asked = (counted, sharing, rows.transform(missing_elements))
        found: list[PlannedLedger] = []
        for row in reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), asked).collect():
            tally = tallies[row["topic"], Layer(row["layer"])]
            if row["is_sharing"]:
                found.append(tally.planned)
            elif row["column"]:
                tally.missing[row["day"]][row["column"]] = row["rows"]
            else:
                tally.add_standing(row)
        return found

    def _explain(
        self, tallies: Tallies, stand: DataFrame, rows: DataFrame
    ) -> tuple[dict[str, Exception], list[DataFrame]]:
        """Count the messages that stand nowhere, by the reason; which topics failed, and what is lost of the others."""
        unexplained = [each for each in tallies.values() if each.to_explain]
        located = each_topic([each.planned for each in unexplained], _find_reasons)
        failed = {topic: error for topic, error in located.items() if error is not None}
        explained = [each for each in unexplained if each.planned.topic not in failed]
        if not explained:
            return failed, []
        fates = self._fates(explained, stand, rows)
        for row in fates.groupBy(*DAY, "fate").count().collect():
            tallies[row["topic"], Layer(row["layer"])].add_fate(row)
        return failed, [_lost(fates)] if any(each.lost.total() for each in explained) else []

    def _fates(self, tallies: Sequence[Tally], stand: DataFrame, rows: DataFrame) -> DataFrame:
        """Why messages stand nowhere."""
        planned, count = [each.planned for each in tallies], sum(each.to_explain for each in tallies)
        landed = read_tables(self.spark, [scan for each in planned for scan in (each.messages, each.copies)], MESSAGE)
        # Few of what has landed are copies of messages that stand nowhere, or these: RAW is read once for both.
        found = landed.transform(with_ids_of, stand.where(is_to_explain()), count)
        read = read_payloads(found, {each.topic: key_plan(each.request.contract) for each in planned})
        read = checkpointed(read.select("topic", "landing_seq", *VERSION, "error_kind", RECORD_KEY))
        unwritten = read.transform(among, stand.where(is_to_explain()), count)
        versions = rows.where(standing_in(Layer.STANDARDIZED, KEPT, HELD))
        return fates_of_unwritten(unwritten, read, versions, count)

    def _odd(self, tallies: Tallies, stand: DataFrame, rows: DataFrame) -> Iterator[DataFrame]:
        """The rows that are wrong by where they stand, looked at again by their ids."""
        if any(each.odd.total() for each in tallies.values()):
            yield rows.where(standing_in(None, *PLACES)).transform(names_of, stand.where(is_finding()))

    def _name(self, tallies: Tallies, findings: DataFrame) -> None:
        for row in first_of_each_day(findings, SHOWN, ["landing_seq", "message_id"]).collect():
            tallies[row["topic"], Layer(row["layer"])].add_name(row)

    def _name_sharing(self, tallies: Tallies, rows: DataFrame, sharing: Sequence[PlannedLedger]) -> None:
        """The rows whose record has another row."""
        whole = [f"{each.topic} {each.kept.role}" for each in sharing if each.part.is_whole]
        held = rows.where(standing_in(None, HELD) | F.concat("topic", F.lit(" "), "role").isin(whole))
        rows = held.transform(rows_sharing, rows.transform(shared_keys))
        for row in first_of_each_day(rows, SHOWN, ["idempotency_key", "landing_seq"]).collect():
            tallies[row["topic"], Layer(row["layer"])].add_sharing(row)


def _files(planned: Iterable[PlannedLedger]) -> Collection[DataFile]:
    """The files of some ledgers, each once: those of Standardized are looked at for both layers."""
    files: dict[str, DataFile] = {}
    for each in planned:
        files |= each.files
    return files.values()


def _find_reasons(planned: PlannedLedger) -> None:
    planned.find_files(planned.messages, planned.copies)


def _is_refused(planned: Sequence[PlannedLedger]) -> Column:
    """Where the errors of topics stand. Most topics ask for the same: of these one condition is made."""
    topics: dict[str, list[str]] = {}
    for each in planned:
        topics.setdefault(each.refused, []).append(each.topic)
    # As text: a plan has room for no hundred levels of columns.
    own = (f"(topic_name IN ({', '.join(map(repr, names))}) AND ({where}))" for where, names in topics.items())
    return F.expr(" OR ".join(own))


def _lost(fates: DataFrame) -> DataFrame:
    """Messages that came in and stand nowhere, for no reason."""
    places = {place: F.lit(int(place == CAME_IN)) for place in PLACES}
    return fates.where(F.col("fate") == LOST).drop("fate").withColumns(places)
