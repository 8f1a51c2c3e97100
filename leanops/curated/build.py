"""Build a topic's Curated table and its contract errors from what Standardized has gained."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import date

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from leanops.commits import Draft, certain_upto, checkpoint_of, commits_since, current_id, replace_rows
from leanops.contracts.model import Contract
from leanops.curated.errors import close_errors, count_by_rule, has_errors, merge_errors, open_errors
from leanops.curated.table import ensure_curated_table, ensure_errors_table
from leanops.curated.transform import IS_BROKEN, broken, judged, kept
from leanops.inventory import days_changed, table_days
from leanops.names import Layer, spark_table
from leanops.observed import Observed
from leanops.picked import Picked, Sorted
from leanops.slices import Slice, sized
from leanops.standardized.table import ensure_standardized_table


@dataclass(frozen=True)
class CuratedBuild:
    """What a build did with the rows that it read. `is_new` is False when there was nothing to do."""

    is_new: bool
    snapshot_id: int | None
    standardized_snapshot: int | None
    days: frozenset[date] = frozenset()
    """The publish days of which rows came or went, here or in Standardized."""
    last_ingestion_ts: int | None = None
    part: Slice | None = None
    """Which rows it took in, by their numbers."""
    rows_read: int = 0
    written: int = 0
    updated: int = 0
    """Rows that stood in the table before and gave way to a later version, valid or broken."""
    broken: int = 0
    errors_by_rule: Mapping[str, int] = field(default_factory=dict)


def build_curated(
    sessions: Callable[[], SparkSession],
    catalog: Catalog,
    topic: str,
    contract: Contract,
    rebuild: Collection[date] = (),
) -> CuratedBuild:
    """Make Curated what the spec says it is over all of Standardized. When nothing has changed, Spark is not asked.

    What Standardized has gained since the last build is taken in, and days that were rebuilt there, or are to be
    rebuilt here, are made anew. When the contract says something else, everything is.
    """
    source = ensure_standardized_table(catalog, topic, contract)
    target = ensure_curated_table(catalog, topic, contract)
    ensure_errors_table(catalog)
    read = source.current_snapshot()
    since = _Since.read(source, target, contract, rebuild)
    if read is None or since.part.is_empty:
        return CuratedBuild(False, current_id(target), current_id(source))

    checkpoint = {
        "upto": str(since.part.upto),
        "standardized-snapshot": str(read.snapshot_id),
        "contract": contract.fingerprint,
        "contract-version": str(contract.version),
    }
    part = since.part
    draft = Draft.begin(target, part.after)
    rows = part.rows_landed + sum(day.rows for day in table_days(source, part.days).values())
    lost = None if draft.is_second_try else since.lost
    spark = sessions()
    with sized(spark, rows):
        done = _Build(spark, topic, contract, part, lost, draft).run(checkpoint)
    return replace(done, days=done.days | days_changed(source, since.snapshot, read.snapshot_id))


@dataclass(frozen=True)
class _Since:
    """What Standardized has gained and lost since Curated last looked."""

    part: Slice
    lost: Picked | None
    """The rows that later versions have replaced; None where it takes a look at the tables to tell."""
    snapshot: int
    """What it last looked at; 0 when it never did."""

    @classmethod
    def read(cls, source: Table, target: Table, contract: Contract, rebuild: Collection[date]) -> "_Since":
        upto, said = int(checkpoint_of(source).get("upto", 0)), checkpoint_of(target)
        builds = commits_since(source, said.get("standardized-snapshot"))
        rebuilt = [day for build in builds or () for day in build.get("rebuilt", "").split(",") if day]
        if builds is None or "all" in rebuilt or said.get("contract") != contract.fingerprint:
            return cls(Slice(0, upto), None, 0)
        days = {*rebuild, *map(date.fromisoformat, rebuilt)}
        after = certain_upto(target, int(said.get("upto", 0)))
        lost = None if days else Picked.told((build.get("replaced", "") for build in builds), after)
        return cls(Slice(after, upto, frozenset(days)), lost, int(said["standardized-snapshot"]))


@dataclass(frozen=True)
class _Build:
    """One build, in the order of the spec's steps."""

    spark: SparkSession
    topic: str
    contract: Contract
    part: Slice
    lost: Picked | None
    draft: Draft

    def run(self, checkpoint: dict[str, str]) -> CuratedBuild:
        standardized = self._table(Layer.STANDARDIZED, checkpoint["standardized-snapshot"])
        rows = standardized.where(self.part.condition).transform(judged, self.contract)
        healed = self._healed()
        updated = self._take_out(rows, healed)
        observed = Observed(
            rows, read=F.count("*"), broken=F.count_if(IS_BROKEN), last_ingestion_ts=F.max("ingestion_ts")
        )
        self.draft.append(observed.rows.transform(kept, self.contract, self.draft.columns), checkpoint)
        self.draft.require_not_overtaken()
        counted = observed.facts
        by_rule = self._write_errors(rows, healed, counted["broken"])
        snapshot = self.draft.publish(checkpoint)
        return CuratedBuild(
            is_new=True,
            snapshot_id=snapshot.snapshot_id,
            days=days_changed(self.draft.table, self.draft.base.snapshot_id, snapshot.snapshot_id),
            standardized_snapshot=int(checkpoint["standardized-snapshot"]),
            last_ingestion_ts=counted["last_ingestion_ts"],
            part=self.part,
            rows_read=counted["read"],
            written=counted["read"] - counted["broken"],
            updated=updated,
            broken=counted["broken"],
            errors_by_rule=by_rule,
        )

    def _healed(self) -> Picked:
        """The open errors of those rows that Standardized is known to have lost."""
        if self.lost is None or not self.lost.count:
            return Picked(0)
        healed = [row.landing_seq for row in self.lost.among(open_errors(self.spark, self.topic)).collect()]
        return Picked(len(healed), healed)

    def _take_out(self, rows: DataFrame, healed: Picked) -> int:
        """Delete what is made anew, and whatever is held of records of which there is a later version now."""
        if self.part.is_whole:
            if not self.draft.is_of_nothing:
                self.draft.delete(self.spark, "true")
            return 0
        # A row that was lost is held here, unless it was broken.
        gone = self._held_again(rows) if self.lost is None else self.lost.without(healed)
        self.draft.delete_rows(self.spark, gone)
        return gone.count

    def _held_again(self, rows: DataFrame) -> Picked:
        """What is held of the records that are judged now, on days that are not made anew as a whole."""
        held = self._table(Layer.CURATED, str(self.draft.base.snapshot_id))
        if self.part.days:
            self.draft.delete(self.spark, self.part.on_days)
            held = held.where(F.expr(f"NOT ({self.part.on_days})"))
        again = held.join(rows.select("idempotency_key"), "idempotency_key", "left_semi")
        return Sorted.many(again.select("landing_seq", F.lit("held").alias("decision")), "decision").picked("held")

    def _write_errors(self, rows: DataFrame, healed: Picked, count: int) -> dict[str, int]:
        """Open the errors of the rows that are broken now, and close those of records that are not any more."""
        found = rows.transform(broken, self.topic, self.contract)
        if self.lost is None and has_errors(self.spark, self.topic):
            merge_errors(self.spark, self.topic, self.part, rows, found)
        else:
            close_errors(self.spark, self.topic, healed)
            if count:
                own = (F.col("topic_name") == self.topic) & self.part.condition
                replace_rows(found, spark_table(Layer.ERRORS, self.topic), own)
        return count_by_rule(open_errors(self.spark, self.topic).where(self.part.condition)) if count else {}

    def _table(self, layer: Layer, snapshot_id: str) -> DataFrame:
        return self.spark.read.option("versionAsOf", snapshot_id).table(spark_table(layer, self.topic))
