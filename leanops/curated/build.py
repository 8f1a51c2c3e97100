"""Build a topic's Curated table and its contract errors from what Standardized holds."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pyiceberg.catalog import Catalog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from leanops.commits import replace_rows, stands_for
from leanops.contracts.model import Contract
from leanops.curated.table import ensure_curated_table, ensure_errors_table
from leanops.curated.transform import BROKEN, broken, judged, kept
from leanops.inventory import table_totals
from leanops.names import Layer, spark_table
from leanops.standardized.table import ensure_standardized_table


@dataclass(frozen=True)
class CuratedBuild:
    """What a build did. `is_new` is False when there was nothing to do."""

    is_new: bool
    rows_in: int
    rows: int
    snapshot_id: int | None
    standardized_snapshot: int | None
    errors_by_rule: Mapping[str, int] = field(default_factory=dict)

    @property
    def open_errors(self) -> int:
        return self.rows_in - self.rows


def build_curated(
    sessions: Callable[[], SparkSession], catalog: Catalog, topic: str, contract: Contract
) -> CuratedBuild:
    """Make Curated what the spec says it is over all of Standardized. When nothing has changed, Spark is not asked.

    Errors go first. The table commits last, and its commit says which Standardized and which contract it stands for.
    """
    source = ensure_standardized_table(catalog, topic, contract)
    target = ensure_curated_table(catalog, topic, contract)
    ensure_errors_table(catalog)
    read = source.current_snapshot()
    checkpoint = {
        "standardized-snapshot": str(read and read.snapshot_id),
        "contract": contract.fingerprint,
        "contract-version": str(contract.version),
    }
    is_new = not stands_for(target, checkpoint)
    by_rule: dict[str, int] = {}
    if read and is_new:
        spark = sessions()
        standardized = spark.read.option("versionAsOf", read.snapshot_id).table(spark_table(Layer.STANDARDIZED, topic))
        rows = standardized.transform(judged, contract).persist()
        try:
            by_rule = _count_by_rule(rows)
            errors = rows.transform(broken).transform(_beside_the_known, spark, topic, contract.version)
            replace_rows(errors, spark_table(Layer.ERRORS, topic), F.col("topic_name") == topic, checkpoint)
            replace_rows(rows.transform(kept), spark_table(Layer.CURATED, topic), F.lit(True), checkpoint)
        finally:
            rows.unpersist()
        target.refresh()
    written = target.current_snapshot()
    return CuratedBuild(
        is_new=bool(read) and is_new,
        rows_in=table_totals(source).rows,
        rows=table_totals(target).rows,
        snapshot_id=written.snapshot_id if written else None,
        standardized_snapshot=read.snapshot_id if read else None,
        errors_by_rule=by_rule,
    )


def _count_by_rule(rows: DataFrame) -> dict[str, int]:
    found = rows.select(F.explode(BROKEN).alias("broken")).groupBy("broken.column", "broken.rule").count()
    return {f"{row['column']}: {row['rule']}": row["count"] for row in found.orderBy("column", "rule").collect()}


def _beside_the_known(errors: DataFrame, spark: SparkSession, topic: str, version: int) -> DataFrame:
    """The errors that are open now, and those that once were: closed when they were first found mended."""
    known = spark.read.table(spark_table(Layer.ERRORS, topic)).where(F.col("topic_name") == topic)
    now = F.current_timestamp()
    was = known.select("message_id", F.col("first_seen").alias("was_first_seen"))
    still_open = errors.join(was, "message_id", "left").select(
        "*",
        F.lit(topic).alias("topic_name"),
        F.lit(version).alias("contract_version"),
        F.coalesce("was_first_seen", now).alias("first_seen"),
        F.lit(None).cast("timestamp").alias("closed"),
    )
    mended = known.join(errors, "message_id", "left_anti").withColumn("closed", F.coalesce("closed", now))
    return still_open.drop("was_first_seen").unionByName(mended)
