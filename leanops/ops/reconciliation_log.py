"""`ops_db.reconciliation_log`: the ledger of each topic and day, each time it was drawn up."""

from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import MonthTransform
from pyiceberg.types import BooleanType, DateType, DoubleType, LongType, NestedField, StringType, TimestamptzType

from leanops.names import OPS_DB, Layer
from leanops.shared_tables import append_rows
from leanops.tables import ensure_table

RECONCILIATION_LOG = (OPS_DB, "reconciliation_log")
RECONCILIATION_SCHEMA = Schema(
    NestedField(1, "topic", StringType(), required=True),
    NestedField(2, "layer", StringType(), required=True),
    NestedField(3, "day", DateType()),
    NestedField(4, "drawn_up", TimestamptzType()),
    NestedField(5, "run_id", StringType()),
    NestedField(6, "looked_at", StringType(), doc="Whether the day was looked at as a whole"),
    NestedField(7, "upto", LongType(), doc="The landing_seq of the last message that the layer stands for"),
    NestedField(8, "raw", LongType()),
    NestedField(9, "standardized", LongType()),
    NestedField(10, "parse_errors", LongType()),
    NestedField(11, "duplicates", LongType()),
    NestedField(12, "superseded", LongType()),
    NestedField(13, "curated", LongType()),
    NestedField(14, "open_errors", LongType()),
    NestedField(15, "accounted_percent", DoubleType()),
    NestedField(16, "does_not_add_up", LongType(), doc="Rows without exactly one fate"),
    NestedField(17, "closed", BooleanType()),
    NestedField(18, "received", LongType(), doc="Of RAW: messages that were received"),
    NestedField(19, "dead_letters", LongType(), doc="Of RAW: messages that are dead letters"),
    NestedField(20, "in_flight", LongType(), doc="Of RAW: messages that were received and stand nowhere yet"),
    NestedField(21, "pending", LongType(), doc="Rows of the layer before that are not built yet"),
    NestedField(22, "pending_since", TimestamptzType(), doc="When the first of them landed"),
)
_PARTITIONS = PartitionSpec(PartitionField(4, 1000, MonthTransform(), "drawn_up_month"))


def ledger_row(topic: str, layer: Layer, day: date, run_id: str | None, numbers: Mapping[str, Any]) -> dict[str, Any]:
    """A line of the log, from the numbers of an account."""
    row = {field.name: numbers.get(field.name) for field in RECONCILIATION_SCHEMA.fields}
    row["pending_since"] = datetime.fromisoformat(since) if (since := row["pending_since"]) else None
    return {**row, "topic": topic, "layer": layer.value, "day": day, "run_id": run_id, "drawn_up": datetime.now(UTC)}


def log_ledgers(catalog: Catalog, rows: Iterable[Mapping[str, Any]]) -> None:
    """Append lines, all in one commit."""
    if rows := list(rows):
        log = ensure_table(catalog, RECONCILIATION_LOG, RECONCILIATION_SCHEMA, _PARTITIONS)
        if log.schema().column_names != RECONCILIATION_SCHEMA.column_names:
            with log.update_schema() as update:
                update.union_by_name(RECONCILIATION_SCHEMA)
        append_rows(log, pa.Table.from_pylist(rows, schema_to_pyarrow(RECONCILIATION_SCHEMA)))
