"""`ops_db.drift_log`: which columns appeared, when and for which field; and which types contracts wanted to change."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import And, BooleanExpression, EqualTo, GreaterThan, In
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
from leanops.standardized.flatten_plan import FlatColumn, path_from_text, path_text
from leanops.standardized.table import plan_of
from leanops.tables import SHARED, ensure_table, find_table

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


def log_drift(catalog: Catalog, columns: Mapping[str, Iterable[FlatColumn]], change: str = NEW_COLUMN) -> int:
    """Log the columns of topics that are not in the log yet, in one commit; how many there were.

    However often it is called, each appears there once.
    """
    if not columns:
        return 0
    rows = _logged(catalog, In(term="topic", literals=set(columns)))
    logged = {(row["topic"], row["column"]) for row in rows if row["change"] != TYPE_CHANGE}
    return _append(
        catalog,
        change,
        (
            {"topic": topic, "column": column.name, "field": path_text(column.path)}
            for topic, found in columns.items()
            for column in found
            if (topic, column.name) not in logged
        ),
    )


def log_existing(catalog: Catalog, topic: str, contract: Contract) -> int:
    """Log the columns that Standardized had before there was a log; how many there were."""
    standardized = find_table(catalog, table(Layer.STANDARDIZED, topic))
    if standardized is None:
        return 0
    return log_drift(catalog, {topic: plan_of(standardized.schema(), contract).columns}, EXISTING_COLUMN)


def log_type_changes(catalog: Catalog, topic: str, version: int, diff: Diff) -> None:
    """Log the types that a version of the contract changes, each once."""
    logged = {(row["column"], row["detail"]) for row in _logged(catalog, EqualTo(term="topic", value=topic))}
    attempted = [
        {"topic": topic, "column": change.column, "detail": f"version {version}: {change.what} ({change.impact})"}
        for change in diff.changes
        if change.is_of_type
    ]
    _append(catalog, TYPE_CHANGE, (row for row in attempted if (row["column"], row["detail"]) not in logged))


def new_columns(catalog: Catalog, topics: Mapping[str, tuple[Table | None, Contract]]) -> dict[str, list[str]]:
    """The columns that have appeared since Curated was first built by its contract, which does not know them, by topic.

    The log is read once for all topics, each of which comes with its table of Curated.
    """
    firsts = {topic: in_force_since(curated, contract) for topic, (curated, contract) in topics.items()}
    since = {topic: datetime.fromisoformat(first) for topic, first in firsts.items() if first}
    found: dict[str, list[str]] = {topic: [] for topic in topics}
    if not since:
        return found
    # Every check asks: by the moment the months before are left out.
    after = GreaterThan(term="logged", value=min(since.values()).isoformat())
    for row in _logged(catalog, And(In(term="topic", literals={*since}), after)):
        if row["change"] == NEW_COLUMN and row["logged"] > since[row["topic"]]:
            contract, path = topics[row["topic"]][1], path_from_text(row["field"])
            known = {column.path for column in contract.envelope_columns}
            if path not in known and path not in contract.bound_fields:
                found[row["topic"]].append(row["column"])
    return {topic: sorted({*columns}) for topic, columns in found.items()}


def _logged(catalog: Catalog, where: BooleanExpression) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = ensure_drift_log(catalog).scan(row_filter=where).to_arrow().to_pylist()
    return rows


def _append(catalog: Catalog, change: str, rows: Iterable[Mapping[str, Any]]) -> int:
    """Log rows in one commit; how many there were."""
    now = datetime.now(UTC)
    if found := [{"change": change, "logged": now, **row} for row in rows]:
        append_rows(ensure_drift_log(catalog), pa.Table.from_pylist(found, schema_to_pyarrow(DRIFT_SCHEMA)))
    return len(found)


def ensure_drift_log(catalog: Catalog) -> Table:
    """The one log of all topics' drift. A home of old has one without the later columns."""
    log = ensure_table(catalog, DRIFT_LOG, DRIFT_SCHEMA, DRIFT_PARTITIONS, SHARED)
    if len(log.schema().fields) < len(DRIFT_SCHEMA.fields):
        with log.update_schema() as update:
            update.union_by_name(DRIFT_SCHEMA)
    return log
