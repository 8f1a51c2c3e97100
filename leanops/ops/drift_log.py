"""`ops_db.drift_log`: which columns appeared, when and for which field; and which types contracts wanted to change."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, EqualTo, GreaterThan
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import MonthTransform
from pyiceberg.types import NestedField, StringType, TimestamptzType

from leanops.contracts.diff import Diff
from leanops.contracts.model import Contract
from leanops.curated.table import in_force_since
from leanops.names import OPS_DB, Layer, table
from leanops.shared_tables import append_rows
from leanops.standardized.flatten_plan import FlattenPlan, path_from_text, path_text
from leanops.standardized.table import plan_of
from leanops.tables import SHARED, ensure_table, find_table

_ALL = AlwaysTrue()
NEW_COLUMN, EXISTING_COLUMN, TYPE_CHANGE = "new_column", "existing_column", "type_change"
DRIFT_LOG = (OPS_DB, "drift_log")
DRIFT_SCHEMA = Schema(
    NestedField(1, "topic", StringType(), required=True),
    NestedField(2, "column", StringType(), required=True),
    NestedField(3, "change", StringType(), doc="new_column, existing_column (there before the log) or type_change"),
    NestedField(4, "field", StringType(), doc="The path of the payload field, as a JSON array"),
    NestedField(5, "logged", TimestamptzType()),
    NestedField(6, "detail", StringType(), doc="Of a type_change: from what to what, by which version, how grave"),
)
DRIFT_PARTITIONS = PartitionSpec(PartitionField(5, 1000, MonthTransform(), "logged_month"))


def log_drift(catalog: Catalog, topic: str, plan: FlattenPlan, change: str = NEW_COLUMN) -> int:
    """Log every column of the plan that is not in the log yet: however often it is called, each appears there once."""
    logged = {row["column"] for row in _logged(catalog, topic) if row["change"] != TYPE_CHANGE}
    return _append(
        catalog,
        topic,
        change,
        (
            {"column": column.name, "field": path_text(column.path)}
            for column in plan.columns
            if column.name not in logged
        ),
    )


def log_existing(catalog: Catalog, topic: str, contract: Contract) -> int:
    """Log the columns that Standardized had before there was a log; how many there were."""
    standardized = find_table(catalog, table(Layer.STANDARDIZED, topic))
    return log_drift(catalog, topic, plan_of(standardized, contract), EXISTING_COLUMN) if standardized else 0


def log_type_changes(catalog: Catalog, topic: str, version: int, diff: Diff) -> None:
    """Log the types that a version of the contract changes, each once."""
    logged = {(row["column"], row["detail"]) for row in _logged(catalog, topic)}
    attempted = [
        {"column": change.column, "detail": f"version {version}: {change.what} ({change.impact})"}
        for change in diff.changes
        if change.is_of_type
    ]
    _append(catalog, topic, TYPE_CHANGE, (row for row in attempted if (row["column"], row["detail"]) not in logged))


def new_columns(catalog: Catalog, topic: str, contract: Contract) -> list[str]:
    """The columns that have appeared since Curated was first built by this contract, and that it does not know."""
    first = in_force_since(find_table(catalog, table(Layer.CURATED, topic)), contract)
    if first is None:
        return []
    # Every check asks: by the moment the months before are left out.
    since = GreaterThan(term="logged", value=first)
    appeared = [row for row in _logged(catalog, topic, since) if row["change"] == NEW_COLUMN]
    known = {column.path for column in contract.envelope_columns}
    paths = {row["column"]: path_from_text(row["field"]) for row in appeared}
    return sorted(name for name, path in paths.items() if path not in known and path not in contract.bound_fields)


def _logged(catalog: Catalog, topic: str, also: BooleanExpression = _ALL) -> list[dict[str, Any]]:
    where = And(EqualTo(term="topic", value=topic), also)
    rows: list[dict[str, Any]] = ensure_drift_log(catalog).scan(row_filter=where).to_arrow().to_pylist()
    return rows


def _append(catalog: Catalog, topic: str, change: str, rows: Iterable[Mapping[str, Any]]) -> int:
    """Log rows in one commit; how many there were."""
    now = datetime.now(UTC)
    if found := [{"topic": topic, "change": change, "logged": now, **row} for row in rows]:
        append_rows(ensure_drift_log(catalog), pa.Table.from_pylist(found, schema_to_pyarrow(DRIFT_SCHEMA)))
    return len(found)


def ensure_drift_log(catalog: Catalog) -> Table:
    """The one log of all topics' drift. A home of old has one without the later columns."""
    log = ensure_table(catalog, DRIFT_LOG, DRIFT_SCHEMA, DRIFT_PARTITIONS, SHARED)
    if len(log.schema().fields) < len(DRIFT_SCHEMA.fields):
        with log.update_schema() as update:
            update.union_by_name(DRIFT_SCHEMA)
    return log
