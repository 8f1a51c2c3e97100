"""The RAW table of a topic: the immutable audit trail of what landed."""

from datetime import UTC, datetime

from pyiceberg.catalog import Catalog
from pyiceberg.conversions import from_bytes
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.snapshots import ancestors_of
from pyiceberg.transforms import DayTransform
from pyiceberg.types import LongType, NestedField, StringType, TimestamptzType

from leanops.names import DAY_FIELD, Layer, table
from leanops.tables import LANDED, ensure_table

RAW_SCHEMA = Schema(
    NestedField(1, "message_id", StringType(), required=True),
    NestedField(2, "topic_name", StringType()),
    NestedField(3, "json_payload", StringType(), doc="The payload's text, untouched"),
    NestedField(4, "ingestion_ts", LongType(), doc="When it landed, in whole seconds since 1970"),
    NestedField(5, "publish_time", TimestamptzType()),
    NestedField(6, "idempotency_key", StringType(), doc="The key that came with the message, outside its payload"),
    NestedField(7, "landing_seq", LongType(), doc="1, 2, 3 … in order of landing within the topic"),
)
_LANDING_SEQ = 7
RAW_PARTITIONS = PartitionSpec(PartitionField(5, 1000, DayTransform(), DAY_FIELD))


LAST_SEQ = "leanops.last-landing-seq"
"""Where each commit to RAW says which number its last row has."""

DELIVERY = "leanops.delivery"
"""Where a commit to RAW says which delivery it is."""


def ensure_raw_table(catalog: Catalog, topic: str) -> Table:
    """The RAW table of `topic`, created if this is the first that is heard of it."""
    return ensure_table(catalog, table(Layer.RAW, topic), RAW_SCHEMA, RAW_PARTITIONS, LANDED)


def last_landing_seq(raw: Table | None) -> int:
    """The number of the row that landed last, 0 before the first."""
    for snapshot in ancestors_of(raw.current_snapshot(), raw.metadata) if raw else ():
        if snapshot.summary and (said := snapshot.summary.additional_properties.get(LAST_SEQ)):
            return int(said)
    return max(map(_highest, raw.scan().plan_files()), default=0) if raw else 0


def has_delivery(raw: Table | None, delivery_id: str) -> bool:
    """Whether a delivery has been committed, as far back as snapshots are kept."""
    return any(
        snapshot.summary and snapshot.summary.additional_properties.get(DELIVERY) == delivery_id
        for snapshot in (raw.metadata.snapshots if raw else ())
    )


def landings(raw: Table | None) -> list[datetime]:
    """When something landed, as far back as snapshots are kept. A compaction is no landing."""
    return [
        datetime.fromtimestamp(snapshot.timestamp_ms / 1000, UTC)
        for snapshot in (raw.metadata.snapshots if raw else ())
        if snapshot.summary and LAST_SEQ in snapshot.summary.additional_properties
    ]


def _highest(task: FileScanTask) -> int:
    """The highest number in a file, for a table whose commits by the platform have all expired."""
    bound = (task.file.upper_bounds or {}).get(_LANDING_SEQ)
    return int(from_bytes(LongType(), bound)) if bound else 0
