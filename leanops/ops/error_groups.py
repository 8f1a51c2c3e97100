"""`ops_db.error_groups`: what is wrong at present, over all topics: by rule and column, how often, since when, whose.

Open contract errors are grouped by their broken rules, parse errors by their kind. The table is a picture of the
moment: it is drawn anew each time and replaces the one before.
"""

from collections.abc import Mapping, Sequence

from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.types import DateType, ListType, LongType, NestedField, StringType, StructType, TimestamptzType
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from leanops.curated.table import ensure_errors_table
from leanops.names import CATALOG, OPS_DB, Layer, spark_table
from leanops.standardized.table import ensure_parse_errors_table
from leanops.tables import ensure_table

ERROR_GROUPS = (OPS_DB, "error_groups")
GROUPS_SCHEMA = Schema(
    NestedField(1, "topic", StringType()),
    NestedField(2, "rule", StringType(), doc="cde, type, or the kind of a parse error"),
    NestedField(3, "column", StringType(), doc="NULL for parse errors"),
    NestedField(4, "count", LongType()),
    NestedField(5, "first_seen", TimestamptzType()),
    NestedField(6, "last_seen", TimestamptzType()),
    NestedField(
        7,
        "by_day",
        ListType(
            8,
            StructType(NestedField(9, "day", DateType()), NestedField(10, "count", LongType())),
            element_required=False,
        ),
    ),
    NestedField(
        11,
        "samples",
        ListType(
            12,
            StructType(NestedField(13, "message_id", StringType()), NestedField(14, "value", StringType())),
            element_required=False,
        ),
    ),
    NestedField(15, "owner", StringType()),
)
_GROUP = ("topic", "rule", "column")
_SAMPLES, _SAMPLE_LENGTH = 3, 200


def error_groups(
    spark: SparkSession, catalog: Catalog, owners: Mapping[str, str], topics: Sequence[str] | None = None
) -> DataFrame:
    """The groups of all topics or of some, the largest first. `owners` says whose each topic is."""
    ensure_errors_table(catalog)
    ensure_parse_errors_table(catalog)
    errors = _contract_errors(spark).unionByName(_parse_errors(spark))
    if topics is not None:
        errors = errors.where(F.col("topic").isin(list(topics)))
    errors = errors.withColumn("column", F.coalesce("column", F.lit("")))
    by_day = errors.groupBy(*_GROUP, F.to_date("publish_time").alias("day")).agg(
        F.count("*").alias("count"), F.min("seen").alias("first_seen"), F.max("seen").alias("last_seen")
    )
    groups = by_day.groupBy(*_GROUP).agg(
        F.sum("count").alias("count"),
        F.min("first_seen").alias("first_seen"),
        F.max("last_seen").alias("last_seen"),
        F.sort_array(F.collect_list(F.struct("day", "count"))).alias("by_day"),
    )
    newest_first = Window.partitionBy(*_GROUP).orderBy(F.desc("seen"), "message_id")
    sample = F.struct("message_id", F.substring("value", 1, _SAMPLE_LENGTH).alias("value"))
    samples = (
        errors.withColumn("place", F.row_number().over(newest_first))
        .where(F.col("place") <= _SAMPLES)
        .groupBy(*_GROUP)
        .agg(F.collect_list(sample).alias("samples"))
    )
    whose = F.create_map(*(F.lit(text) for item in owners.items() for text in item)) if owners else None
    owner = whose[F.col("topic")] if whose is not None else F.lit(None).cast("string")
    found = groups.join(samples, [*_GROUP]).withColumn("owner", owner)
    names = [field.name for field in GROUPS_SCHEMA.fields]
    return found.withColumn("column", F.nullif("column", F.lit(""))).select(*names).orderBy(F.desc("count"), *_GROUP)


def save_error_groups(spark: SparkSession, catalog: Catalog, owners: Mapping[str, str]) -> None:
    """Replace the table by the groups as they are now, in one commit."""
    ensure_table(catalog, ERROR_GROUPS, GROUPS_SCHEMA, UNPARTITIONED_PARTITION_SPEC)
    error_groups(spark, catalog, owners).writeTo(".".join((CATALOG, *ERROR_GROUPS))).overwrite(F.lit(True))


def _contract_errors(spark: SparkSession) -> DataFrame:
    """Every broken rule of every row that is broken now."""
    broken = spark.read.table(spark_table(Layer.ERRORS, "")).where(F.col("closed").isNull())
    return broken.select(
        F.col("topic_name").alias("topic"),
        "publish_time",
        F.col("first_seen").alias("seen"),
        "message_id",
        F.inline("broken_rules"),
    ).select("topic", "rule", "column", "publish_time", "seen", "message_id", "value")


def _parse_errors(spark: SparkSession) -> DataFrame:
    return spark.read.table(spark_table(Layer.PARSE_ERRORS, "")).select(
        F.col("topic_name").alias("topic"),
        F.col("error_kind").alias("rule"),
        F.lit(None).cast("string").alias("column"),
        "publish_time",
        F.timestamp_seconds("ingestion_ts").alias("seen"),
        "message_id",
        F.col("json_payload").alias("value"),
    )
