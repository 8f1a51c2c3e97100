"""Build a topic's Curated table and its contract errors from what Standardized has gained."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from leanops.commits import Draft, certain_upto, checkpoint_of, commits_since, current_id, replace_rows
from leanops.contracts.model import Contract
from leanops.curated.errors import count_by_rule, known_errors, merge_errors
from leanops.curated.table import ensure_curated_table, ensure_errors_table
from leanops.curated.transform import IS_BROKEN, broken, judged, kept
from leanops.inventory import days_changed, table_days
from leanops.names import Layer, spark_table
from leanops.picked import Sorted
from leanops.slices import SMALL, Slice, sized
from leanops.standardized.table import ensure_standardized_table


@dataclass(frozen=True)
class CuratedBuild:
    """What a build did with the rows that it read. `is_new` is False when there was nothing to do."""

    is_new: bool
    snapshot_id: int | None
    standardized_snapshot: int | None
    days: frozenset[date] = frozenset()
    """The publish days of which rows came or went."""
    last_ingestion_ts: int | None = None
    is_whole: bool = False
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
    spark = sessions()
    with sized(spark, rows):
        build = _Build(spark, topic, contract, part, rows, draft, since.only_grown and not draft.is_second_try)
        return build.run(checkpoint)


@dataclass(frozen=True)
class _Since:
    """What Standardized has gained since Curated last looked."""

    part: Slice
    only_grown: bool
    """Whether it has only gained rows: none of their records can be in Curated or among its errors yet."""

    @classmethod
    def read(cls, source: Table, target: Table, contract: Contract, rebuild: Collection[date]) -> "_Since":
        upto, said = int(checkpoint_of(source).get("upto", 0)), checkpoint_of(target)
        builds = commits_since(source, said.get("standardized-snapshot"))
        rebuilt = [day for build in builds or () for day in build.get("rebuilt", "").split(",") if day]
        if builds is None or "all" in rebuilt or said.get("contract") != contract.fingerprint:
            return cls(Slice(0, upto), only_grown=False)
        days = {*rebuild, *map(date.fromisoformat, rebuilt)}
        only_grown = not days and all(build.get("replaced", "0") == "0" for build in builds)
        return cls(Slice(certain_upto(target, int(said.get("upto", 0))), upto, frozenset(days)), only_grown)


@dataclass(frozen=True)
class _Build:
    """One build, in the order of the spec's steps."""

    spark: SparkSession
    topic: str
    contract: Contract
    part: Slice
    rows: int
    draft: Draft
    only_grown: bool

    def run(self, checkpoint: dict[str, str]) -> CuratedBuild:
        standardized = self._table(Layer.STANDARDIZED, checkpoint["standardized-snapshot"])
        rows = standardized.where(self.part.condition).transform(judged, self.contract)
        keys = self._keys(rows)
        updated = self._take_out(rows, keys)
        counted = Observation()
        observed = rows.observe(
            counted,
            F.count("*").alias("read"),
            F.count_if(IS_BROKEN).alias("broken"),
            F.max("ingestion_ts").alias("last_ingestion_ts"),
        )
        self.draft.append(observed.transform(kept, self.contract, self.draft.columns), checkpoint)
        by_rule = self._write_errors(rows, keys, counted.get["broken"])
        snapshot = self.draft.publish(checkpoint)
        return CuratedBuild(
            is_new=True,
            snapshot_id=snapshot.snapshot_id,
            days=days_changed(self.draft.table, self.draft.base.snapshot_id, snapshot.snapshot_id),
            standardized_snapshot=int(checkpoint["standardized-snapshot"]),
            last_ingestion_ts=counted.get["last_ingestion_ts"],
            is_whole=self.part.is_whole,
            rows_read=counted.get["read"],
            written=counted.get["read"] - counted.get["broken"],
            updated=updated,
            broken=counted.get["broken"],
            errors_by_rule=by_rule,
        )

    def _keys(self, rows: DataFrame) -> Sequence[str] | None:
        """The records of a small build; none need be known where nothing can be held of them."""
        if self.part.is_whole or self.only_grown or self.rows > SMALL:
            return None
        return [row.idempotency_key for row in rows.select("idempotency_key").collect()]

    def _take_out(self, rows: DataFrame, keys: Sequence[str] | None) -> int:
        """Delete what is made anew, and whatever is held of the records that are judged now."""
        if self.part.is_whole:
            if not self.draft.is_of_nothing:
                self.draft.delete(self.spark, "true")
            return 0
        if self.only_grown:
            return 0
        held = self._table(Layer.CURATED, str(self.draft.base.snapshot_id))
        if self.part.days:
            self.draft.delete(self.spark, self.part.on_days)
            held = held.where(F.expr(f"NOT ({self.part.on_days})"))
        is_held = F.lit("held").alias("decision")
        if keys is None:
            again = held.join(rows.select("idempotency_key"), "idempotency_key", "left_semi")
            found = Sorted.many(again.select("landing_seq", is_held), "decision")
        else:
            again = held.where(F.col("idempotency_key").isin(list(keys)))
            found = Sorted.few(again.select("landing_seq", is_held), "decision")
        gone = found.picked("held")
        if gone.count:
            self.draft.delete_rows(self.spark, gone)
        return gone.count

    def _write_errors(self, rows: DataFrame, keys: Sequence[str] | None, count: int) -> dict[str, int]:
        """Open the errors of the rows that are broken now, and close those of records that are not any more."""
        self.draft.require_not_overtaken()
        found = rows.transform(broken, self.topic, self.contract).persist()
        try:
            if not self.only_grown and self._may_heal(keys):
                merge_errors(self.spark, self.topic, self.part, rows, keys, found)
            elif count:
                own = (F.col("topic_name") == self.topic) & self.part.condition
                replace_rows(found, spark_table(Layer.ERRORS, self.topic), own)
            return count_by_rule(found) if count else {}
        finally:
            found.unpersist()

    def _may_heal(self, keys: Sequence[str] | None) -> bool:
        """Whether there are errors that this build could close or open again."""
        known = known_errors(self.spark, self.topic)
        if keys is not None and not self.part.days and not self.draft.is_second_try:
            known = known.where(F.col("closed").isNull() & F.col("idempotency_key").isin(list(keys)))
        return bool(known.take(1))

    def _table(self, layer: Layer, snapshot_id: str) -> DataFrame:
        return self.spark.read.option("versionAsOf", snapshot_id).table(spark_table(layer, self.topic))
