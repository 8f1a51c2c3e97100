"""`iceberg_raw_db.dlq_errors`: messages that never reached RAW, with the reason and where their body is archived.

A dead letter is open until it is replayed into RAW or discarded. It keeps its row either way, which says what became of
it and by whose hand.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from enum import StrEnum
from typing import Any, NamedTuple

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, EqualTo, In, IsNull
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DateType, IntegerType, LongType, NestedField, StringType, TimestamptzType

from leanops.errors import LandingConflict
from leanops.ingestion.dead_letter_row import dead_letter_row
from leanops.ingestion.processor import DeadLetter
from leanops.names import RAW_DB
from leanops.shared_tables import append_rows
from leanops.tables import SHARED, ensure_table, find_table

DEAD_LETTERS = (RAW_DB, "dlq_errors")
DEAD_LETTERS_SCHEMA = Schema(
    NestedField(1, "dead_letter_id", StringType(), required=True),
    NestedField(2, "topic_name", StringType()),
    NestedField(3, "day", DateType(), doc="Its publish day, or the day it was received where that cannot be read"),
    NestedField(4, "message_id", StringType(), doc="Where it could be read"),
    NestedField(5, "idempotency_key", StringType(), doc="Where it could be read"),
    NestedField(6, "received", TimestamptzType(), doc="When it was given up"),
    NestedField(7, "fault", StringType(), doc="malformed or unknown"),
    NestedField(8, "reason", StringType(), doc="What is wrong, for the producer"),
    NestedField(9, "receives", IntegerType(), doc="How often it had been delivered"),
    NestedField(10, "source", StringType(), doc="The queue or the file that it came from"),
    NestedField(11, "handle", StringType(), doc="What its source knew it by"),
    NestedField(12, "body_archive", StringType(), doc="Where its body is, untouched"),
    NestedField(13, "body_bytes", LongType()),
    NestedField(14, "body_sha256", StringType()),
    NestedField(15, "delivery_id", StringType(), doc="The delivery that brought it"),
    NestedField(16, "replays", IntegerType(), doc="How often somebody has tried to replay it"),
    NestedField(17, "closed", TimestamptzType(), doc="When it was replayed or discarded; NULL while it is open"),
    NestedField(18, "outcome", StringType(), doc="replayed or discarded; NULL while it is open"),
    NestedField(19, "note", StringType(), doc="Who closed it and why, or why the last replay failed"),
)
DEAD_LETTERS_PARTITIONS = PartitionSpec(
    PartitionField(2, 1000, IdentityTransform(), "topic_name"), PartitionField(3, 1001, IdentityTransform(), "day")
)
_ARROW = schema_to_pyarrow(DEAD_LETTERS_SCHEMA)
_ATTEMPTS = 20


class Outcome(StrEnum):
    """How a dead letter ends."""

    REPLAYED = "replayed"
    DISCARDED = "discarded"


class DeadLetterDelivery(NamedTuple):
    """Dead letters of one topic, and the delivery that brings them."""

    delivery_id: str
    source: str
    letters: Sequence[DeadLetter]


def ensure_dead_letters_table(catalog: Catalog) -> Table:
    """The one table of all topics' dead letters."""
    return ensure_table(catalog, DEAD_LETTERS, DEAD_LETTERS_SCHEMA, DEAD_LETTERS_PARTITIONS, SHARED)


def save_dead_letters(
    catalog: Catalog, letters: Iterable[DeadLetter], archived: Mapping[str, str], source: str, delivery_id: str
) -> None:
    """Append the dead letters of one delivery. `archived` says where each body is."""
    save_dead_letter_deliveries(catalog, [DeadLetterDelivery(delivery_id, source, list(letters))], archived)


