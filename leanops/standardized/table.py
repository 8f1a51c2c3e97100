"""The Standardized table of a topic and the table of parse errors; and the flatten plan that a table carries.

A column's comment holds the path of the payload field that fills it. So the plan of a topic is where its columns are,
and the way back from a column's name to the field is written beside the column.
"""

from collections.abc import Iterable

from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import DayTransform, IdentityTransform
from pyiceberg.types import IntegerType, LongType, NestedField, StringType, TimestamptzType

from leanops.contracts.model import Contract
from leanops.names import Layer, table
from leanops.standardized.flatten_plan import (
    KEY_IN_PAYLOAD,
    OVERFLOW_COLUMN,
    FlatColumn,
    FlattenPlan,
    column_from_comment,
)
from leanops.tables import BY_TOPIC, KEYED, ensure_table

STANDARDIZED_SCHEMA = Schema(
    NestedField(1, "message_id", StringType(), required=True),
    NestedField(2, "idempotency_key", StringType(), required=True, doc="The record; its latest version is this row"),
    NestedField(3, "publish_time", TimestamptzType()),
    NestedField(4, "ingestion_ts", LongType(), doc="When it landed, in whole seconds since 1970"),
    NestedField(5, "landing_seq", LongType(), doc="Order of landing within the topic"),
    NestedField(6, OVERFLOW_COLUMN, StringType(), doc="Fields beyond the topic's cap on columns, as one JSON object"),
)
STANDARDIZED_PARTITIONS = PartitionSpec(PartitionField(3, 1000, DayTransform(), "publish_time_day"))

PARSE_ERRORS_SCHEMA = Schema(
    NestedField(1, "message_id", StringType(), required=True),
    NestedField(2, "topic_name", StringType(), required=True),
    NestedField(3, "publish_time", TimestamptzType()),
    NestedField(4, "ingestion_ts", LongType()),
    NestedField(5, "landing_seq", LongType()),
    NestedField(6, "idempotency_key", StringType(), doc="The key that came with the message, outside its payload"),
    NestedField(7, "json_payload", StringType(), doc="The payload's text, untouched"),
    NestedField(8, "error_kind", StringType()),
    NestedField(9, "error_reason", StringType(), doc="What is wrong, for the producer"),
    NestedField(10, "error_position", IntegerType(), doc="The character of the payload at which it is wrong"),
)
PARSE_ERRORS_PARTITIONS = PartitionSpec(
    PartitionField(2, 1000, IdentityTransform(), "topic_name"),
    PartitionField(3, 1001, DayTransform(), "publish_time_day"),
)


def ensure_standardized_table(catalog: Catalog, topic: str, contract: Contract) -> Table:
    """The topic's table with at least the columns of its envelope."""
    made = ensure_table(catalog, table(Layer.STANDARDIZED, topic), STANDARDIZED_SCHEMA, STANDARDIZED_PARTITIONS, KEYED)
    return add_columns(made, plan_of(made, contract).columns)


def reshape_standardized_table(made: Table) -> None:
    """Drop every column that messages have brought, for a table that nobody reads and that is made anew from RAW.

    When the contract maps another envelope, fields stand in other columns than before.
    """
    with made.update_schema(allow_incompatible_changes=True) as update:
        for field in made.schema().fields:
            if field.name not in STANDARDIZED_SCHEMA.column_names:
                update.delete_column(field.name)


def ensure_parse_errors_table(catalog: Catalog) -> Table:
    """The one table of all topics' parse errors."""
    return ensure_table(catalog, table(Layer.PARSE_ERRORS, ""), PARSE_ERRORS_SCHEMA, PARSE_ERRORS_PARTITIONS, BY_TOPIC)


def plan_of(standardized: Table, contract: Contract) -> FlattenPlan:
    """The plan that a table carries: the envelope's columns by the contract, then the others by their comments."""
    envelope = _envelope(contract)
    others = [column_from_comment(each.name, each.doc) for each in standardized.schema().fields]
    paths = {column.path for column in envelope}
    return FlattenPlan((*envelope, *(column for column in others if column and column.path not in paths)))


def envelope_text(contract: Contract) -> str:
    """How the contract maps the envelope, for the summary of a commit."""
    return ",".join(f"{column.name}={column.source}" for column in contract.envelope_columns)


def key_plan(contract: Contract) -> FlattenPlan:
    """A plan that reads nothing but the record's key."""
    key = tuple(column for column in _envelope(contract) if column.name == KEY_IN_PAYLOAD)
    return FlattenPlan(key, cap=len(key))


def _envelope(contract: Contract) -> list[FlatColumn]:
    return [
        FlatColumn(tuple(column.source.split(".")), _internal_name(column.name)) for column in contract.envelope_columns
    ]


def add_columns(standardized: Table, columns: Iterable[FlatColumn]) -> Table:
    """The table with a STRING column for each of `columns`; those that it has already stay as they are."""
    there = {field.name for field in standardized.schema().fields}
    missing = [column for column in columns if column.name not in there and column.name != KEY_IN_PAYLOAD]
    if missing:
        with standardized.update_schema() as update:
            for column in missing:
                update.add_column(column.name, StringType(), doc=column.comment)
    return standardized


def _internal_name(name: str) -> str:
    return KEY_IN_PAYLOAD if name == "idempotency_key" else name
