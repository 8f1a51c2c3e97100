"""The same messages into a Hudi table with the record-level index. Runs in an environment of its own.

`hudi_job.py MESSAGES WORK ROUNDS IVY TABLE_TYPE` prints one line of JSON: the versions, the seconds of each round's
loads, and the folder of the last round's rows as plain Parquet. Written as Hudi's guides do: `from_json`, then the data
source with `upsert`. A record key must not be NULL, so messages whose JSON is broken are filtered out.
"""

import json
import sys
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

BUNDLE = "org.apache.hudi:hudi-spark3.5-bundle_2.12:1.2.0"
ENVELOPE = "message_id string, publish_time timestamp, ingestion_ts bigint, payload string"
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
    deliveryDate string,
    serial string,
    rate string,
    price string,
    extreme string
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
    "serial": "serial",
    "rate": "rate",
    "price": "price",
    "extreme": "extreme",
}
NUMBER_FIELDS = ("amount", "quantity", "serial", "rate", "price", "extreme")
SPARK = {
    "spark.jars.packages": BUNDLE,
    "spark.driver.memory": "2g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
    "spark.ui.enabled": "false",
    # What Hudi's quick start asks for.
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
    "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
    "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
}
HUDI = {
    "hoodie.datasource.write.operation": "upsert",
    "hoodie.datasource.write.recordkey.field": "idempotency_key",
    "hoodie.datasource.write.partitionpath.field": "publish_day",
    "hoodie.table.ordering.fields": "publish_time",
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.global.record.level.index.enable": "true",
    # The default of ten is for a cluster: ten files of an index to look keys up in, by two cores.
    "hoodie.metadata.global.record.level.index.min.filegroup.count": "2",
    # And sixty tasks to sort out what has moved.
    "hoodie.global.index.reconcile.parallelism": "2",
    "hoodie.index.type": "GLOBAL_RECORD_LEVEL_INDEX",
    # A correction of another day moves the record to that day, as it does in the other tables.
    "hoodie.record.index.update.partition.path": "true",
}


def main(messages: Path, work: Path, rounds: int, ivy: Path, table_type: str) -> None:
    """Load a small table for warmth, then both halves into a new table in each round."""
    builder = SparkSession.builder.master("local[2]").appName("peers").config("spark.jars.ivy", str(ivy))
    for name, value in {**SPARK, "spark.local.dir": str(work / "scratch")}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    _load_both(spark, messages / "warm", work / "warm", table_type)
    seconds = []
    for number in range(rounds):
        table = work / f"round_{number}"
        seconds.append(_load_both(spark, messages / "messages", table, table_type))
    rows = work / "rows"
    columns = ("idempotency_key", "message_id", "publish_time", *NUMBER_FIELDS)
    spark.read.format("hudi").load(str(table)).select(*columns).coalesce(1).write.parquet(str(rows))
    versions = {"hudi": BUNDLE.rpartition(":")[2], "spark": spark.version}
    print(json.dumps({"versions": versions, "seconds": seconds, "rows": str(rows)}))
    spark.stop()


def _load_both(spark: SparkSession, messages: Path, table: Path, table_type: str) -> list[float]:
    return [_load(spark, messages / f"{half}.ndjson", table, table_type) for half in ("first", "second")]


def _load(spark: SparkSession, file: Path, table: Path, table_type: str) -> float:
    begun = time.perf_counter()
    options = {**HUDI, "hoodie.table.name": "messages", "hoodie.datasource.write.table.type": table_type}
    rows = _flat(spark.read.schema(ENVELOPE).json(str(file)))
    rows.write.format("hudi").options(**options).mode("append").save(str(table))
    return time.perf_counter() - begun


def _flat(envelopes: DataFrame) -> DataFrame:
    return (
        envelopes.withColumn("fields", F.from_json("payload", PAYLOAD))
        .select(
            F.col("fields._metadata.idempotencyKeyResource").alias("idempotency_key"),
            "message_id",
            "publish_time",
            "ingestion_ts",
            F.to_date("publish_time").cast("string").alias("publish_day"),
            *(F.col(f"fields.{path}").alias(name) for name, path in FIELDS.items()),
        )
        .where("idempotency_key IS NOT NULL")
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]), sys.argv[5])
