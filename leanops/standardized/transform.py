"""RAW to Standardized, one function per step of the spec, each from DataFrame to DataFrame."""

from collections.abc import Callable, Iterable
from enum import StrEnum

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.functions import arrow_udf  # type: ignore[attr-defined]  # not in its stub yet
from pyspark.sql.types import DataType, IntegerType, StringType, StructField, StructType

from leanops.blank import blank
from leanops.names import OBJECTS_COLUMN, OVERFLOW_COLUMN
from leanops.standardized.flatten_plan import FlattenPlan, Path, path_from_text
from leanops.standardized.payload_reader import BOUND_MARK, reader_for

RAW_COLUMNS = ("message_id", "topic_name", "publish_time", "ingestion_ts", "landing_seq", "idempotency_key")
ERROR_COLUMNS = ("error_kind", "error_reason", "error_position")
VERSION = ("publish_time", "ingestion_ts", "message_id")
"""By what the versions of a record are ordered: the latest counts."""

RECORD_KEY = "record_key"
"""The key that a message's record has, beside the one that came with the message."""

_KEY_IN_PAYLOAD = "key_in_payload"
_SAID: dict[str, DataType] = {
    "error_kind": StringType(),
    "error_reason": StringType(),
    "error_position": IntegerType(),
    "new_paths": StringType(),
    "overflow": StringType(),
    "objects": StringType(),
    "key": StringType(),
}
"""What the reader says of a payload before its columns."""


class Fate(StrEnum):
    """What becomes of a message that is not written; and of a row of the table that a later version replaces."""

    PARSE_ERROR = "parse_error"
    DUPLICATE = "duplicate"
    SUPERSEDED = "superseded"
    REPLACED = "replaced"


def read_payloads(messages: DataFrame, plan: FlattenPlan) -> DataFrame:
    """Parse and flatten: the plan's columns, by their places, or the error and the payload untouched.

    Until they are written the columns are called `c0`, `c1` and so on: fields may be called like anything in here.
    """
    payload = _payload_udf(plan)(F.col("json_payload").cast("binary"))
    error = F.col("read.error_kind")
    return messages.withColumn("read", payload).select(
        *RAW_COLUMNS,
        F.when(error.isNotNull(), F.col("json_payload")).alias("json_payload"),
        *(F.col(f"read.{name}") for name in ERROR_COLUMNS),
        F.col("read.new_paths"),
        F.col("read.overflow").alias(OVERFLOW_COLUMN),
        F.col("read.objects").alias(OBJECTS_COLUMN),
        F.col("read.key").alias(_KEY_IN_PAYLOAD),
        *(F.col(f"read.c{i}") for i in range(len(plan.columns))),
    )


def map_envelope(read: DataFrame) -> DataFrame:
    """A record's key is the one in its payload, else the one that came with the message, else the message's id."""
    keys = (F.when(~blank(F.col(name)), F.col(name)) for name in (_KEY_IN_PAYLOAD, "idempotency_key"))
    return read.withColumn(RECORD_KEY, F.coalesce(*keys, "message_id"))


def new_paths(read: DataFrame, plan: FlattenPlan) -> list[Path]:
    """Fields that the plan does not know and has room for, in the order in which they first landed."""
    path = F.posexplode(F.split("new_paths", "\n")).alias("place", "path")
    places = read.where(F.col("new_paths").isNotNull()).select("landing_seq", path)
    first = F.min(F.struct("landing_seq", "place")).alias("first")
    is_bound = F.startswith("path", F.lit(BOUND_MARK))
    found = places.groupBy("path").agg(first)
    others = found.where(~is_bound).orderBy("first").limit(max(0, plan.cap - len(plan.columns)))
    found = found.where(is_bound).unionAll(others)
    return [path_from_text(row.path.removeprefix(BOUND_MARK)) for row in found.orderBy("first").collect()]


def narrow(read: DataFrame) -> DataFrame:
    """What a message's fate depends on."""
    is_refused = F.col("error_kind").isNotNull().alias("is_refused")
    return read.select(
        "landing_seq", "message_id", F.col(RECORD_KEY).alias("key"), "publish_time", "ingestion_ts", is_refused
    )


def fates(messages: DataFrame, copies: DataFrame | None, held: DataFrame | None) -> DataFrame:
    """What becomes of each message that is not written, and which rows of the table are replaced, by landing_seq.

    FIFO: of the copies of one message the first to land counts; `copies` are those that landed outside of `messages`.
    LIFO: of the versions of one record the latest by publish_time, ingestion_ts and message_id counts; `held` are
    those that the table holds.
    """
    messages = messages.withColumn("is_new", F.lit(True))
    everywhere = messages if copies is None else messages.unionByName(copies, allowMissingColumns=True)
    first = F.min("landing_seq").over(Window.partitionBy("message_id"))
    told_apart = everywhere.withColumn("is_copy", F.col("landing_seq") > first)
    if copies is not None:
        told_apart = told_apart.where("is_new")
    versions = told_apart.withColumn("counts", ~F.col("is_copy") & ~F.col("is_refused"))
    if held is not None:
        versions = versions.unionByName(held.withColumn("counts", F.lit(True)), allowMissingColumns=True)
    latest_first = [F.desc(name) for name in VERSION]
    rank = F.row_number().over(Window.partitionBy("key", "counts").orderBy(*latest_first, F.desc_nulls_last("is_new")))
    fate = (
        F.when(F.col("is_copy"), Fate.DUPLICATE)
        .when(F.col("is_refused"), Fate.PARSE_ERROR)
        .when(F.col("rank") > 1, F.when(F.col("is_new"), Fate.SUPERSEDED).otherwise(Fate.REPLACED))
    )
    return versions.withColumn("rank", rank).select("landing_seq", fate.alias("fate")).where("fate IS NOT NULL")


def parse_errors(refused: DataFrame) -> DataFrame:
    """Messages whose payload is not one JSON object, with the reason, as their table has them."""
    return refused.select(*RAW_COLUMNS, "json_payload", *ERROR_COLUMNS)


def flat_rows(written: DataFrame, plan: FlattenPlan, columns: Iterable[str]) -> DataFrame:
    """The other messages, with all `columns` of Standardized; those that nothing fills any more are NULL."""
    filled = {name: name for name in (*RAW_COLUMNS, OVERFLOW_COLUMN, OBJECTS_COLUMN)}
    filled |= {column.name: f"c{i}" for i, column in enumerate(plan.columns)} | {"idempotency_key": RECORD_KEY}
    return written.select(
        *(F.col(filled[name]).alias(name) if name in filled else F.lit(None).alias(name) for name in columns)
    )


def _payload_udf(plan: FlattenPlan) -> Callable[[Column], Column]:
    # A type, not its text: that would be parsed by the server of whichever session is the active one.
    columns = {f"c{i}": StringType() for i in range(len(plan.columns))}

    @arrow_udf(StructType([StructField(name, kind) for name, kind in {**_SAID, **columns}.items()]))  # type: ignore[untyped-decorator]
    def read_payload(payloads: pa.Array) -> pa.Array:
        return reader_for(plan).read(payloads)

    # Deterministic, but Spark must not be free to run it once for the filter and again for the columns.
    udf: Callable[[Column], Column] = read_payload.asNondeterministic()
    return udf
