"""`ops_db.job_run_history`: one row per topic, layer and run."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import In
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import MonthTransform
from pyiceberg.types import (
    DateType,
    DoubleType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestamptzType,
)

from leanops.names import OPS_DB
from leanops.shared_tables import append_rows
from leanops.tables import ensure_table

HISTORY = (OPS_DB, "job_run_history")
HISTORY_SCHEMA = Schema(
    NestedField(1, "run_id", StringType(), required=True),
    NestedField(2, "topic", StringType(), required=True),
    NestedField(3, "layer", StringType(), required=True),
    NestedField(4, "day", DateType(), doc="The publish day that the run was asked for"),
    NestedField(5, "outcome", StringType(), doc="built, nothing_new, skipped or failed"),
    NestedField(6, "reason", StringType(), doc="Why it was skipped or failed"),
    NestedField(7, "finished", TimestamptzType()),
    NestedField(8, "rows_read", LongType()),
    NestedField(9, "rows_written", LongType()),
    NestedField(10, "rows_updated", LongType()),
    NestedField(11, "duplicates", LongType()),
    NestedField(12, "superseded", LongType()),
    NestedField(13, "parse_errors", LongType()),
    NestedField(14, "errors", LongType()),
    NestedField(15, "seconds", DoubleType()),
    NestedField(16, "check_seconds", DoubleType()),
    NestedField(17, "source_snapshot", StringType()),
    NestedField(18, "snapshot_id", StringType()),
    NestedField(19, "contract_version", IntegerType()),
)
_PARTITIONS = PartitionSpec(PartitionField(7, 1000, MonthTransform(), "finished_month"))


def log_runs(catalog: Catalog, rows: Iterable[Mapping[str, Any]]) -> None:
    """Append rows, all in one commit."""
    if rows := list(rows):
        append_rows(_history(catalog), pa.Table.from_pylist(rows, schema_to_pyarrow(HISTORY_SCHEMA)))


def logged_runs(catalog: Catalog, run_ids: Collection[str]) -> set[str]:
    """Those of the runs that are in the history already."""
    if not run_ids:
        return set()
    scan = _history(catalog).scan(row_filter=In(term="run_id", literals=set(run_ids)), selected_fields=("run_id",))
    return set(scan.to_arrow()["run_id"].to_pylist())


def _history(catalog: Catalog) -> Table:
    return ensure_table(catalog, HISTORY, HISTORY_SCHEMA, _PARTITIONS)
