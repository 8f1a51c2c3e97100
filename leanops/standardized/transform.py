"""RAW to Standardized, one function per step of the spec, each from DataFrame to DataFrame, over any topics."""

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

from leanops.batch import blame
from leanops.batch.blame import topic_blamed
from leanops.batch.scan import KnownIndexes, Reshape, Task, fitted, lists_of, repeated
from leanops.contracts.model import Contract
from leanops.key_index.file import Kind
from leanops.names import OBJECTS_COLUMN, OVERFLOW_COLUMN
from leanops.standardized.flatten_plan import FlattenPlan, Path, path_from_text
from leanops.standardized.payload_reader import BOUND_MARK, reader_for, record_keys

VERSION = ("publish_time", "ingestion_ts", "message_id")
"""By what the versions of a record are ordered: the latest counts."""

ERROR_COLUMNS = ("error_kind", "error_reason", "error_position")
RECORD_KEY = "record_key"
"""The key that a message's record has, beside the one that came with the message."""

_MESSAGE = (
    StructType()
    .add("topic", StringType())
    .add("message_id", StringType())
    .add("publish_time", TimestampType())
    .add("ingestion_ts", LongType())
    .add("landing_seq", LongType())
    .add("idempotency_key", StringType())
)
MESSAGE = StructType([*_MESSAGE.fields]).add("json_payload", StringType())
"""A message of RAW."""

MESSAGE_COLUMNS = tuple(MESSAGE.names[1:])
READ = (
    StructType([*MESSAGE.fields])
    .add("error_kind", StringType())
    .add("error_reason", StringType())
    .add("error_position", IntegerType())
    .add("new_paths", StringType())
    .add(OVERFLOW_COLUMN, StringType())
    .add(OBJECTS_COLUMN, StringType())
    .add(RECORD_KEY, StringType())
    .add("texts", ArrayType(StringType()))
)
"""A message whose payload was read: the texts of its plan's columns, in their order, or what is wrong with it."""

STANDING = (
    StructType([*_MESSAGE.fields]).add("role", StringType()).add("file", StringType()).add("position", LongType())
)
"""What a message's fate depends on beside the other new ones: where copies have landed, and which versions stand."""

NEW, COPY, HELD = "new", "copy", "held"
"""What rows are to a build: its messages, others that have landed, and what the table holds."""

CANDIDATE = StructType([*READ.fields, *(STANDING[name] for name in ("role", "file", "position"))])
"""A message that was read, or what its fate depends on."""

REFUSED = StructType([READ[name] for name in (*MESSAGE_COLUMNS, *ERROR_COLUMNS)])
"""A message that could not be read, beside its topic."""

_ARROW, _ARROW_MESSAGE = to_arrow_schema(READ), to_arrow_schema(MESSAGE)
_ARROW_STANDING, _ARROW_CANDIDATE = to_arrow_schema(STANDING), to_arrow_schema(CANDIDATE)
_PLACE = StructType().add("field", StringType()).add("landing_seq", LongType()).add("place", IntegerType())


Places = dict[str, tuple[int, int]]
"""Where fields stand first: by landing, and in their payload."""


class Fate(StrEnum):
    """What happens to a message that is not written; and to a row of the table that a later version replaces."""

    PARSE_ERROR = "parse_error"
    DUPLICATE = "duplicate"
    SUPERSEDED = "superseded"
    REPLACED = "replaced"


def read_payloads(messages: DataFrame, plans: Mapping[str, FlattenPlan]) -> DataFrame:
    """Parse and flatten, by the plan of each message's topic."""
    read = payload_reader(plans)

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return map(read, batches)

    return messages.select(*MESSAGE.names).mapInArrow(work, READ)


