"""The Curated table of a topic and the table of contract errors."""

from collections.abc import Iterator

from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.update.schema import UpdateSchema
from pyiceberg.transforms import DayTransform
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

from leanops.batch.topics import TopicTables
from leanops.commits import checkpoint_of
from leanops.contracts.column_types import ColumnType
from leanops.contracts.model import Contract
from leanops.errors import ContractBreaking
from leanops.names import DAY_FIELD, Layer, table
from leanops.tables import KEYED, create_table, ensure_errors_of_topics

_ICEBERG_TYPES: dict[str, IcebergType] = {
    "STRING": StringType(),
    "BOOLEAN": BooleanType(),
    "INT": IntegerType(),
    "BIGINT": LongType(),
    "FLOAT": FloatType(),
    "DOUBLE": DoubleType(),
    "DATE": DateType(),
    "TIMESTAMP": TimestamptzType(),
}

KEY_COLUMNS = ("message_id", "idempotency_key", "publish_time", "ingestion_ts", "landing_seq")
CURATED_PARTITIONS = PartitionSpec(PartitionField(3, 1000, DayTransform(), DAY_FIELD))

ERRORS_SCHEMA = Schema(
    NestedField(1, "message_id", StringType(), required=True),
    NestedField(2, "idempotency_key", StringType(), required=True),
    NestedField(3, "topic_name", StringType(), required=True),
    NestedField(4, "publish_time", TimestamptzType()),
    NestedField(5, "ingestion_ts", LongType()),
    NestedField(
        6,
        "broken_rules",
        ListType(
            7,
            StructType(
                NestedField(8, "column", StringType()),
                NestedField(
                    9, "rule", StringType(), doc="cde: missing or blank; type: no value of its type; ambiguous: several"
                ),
                NestedField(10, "value", StringType(), doc="What Standardized holds"),
            ),
            element_required=False,
        ),
    ),
    NestedField(11, "contract_version", IntegerType()),
    NestedField(12, "first_seen", TimestamptzType()),
    NestedField(13, "closed", TimestamptzType(), doc="When a later version healed or replaced it; NULL while open"),
    NestedField(14, "landing_seq", LongType(), doc="Order of landing within the topic"),
)
ERRORS_PARTITIONS = PartitionSpec(PartitionField(4, 1000, DayTransform(), DAY_FIELD))


def ensure_curated_table(tables: TopicTables, contract: Contract) -> Table:
    """The topic's table, with every column of the contract: added where it is missing, widened where it has grown."""
    topic, made = tables.topic, tables.curated
    if made is None:
        name, schema = table(Layer.CURATED, topic), curated_schema(contract)
        made = tables.curated = create_table(tables.catalog, name, schema, CURATED_PARTITIONS, KEYED)
    there = {field.name: field.field_type for field in made.schema().fields}
    changed = [field for field in curated_schema(contract).fields if there.get(field.name) != field.field_type]
    if changed:
        with made.update_schema() as update:
            for field in changed:
                if field.name not in there:
                    update.add_column(field.name, field.field_type, doc=field.doc)
                else:
                    _widen(update, topic, field, there[field.name])
    return made


def reshape_curated_table(made: Table, contract: Contract) -> None:
    """Drop the columns that the contract no longer has, or has as a type that they cannot follow into in place.

    Only for a table that nobody reads and whose rows are all made anew.
    """
    wanted = {field.name: field.field_type for field in curated_schema(contract).fields}
    with made.update_schema(allow_incompatible_changes=True) as update:
        for field in made.schema().fields:
            kind = wanted.get(field.name)
            if kind is None or not (kind == field.field_type or _is_wider(kind, field.field_type)):
                update.delete_column(field.name)


def _widen(update: UpdateSchema, topic: str, field: NestedField, held: IcebergType) -> None:
    """Change a column's type if every value that it holds is a value of the new type too."""
    if not _is_wider(field.field_type, held):
        name = ".".join(table(Layer.CURATED, topic))
        raise ContractBreaking(
            f"The contract of {topic} makes {field.name} {field.field_type}, and in {name} it is {held}.",
            f"Submit it as a new version (leanops schema submit): {topic} is then rebuilt for it.",
        )
    update.update_column(field.name, field.field_type)


def _is_wider(new: IcebergType, held: IcebergType) -> bool:
    """PyIceberg itself would let the scale of a DECIMAL change too."""
    return _contract_type(new).is_wider_than(_contract_type(held))


def _contract_type(kind: IcebergType) -> ColumnType:
    if isinstance(kind, DecimalType):
        return ColumnType("DECIMAL", kind.precision, kind.scale)
    return ColumnType(next(name for name, each in _ICEBERG_TYPES.items() if each == kind))


def in_force_since(made: Table | None, contract: Contract) -> str | None:
    """When the table was first built by what the contract says, handed on from commit to commit: snapshots expire."""
    said = checkpoint_of(made)
    return said.get("contract-since") if said.get("contract") == contract.fingerprint else None


def ensure_errors_table(catalog: Catalog) -> Table:
    """The one table of all topics' contract errors."""
    return ensure_errors_of_topics(catalog, table(Layer.ERRORS, ""), ERRORS_SCHEMA, ERRORS_PARTITIONS)


def curated_schema(contract: Contract) -> Schema:
    """The keys, then the envelope's columns, then the contract's, all of these optional: a CDE is a check."""
    return Schema(*_fields(contract))


def envelope_names(contract: Contract) -> list[str]:
    """The envelope's columns that are no system columns."""
    return [column.name for column in contract.envelope_columns if column.name not in KEY_COLUMNS]


def iceberg_type(kind: ColumnType) -> IcebergType:
    """The Iceberg type of a contract's type."""
    if kind.precision is not None and kind.scale is not None:
        return DecimalType(kind.precision, kind.scale)
    return _ICEBERG_TYPES[kind.name]


def _fields(contract: Contract) -> Iterator[NestedField]:
    yield NestedField(1, "message_id", StringType(), required=True)
    yield NestedField(2, "idempotency_key", StringType(), required=True)
    yield NestedField(3, "publish_time", TimestamptzType())
    yield NestedField(4, "ingestion_ts", LongType())
    yield NestedField(5, "landing_seq", LongType())
    number = 5
    for name in envelope_names(contract):
        number += 1
        yield NestedField(number, name, StringType())
    for column in contract.payload_columns:
        number += 1
        yield NestedField(number, column.name, iceberg_type(column.type), doc=column.description)
