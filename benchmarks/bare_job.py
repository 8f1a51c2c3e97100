"""The same tables as a competent engineer would write them by hand for this one topic, in PySpark.

The fields and their types are known beforehand and stand in the code; nothing else is promised. Broken payloads and
rows without their Critical Data Elements are dropped, a value that does not fit its type becomes NULL, a field that is
new is not seen, nothing is counted, and numbers may change on their way through `from_json`.
"""

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

SHUFFLE_PARTITIONS = "8"
"""Enough for 2 cores and a million rows; Spark joins the smaller ones by itself."""

NAMESPACE = "bare_db"
STANDARDIZED = f"{NAMESPACE}.standardized"
CURATED = f"{NAMESPACE}.curated"

PAYLOAD = """
    _metadata struct<idempotencyKeyResource: string, correlationId: string>,
    event struct<
        timestamp: string,
        userId: string,
        eventType: string,
        metadata: struct<ipAddress: string, deviceId: string, userAgent: string>
    >,
    amount string,
    currency string,
    quantity string,
    gift string,
    items string,
    deliveryDate string
"""
FIELDS = {
    "_metadata_correlationid": "_metadata.correlationId",
    "event_timestamp": "event.timestamp",
    "event_userid": "event.userId",
    "event_eventtype": "event.eventType",
    "event_metadata_ipaddress": "event.metadata.ipAddress",
    "event_metadata_deviceid": "event.metadata.deviceId",
    "event_metadata_useragent": "event.metadata.userAgent",
    "amount": "amount",
    "currency": "currency",
    "quantity": "quantity",
    "gift": "gift",
    "items": "items",
    "deliverydate": "deliveryDate",
}
TYPES = {
    "event_timestamp": "timestamp",
    "event_userid": "string",
    "event_eventtype": "string",
    "event_metadata_ipaddress": "string",
    "event_metadata_deviceid": "string",
    "amount": "decimal(18,2)",
    "currency": "string",
    "quantity": "bigint",
    "gift": "boolean",
    "deliverydate": "date",
}
_KEYS = "message_id string, idempotency_key string, publish_time timestamp, ingestion_ts bigint"


def create_tables(spark: SparkSession) -> None:
    """Both tables, partitioned like the platform's.

    Merge-on-read, because a copy-on-write MERGE works its source out twice: once to find the files to rewrite.
    """
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {NAMESPACE}")
    texts = ", ".join(f"{name} string" for name in FIELDS)
    typed = ", ".join(f"{name} {kind}" for name, kind in TYPES.items())
    for table, columns in ((STANDARDIZED, f"{_KEYS}, landing_seq bigint, {texts}"), (CURATED, f"{_KEYS}, {typed}")):
        spark.sql(
            f"CREATE TABLE {table} ({columns}) USING iceberg PARTITIONED BY (days(publish_time)) TBLPROPERTIES ("
            "'format-version' = '2', 'write.merge.mode' = 'merge-on-read', "
            "'write.target-file-size-bytes' = '268435456', 'write.parquet.compression-codec' = 'zstd')"
        )


def standardize(spark: SparkSession, raw_table: str) -> None:
    """RAW to Standardized: first copies, flattened, latest versions, merged."""
    raw = spark.read.table(raw_table)
    copies = Window.partitionBy("message_id").orderBy("landing_seq")
    messages = raw.withColumn("copy", F.row_number().over(copies)).where("copy = 1")
    flat = messages.withColumn("payload", F.from_json("json_payload", PAYLOAD)).select(
        "message_id",
        F.col("payload._metadata.idempotencyKeyResource").alias("idempotency_key"),
        "publish_time",
        "ingestion_ts",
        "landing_seq",
        *(F.col(f"payload.{path}").alias(name) for name, path in FIELDS.items()),
    )
    versions = Window.partitionBy("idempotency_key").orderBy(
        F.desc("publish_time"), F.desc("ingestion_ts"), F.desc("message_id")
    )
    latest = flat.withColumn("version", F.row_number().over(versions)).where("version = 1").drop("version")
    _merge(latest, STANDARDIZED)


def curate(spark: SparkSession, standardized_table: str) -> None:
    """Standardized to Curated: cast, Critical Data Elements there, merged."""
    standardized = spark.read.table(standardized_table)
    typed = standardized.select(
        "message_id",
        "idempotency_key",
        "publish_time",
        "ingestion_ts",
        *(F.col(name).try_cast(kind).alias(name) for name, kind in TYPES.items()),
    )
    _merge(typed.where("event_timestamp IS NOT NULL AND trim(event_userid) != ''"), CURATED)


def _merge(rows: DataFrame, table: str) -> None:
    """Put the rows in the place of those with their keys. Those without a key had a broken payload.

    They are left out here, and not by a filter before: Spark would move that down and read every payload twice.
    """
    merge = rows.alias("incoming").mergeInto(table, F.expr(f"{table}.idempotency_key = incoming.idempotency_key"))
    merge.whenMatched().updateAll().whenNotMatched(F.expr("incoming.idempotency_key IS NOT NULL")).insertAll().merge()
