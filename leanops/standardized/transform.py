"""RAW to Standardized, one function per step of the spec, each from DataFrame to DataFrame."""

from collections.abc import Callable

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F
from pyspark.sql.functions import arrow_udf  # type: ignore[attr-defined]  # not in its stub yet

from leanops.standardized.flatten_plan import KEY_IN_PAYLOAD, OVERFLOW_COLUMN, FlattenPlan, Path, path_from_text
from leanops.standardized.payload_reader import reader_for

RAW_COLUMNS = ("message_id", "topic_name", "publish_time", "ingestion_ts", "landing_seq", "idempotency_key")
ERROR_COLUMNS = ("error_kind", "error_reason", "error_position")


def first_copies(raw: DataFrame) -> DataFrame:
    """FIFO: of the copies of one message the first to land counts."""
    return _first_of_each(raw, Window.partitionBy("message_id").orderBy("landing_seq"))


def read_payloads(messages: DataFrame, plan: FlattenPlan) -> DataFrame:
    """Parse and flatten: the plan's columns, or the error and the payload untouched."""
    payload = _payload_udf(plan)(F.col("json_payload").cast("binary"))
    error = F.col("read.error_kind")
    return messages.withColumn("read", payload).select(
        *RAW_COLUMNS,
        F.when(error.isNotNull(), F.col("json_payload")).alias("json_payload"),
        *(F.col(f"read.{name}") for name in ERROR_COLUMNS),
        F.col("read.new_paths"),
        F.col("read.overflow").alias(OVERFLOW_COLUMN),
        *(F.col(f"read.c{i}").alias(column.name) for i, column in enumerate(plan.columns)),
    )


def parse_errors(read: DataFrame) -> DataFrame:
    """Messages whose payload is not one JSON object, with the reason."""
    return read.where(F.col("error_kind").isNotNull()).select(*RAW_COLUMNS, "json_payload", *ERROR_COLUMNS)


def readable(read: DataFrame) -> DataFrame:
    """The other messages."""
    return read.where(F.col("error_kind").isNull()).drop("topic_name", "json_payload", "new_paths", *ERROR_COLUMNS)


def new_paths(read: DataFrame, plan: FlattenPlan) -> list[Path]:
    """Fields that the plan does not know, in the order in which they first landed, as many as it has room for."""
    path = F.posexplode(F.split("new_paths", "\n")).alias("place", "path")
    places = read.where(F.col("new_paths").isNotNull()).select("landing_seq", path)
    first = F.min(F.struct("landing_seq", "place")).alias("first")
    found = places.groupBy("path").agg(first).orderBy("first").limit(plan.cap - len(plan.columns)).select("path")
    return [path_from_text(row.path) for row in found.collect()]


def map_envelope(flat: DataFrame) -> DataFrame:
    """A record's key is the one in its payload, else the one that came with the message, else the message's id."""
    keys = [name for name in (KEY_IN_PAYLOAD, "idempotency_key") if name in flat.columns]
    key = F.coalesce(*(_not_blank(F.col(name)) for name in keys), F.col("message_id"))
    return flat.withColumn("idempotency_key", key).drop(KEY_IN_PAYLOAD)


def latest_versions(flat: DataFrame) -> DataFrame:
    """LIFO: of the versions of one record the latest by publish_time, ingestion_ts and message_id counts."""
    latest_first = [F.desc(name) for name in ("publish_time", "ingestion_ts", "message_id")]
    return _first_of_each(flat, Window.partitionBy("idempotency_key").orderBy(*latest_first))


def _first_of_each(rows: DataFrame, ranking: WindowSpec) -> DataFrame:
    return rows.withColumn("rank", F.row_number().over(ranking)).where("rank = 1").drop("rank")


def _payload_udf(plan: FlattenPlan) -> Callable[[Column], Column]:
    columns = "".join(f", c{i}: string" for i in range(len(plan.columns)))

    @arrow_udf(  # type: ignore[untyped-decorator]
        "struct<error_kind: string, error_reason: string, error_position: int, "
        f"new_paths: string, overflow: string{columns}>"
    )
    def read_payload(payloads: pa.Array) -> pa.Array:
        return reader_for(plan).read(payloads)

    # Deterministic, but Spark must not be free to run it once for the filter and again for the columns.
    udf: Callable[[Column], Column] = read_payload.asNondeterministic()
    return udf


def _not_blank(text: Column) -> Column:
    return F.when(F.trim(text) != "", text)