def payload_reader(plans: Mapping[str, FlattenPlan]) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """What a worker makes of messages: the same with their payloads read."""
    seconds = blame.TOPIC_SECONDS
    # Each by itself: a worker unpacks the plans of the topics that it meets, and not those of all.
    packed = {topic: pickle.dumps(plan) for topic, plan in plans.items()}

    def read(messages: pa.RecordBatch) -> pa.RecordBatch:
        rows = pa.Table.from_batches([messages])
        topics = rows["topic"].unique().to_pylist()
        parts = []
        for topic in topics:
            with topic_blamed(topic, seconds):
                own = rows if len(topics) == 1 else rows.filter(pc.equal(rows["topic"], topic))
                parts.append(read_messages(own, pickle.loads(packed[topic])))  # noqa: S301 - our own, from above
        return (
            pa.concat_tables(parts).combine_chunks().to_batches()[0] if parts else _ARROW.empty_table().to_batches()[0]
        )

    return read


def read_messages(messages: pa.Table, plan: FlattenPlan) -> pa.Table:
    """Messages of one topic with their payloads read. A payload is kept where it is still needed."""
    payloads = messages["json_payload"].combine_chunks()
    read = reader_for(plan).read(payloads.cast(pa.binary()))
    needed = pc.or_(pc.is_valid(read.field("error_kind")), pc.is_valid(read.field("new_paths")))
    width = len(plan.columns)
    columns = {name: messages[name] for name in _MESSAGE.names}
    columns["json_payload"] = pc.if_else(needed, payloads, pa.scalar(None, pa.string()))
    columns |= {name: read.field(name) for name in (*ERROR_COLUMNS, "new_paths")}
    columns |= {OVERFLOW_COLUMN: read.field("overflow"), OBJECTS_COLUMN: read.field("objects")}
    columns[RECORD_KEY] = record_keys(read.field("key"), messages["idempotency_key"], messages["message_id"])
    columns["texts"] = lists_of([read.field(f"c{i}") for i in range(width)], len(payloads))
    return pa.table(columns).select(_ARROW.names).cast(_ARROW)


def read_with_past(task: Task, read: Reshape, seconds: float) -> Iterator[pa.RecordBatch]:
    """What a worker makes of the files of one topic: its messages, read, and such rows of the past as they may meet."""
    messages = []
    for batch in task.batches(_ARROW_MESSAGE, read, seconds):
        messages.append(batch)
        yield from fitted(_with_role(batch), _ARROW_CANDIDATE).to_batches()
    if not messages or not task.look_ups:
        return
    new, known = pa.Table.from_batches(messages), KnownIndexes()
    values = {Kind.ID.value: new["message_id"], Kind.KEY.value: new[RECORD_KEY]}
    with topic_blamed(task.topic, seconds):
        for look_up in task.look_ups:
            for rows in look_up.rows(values[look_up.by], known, _ARROW_STANDING):
                yield from fitted(pa.Table.from_batches([rows]), _ARROW_CANDIDATE).to_batches()


