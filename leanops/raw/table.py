"""The RAW table of a topic: the immutable audit trail of what landed."""

from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import DayTransform
from pyiceberg.types import LongType, NestedField, StringType, TimestamptzType

from leanops.names import Layer, table
from leanops.tables import ensure_table

RAW_SCHEMA = Schema(
    NestedField(1, "message_id", StringType(), required=True),
    NestedField(2, "topic_name", StringType()),
    NestedField(3, "json_payload", StringType(), doc="The payload's text, untouched"),
    NestedField(4, "ingestion_ts", LongType(), doc="When it landed, in whole seconds since 1970"),
    NestedField(5, "publish_time", TimestamptzType()),
    NestedField(6, "idempotency_key", StringType(), doc="The key that came with the message, outside its payload"),
    NestedField(7, "landing_seq", LongType(), doc="Order of landing within the topic; never ties"),
)
RAW_PARTITIONS = PartitionSpec(PartitionField(5, 1000, DayTransform(), "publish_time_day"))


def ensure_raw_table(catalog: Catalog, topic: str) -> Table:
    """The RAW table of `topic`, created if this is the first that is heard of it."""
    return ensure_table(catalog, table(Layer.RAW, topic), RAW_SCHEMA, RAW_PARTITIONS)
