"""`ops_db.drift_log`: which columns appeared, when, and for which field."""

from datetime import UTC, datetime

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import And, EqualTo, GreaterThan
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import MonthTransform
from pyiceberg.types import NestedField, StringType, TimestamptzType

from leanops.commits import first_said
from leanops.contracts.model import Contract
from leanops.names import OPS_DB, Layer, table
from leanops.standardized.flatten_plan import KEY_IN_PAYLOAD, FlattenPlan, path_text
from leanops.tables import ensure_table, find_table

DRIFT_LOG = (OPS_DB, "drift_log")
DRIFT_SCHEMA = Schema(
    NestedField(1, "topic", StringType(), required=True),
    NestedField(2, "column", StringType(), required=True),
    NestedField(3, "change", StringType(), doc="new_column"),
    NestedField(4, "field", StringType(), doc="The path of the payload field, as a JSON array"),
    NestedField(5, "logged", TimestamptzType()),
)
DRIFT_PARTITIONS = PartitionSpec(PartitionField(5, 1000, MonthTransform(), "logged_month"))


def log_drift(catalog: Catalog, topic: str, plan: FlattenPlan) -> None:
    """Log every column of the plan that is not in the log yet: however often it is called, each appears there once."""
    log = ensure_drift_log(catalog)
    known = log.scan(row_filter=EqualTo(term="topic", value=topic), selected_fields=("column",)).to_arrow()["column"]
    logged = set(known.to_pylist())
    now = datetime.now(UTC)
    rows = [
        {
            "topic": topic,
            "column": column.name,
            "change": "new_column",
            "field": path_text(column.path),
            "logged": now,
        }
        for column in plan.columns
        if column.name not in logged and column.name != KEY_IN_PAYLOAD
    ]
    if rows:
        log.append(pa.Table.from_pylist(rows, schema_to_pyarrow(DRIFT_SCHEMA)))


def new_columns(catalog: Catalog, topic: str, contract: Contract) -> list[str]:
    """The columns that have appeared since Curated was first built by this contract, and that it does not know."""
    first = first_said(find_table(catalog, table(Layer.CURATED, topic)), "contract", contract.fingerprint)
    if first is None:
        return []
    since = And(EqualTo(term="topic", value=topic), GreaterThan(term="logged", value=first.isoformat()))
    rows = ensure_drift_log(catalog).scan(row_filter=since, selected_fields=("column",)).to_arrow()
    return sorted(set(rows["column"].to_pylist()) - set(contract.column_names))


def ensure_drift_log(catalog: Catalog) -> Table:
    """The one log of all topics' drift."""
    return ensure_table(catalog, DRIFT_LOG, DRIFT_SCHEMA, DRIFT_PARTITIONS)