def _with_role(messages: pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches([messages]).append_column("role", repeated(NEW, messages.num_rows))


def candidates(rows: DataFrame) -> DataFrame:
    """All that the fates of messages depend on: they themselves, other copies, and versions that tables hold.

    Told apart by their roles. What a table holds has the key of its record, and its place.
    """
    is_held = F.col("role") == HELD
    key = F.when(is_held, F.col("idempotency_key")).otherwise(F.col(RECORD_KEY))
    return rows.where(F.col("role").isin(NEW, COPY, HELD)).withColumn(RECORD_KEY, key)


def is_copy(has_landed: Column, horizons: Mapping[str, int]) -> Column:
    """Whether a message, of those that have landed, is a copy: another with its id has landed before.

    Where the topic's contract has a horizon, in seconds, that must not have been longer ago.
    """
    seq, landed = F.col("landing_seq"), F.col("ingestion_ts")
    copies = Window.partitionBy("topic", "message_id")
    is_later = has_landed & (seq > F.min(F.when(has_landed, seq)).over(copies))
    if not horizons:
        return is_later
    before = copies.orderBy("landing_seq").rangeBetween(Window.unboundedPreceding, -1)
    is_in_time = landed - F.max(F.when(has_landed, landed)).over(before) <= _horizon(horizons)
    return is_later & F.coalesce(is_in_time, F.lit(True))


def _horizon(horizons: Mapping[str, int]) -> Column:
    # As text: a plan has room for no hundred levels of columns.
    each = " ".join(f"WHEN '{topic}' THEN {seconds}" for topic, seconds in sorted(horizons.items()))
    return F.expr(f"CASE topic {each} END")


def horizons_of(contracts: Mapping[str, Contract]) -> dict[str, int]:
    """How late a copy of a message may be, by topic, where the contract says it."""
    return {topic: each.horizon for topic, each in contracts.items() if each.horizon is not None}


def with_fates(rows: DataFrame, horizons: Mapping[str, int]) -> DataFrame:
    """Messages, each with its fate where it is not written, and the rows of the tables that are replaced.

    FIFO: of the copies of one message the first to land counts. LIFO: of the versions of one record the latest by
    publish_time, ingestion_ts and message_id counts.
    """
    is_new, is_held = F.col("role") == NEW, F.col("role") == HELD
    told_apart = rows.withColumn("is_copy", is_copy(~is_held, horizons)).where(F.col("role") != COPY)
    counts = is_held | (~F.col("is_copy") & F.col("error_kind").isNull())
    latest_first = [*(F.desc(name) for name in VERSION), is_new.desc()]
    rank = F.row_number().over(Window.partitionBy("topic", RECORD_KEY, "counts").orderBy(*latest_first))
    fate = (
        F.when(F.col("is_copy"), Fate.DUPLICATE)
        .when(F.col("error_kind").isNotNull(), Fate.PARSE_ERROR)
        .when(F.col("rank") > 1, F.when(is_new, Fate.SUPERSEDED).otherwise(Fate.REPLACED))
    )
    decided = told_apart.withColumn("counts", counts).withColumn("rank", rank).withColumn("fate", fate)
    return decided.where(is_new | F.col("fate").isNotNull()).drop("is_copy", "counts", "rank")


def first_places(messages: pa.Table) -> Places:
    """Where each field that the plan does not know, and has room for, stands first: by landing, and in its payload."""
    texts = messages.select(["new_paths", "landing_seq"]).filter(pc.is_valid(messages["new_paths"]))
    firsts = texts.group_by("new_paths").aggregate([("landing_seq", "min")]).sort_by("landing_seq_min")
    places: Places = {}
    for text, seq in zip(firsts["new_paths"].to_pylist(), firsts["landing_seq_min"].to_pylist(), strict=True):
        for place, field in enumerate(text.split("\n")):
            places.setdefault(field, (seq, place))
    return places


def in_landing_order(places: Places) -> list[Path]:
    """Fields in the order in which they landed, as paths."""
    return [path_from_text(field.removeprefix(BOUND_MARK)) for field in sorted(places, key=places.__getitem__)]


def new_fields(read: DataFrame) -> list[Path]:
    """The fields of one topic that its plan does not know and has room for, in the order in which they landed."""

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            found = first_places(pa.Table.from_batches([batch]))
            seqs, places = zip(*found.values(), strict=True) if found else ((), ())
            yield pa.record_batch(
                [pa.array([*found], pa.string()), pa.array(seqs, pa.int64()), pa.array(places, pa.int32())],
                list(_PLACE.names),
            )

    places = read.select("new_paths", "landing_seq").mapInArrow(work, _PLACE)
    firsts = places.groupBy("field").agg(F.min(F.struct("landing_seq", "place")).alias("first")).collect()
    return in_landing_order({row["field"]: tuple(row["first"]) for row in firsts})


def parse_errors(refused: DataFrame) -> DataFrame:
    """Messages whose payload is not one JSON object, with the reason, as their table has them."""
    columns = (*_MESSAGE.names[1:], "json_payload", *ERROR_COLUMNS)
    return refused.select(F.col("topic").alias("topic_name"), *columns)
