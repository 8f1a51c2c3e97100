"""The Standardized table of a topic and the table of parse errors; and the flatten plan that a table carries.

A column's comment holds the path of the payload field that fills it. So the plan of a topic is where its columns are,
and the way back from a column's name to the field is written beside the column.
"""

import hashlib
from collections.abc import Iterable

from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import DayTransform
from pyiceberg.types import IntegerType, LongType, NestedField, StringType, TimestamptzType

from leanops.batch.topics import TopicTables
from leanops.commits import checkpoint_of
from leanops.contracts.model import RULES_VERSION, Contract
from leanops.names import DAY_FIELD, OBJECTS_COLUMN, OVERFLOW_COLUMN, Layer, table
from leanops.standardized.flatten_plan import (
    FlatColumn,
    FlattenPlan,
    column_from_comment,
    free_name,
    path_text,
)
from leanops.tables import KEYED_TEXTS, create_table, ensure_errors_of_topics

STANDARDIZED_SCHEMA = Schema(
    NestedField(1, "message_id", StringType(), required=True),
    NestedField(2, "idempotency_key", StringType(), required=True, doc="The record; its latest version is this row"),
    NestedField(3, "publish_time", TimestamptzType()),
    NestedField(4, "ingestion_ts", LongType(), doc="When it landed, in whole seconds since 1970"),
    NestedField(5, "landing_seq", LongType(), doc="Order of landing within the topic"),
    NestedField(6, OVERFLOW_COLUMN, StringType(), doc="Fields beyond the topic's cap on columns, as one JSON object"),
    NestedField(
        7,
        OBJECTS_COLUMN,
        StringType(),
        doc="Objects none of whose fields has a column, such as empty ones: their paths, by the name of a column there",
    ),
)
STANDARDIZED_PARTITIONS = PartitionSpec(PartitionField(3, 1000, DayTransform(), DAY_FIELD))

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
PARSE_ERRORS_PARTITIONS = PartitionSpec(PartitionField(3, 1000, DayTransform(), DAY_FIELD))


def ensure_standardized_table(tables: TopicTables, contract: Contract) -> Table:
    """The topic's table with at least the columns of its envelope."""
    made = tables.standardized
    if made is None:
        envelope = plan_of(STANDARDIZED_SCHEMA, contract).columns
        schema = Schema(*STANDARDIZED_SCHEMA.fields, *new_fields(STANDARDIZED_SCHEMA, 0, envelope))
        identifier = table(Layer.STANDARDIZED, tables.topic)
        made = tables.standardized = create_table(
            tables.catalog, identifier, schema, STANDARDIZED_PARTITIONS, KEYED_TEXTS
        )
    _add_system_columns(made)
    return add_columns(made, plan_of(made.schema(), contract).columns)


def _add_system_columns(made: Table) -> None:
    """Give a table of old the system columns that came since, in the place of payload fields that are called so."""
    there = {column.name: column for column in flat_columns(made.schema())}
    names = [field.name for field in made.schema().fields]
    missing = [field for field in STANDARDIZED_SCHEMA.fields if field.name not in names or field.name in there]
    if missing:
        with made.update_schema() as update:
            for field in missing:
                if field.name in there:
                    update.rename_column(field.name, free_name(there[field.name].path, {*names}))
        with made.update_schema() as update:
            for field in missing:
                update.add_column(field.name, field.field_type, doc=field.doc)


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
    return ensure_errors_of_topics(catalog, table(Layer.PARSE_ERRORS, ""), PARSE_ERRORS_SCHEMA, PARSE_ERRORS_PARTITIONS)


def flat_columns(schema: Schema) -> list[FlatColumn]:
    """The columns of a table that payload fields fill, by their comments."""
    return [column for each in schema.fields if (column := column_from_comment(each.name, each.doc))]


def plan_of(standardized: Schema, contract: Contract) -> FlattenPlan:
    """The plan that a table's columns carry: the envelope's columns by the contract, then the others by their comments.

    The field with the record's key has a column of its own only if a column of the contract is bound to it, or to an
    object that it is in.
    """
    bound, key = contract.bound_fields, contract.key_path
    envelope = [
        FlatColumn(column.path, column.name) for column in contract.envelope_columns if column.name != "idempotency_key"
    ]
    names, paths = {column.name for column in envelope}, {column.path for column in envelope}
    has_column = key is not None and bound.reach(key)
    if key and not has_column:
        paths.add(key)
    others = [column for column in flat_columns(standardized) if column.path not in paths and column.name not in names]
    columns = [*envelope, *others]
    if key and has_column and key not in {column.path for column in columns}:
        taken = {column.name for column in columns} | {*standardized.column_names}
        columns.insert(len(envelope), FlatColumn(key, free_name(key, taken)))
    return FlattenPlan(tuple(columns), bound=bound, key=key)


def mapping_of(contract: Contract, plan: FlattenPlan) -> str:
    """What of the contract says what Standardized holds, in short, for the summary of a commit.

    That is the envelope, whether the key's field has a column, how late a copy may be, and, once not all fields have a
    column, which ones must.
    """
    said = [f"rules {RULES_VERSION}", *(f"{each.name}={each.source}" for each in contract.envelope_columns)]
    if contract.horizon is not None:
        said.append(f"copies within {contract.horizon} seconds")
    if plan.key:
        said.append(f"key has a column: {plan.bound.reach(plan.key)}")
    if plan.is_full:
        said += [*sorted(plan.bound.names), *map(path_text, sorted(plan.bound.paths))]
    return hashlib.sha256("\n".join(said).encode()).hexdigest()[:16]


def is_mapped_by(standardized: Table | None, contract: Contract) -> bool:
    """Whether a table holds what the contract asks of it, or nothing that would have to be read again."""
    said = checkpoint_of(standardized)
    if standardized is None or not said:
        return True
    return said.get("mapping") == mapping_of(contract, plan_of(standardized.schema(), contract))


def key_plan(contract: Contract) -> FlattenPlan:
    """A plan that reads nothing but the record's key."""
    return FlattenPlan(cap=0, key=contract.key_path)


def add_columns(standardized: Table, columns: Iterable[FlatColumn]) -> Table:
    """The table with a STRING column for each of `columns`; those that it has already stay as they are."""
    if missing := new_fields(standardized.schema(), standardized.metadata.last_column_id, columns):
        with standardized.update_schema() as update:
            for field in missing:
                update.add_column(field.name, field.field_type, doc=field.doc)
    return standardized


def new_fields(schema: Schema, last_id: int, columns: Iterable[FlatColumn]) -> list[NestedField]:
    """A STRING field for each of `columns` that a table has not, under the ids that Iceberg gives to new columns."""
    there = {*schema.column_names}
    missing = (column for column in columns if column.name not in there)
    first = max(last_id, schema.highest_field_id) + 1
    return [
        NestedField(first + i, column.name, StringType(), required=False, doc=column.comment)
        for i, column in enumerate(missing)
    ]