def save_dead_letter_deliveries(
    catalog: Catalog, deliveries: Iterable[DeadLetterDelivery], archived: Mapping[str, str]
) -> None:
    """Append the dead letters of several topics in one commit. `archived` says where each body is.

    They share the table: a commit for each would write the metadata of all of them as often.
    """
    now = datetime.now(UTC)
    rows = [
        dead_letter_row(letter, archived[letter.dead_letter_id], each.source, each.delivery_id, now)
        for each in deliveries
        for letter in each.letters
    ]
    append_rows(ensure_dead_letters_table(catalog), pa.Table.from_pylist(rows, _ARROW))


def find_dead_letters(
    catalog: Catalog,
    topic: str | Collection[str] | None = None,
    ids: Collection[str] | None = None,
    only_open: bool = False,
    columns: tuple[str, ...] = ("*",),
) -> list[dict[str, Any]]:
    """The dead letters of all topics or of some, oldest first; only some of them, or only those that are open."""
    held = find_table(catalog, DEAD_LETTERS)
    if held is None or (ids is not None and not ids):
        return []
    found = held.scan(row_filter=_where(topic, ids, only_open), selected_fields=columns).to_arrow()
    rows: list[dict[str, Any]] = found.sort_by([("received", "ascending")]).to_pylist()
    return rows


def already_dead(catalog: Catalog, topic: str | Collection[str], ids: Collection[str]) -> set[str]:
    """Those of these ids that are dead letters already: their message was delivered again."""
    found = find_dead_letters(catalog, topic, ids, columns=("dead_letter_id", "received"))
    return {row["dead_letter_id"] for row in found}


def has_delivery(catalog: Catalog, topic: str, delivery_id: str) -> bool:
    """Whether the dead letters of a delivery have been committed."""
    held = find_table(catalog, DEAD_LETTERS)
    if held is None:
        return False
    where = And(_where(topic, None, only_open=False), EqualTo(term="delivery_id", value=delivery_id))
    return bool(held.scan(row_filter=where, selected_fields=("delivery_id",), limit=1).to_arrow().num_rows)


def dead_letters_by_day(catalog: Catalog, topic: str) -> dict[date, int]:
    """How many messages of each day are dead letters: those that were replayed are in RAW instead."""
    return dead_letters_by_topic(catalog, [topic])[topic]


def dead_letters_by_topic(catalog: Catalog, topics: Collection[str]) -> dict[str, dict[date, int]]:
    """The same of several topics."""
    counted: dict[str, dict[date, int]] = {topic: Counter() for topic in topics}
    for row in find_dead_letters(catalog, topics, columns=("topic_name", "day", "outcome", "received")):
        if row["outcome"] != Outcome.REPLAYED:
            counted[row["topic_name"]][row["day"]] += 1
    return counted


def update_dead_letters(catalog: Catalog, topic: str, changes: Mapping[str, Mapping[str, Any]]) -> int:
    """Change rows of a topic by their id, in one commit; how many there were. Nobody else's change is lost."""
    for _ in range(_ATTEMPTS):
        held = find_table(catalog, DEAD_LETTERS)
        if held is None:
            return 0
        where = _where(topic, changes.keys(), only_open=False)
        rows = held.scan(row_filter=where).to_arrow().to_pylist()
        if not rows:
            return 0
        changed = [{**row, **changes[row["dead_letter_id"]]} for row in rows]
        try:
            held.overwrite(pa.Table.from_pylist(changed, _ARROW), overwrite_filter=where)
        except (CommitFailedException, ValidationException):
            continue
        return len(changed)
    raise LandingConflict("The dead letters were committed to by others time and again.", "Run the same again.")


def _where(topic: str | Collection[str] | None, ids: Collection[str] | None, only_open: bool) -> BooleanExpression:
    where: BooleanExpression = AlwaysTrue()
    if topic is not None:
        topics = {topic} if isinstance(topic, str) else {*topic}
        where = And(where, In(term="topic_name", literals=topics))
    if ids is not None:
        where = And(where, In(term="dead_letter_id", literals=set(ids)))
    return And(where, IsNull(term="closed")) if only_open else where
