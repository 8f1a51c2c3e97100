"""Few rows of a table, brought to this process.

A Spark query takes 0.2 to 0.4 s however little it reads, and a tick of 700 topics would ask thousands. PyIceberg reads
a small table in hundredths of a second. A large table is asked through Spark, which reads bloom filters.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any, cast

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue, BooleanExpression, In
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from leanops.names import CATALOG
from leanops.slices import sized

LOCAL_BYTES = 16 * 2**20
"""What is read here at most of files, which are compressed about ten times."""

_ALL = AlwaysTrue()


def few_rows(
    table: Table, columns: Sequence[str], where: BooleanExpression = _ALL, snapshot_id: int | None = None
) -> pa.Table:
    """The rows that match, with these columns. Whoever asks knows that they are few."""
    return table.scan(row_filter=where, selected_fields=tuple(columns), snapshot_id=snapshot_id).to_arrow()


def rows_called(
    sessions: Callable[[], SparkSession],
    table: Table,
    column: str,
    names: Collection[str],
    columns: Sequence[str],
    snapshot_id: int = 0,
) -> pa.Table:
    """The rows with any of these names in a column, wherever in the table they are; as of a snapshot or now."""
    snapshot = table.snapshot_by_id(snapshot_id) if snapshot_id else table.current_snapshot()
    if snapshot is None or not names:
        return schema_to_pyarrow(table.schema().select(*columns)).empty_table()
    if _size(snapshot) <= LOCAL_BYTES:
        return few_rows(table, columns, In(term=column, literals=set(names)), snapshot.snapshot_id)
    spark = sessions()
    name = ".".join(f"`{part}`" for part in (CATALOG, *table.name()))
    rows = spark.read.option("versionAsOf", str(snapshot.snapshot_id)).table(name)
    with sized(spark, len(names)):
        return arrow_of(rows.where(F.col(column).isin(list(names))).select(*columns))


def arrow_of(rows: DataFrame) -> pa.Table:
    """The rows of a query. `toArrow` asks for their types first: of few rows that takes half as long as the query."""
    found, _ = cast("Any", rows)._to_table()  # noqa: SLF001 - nothing public does without that question
    return found


def is_local(table: Table) -> bool:
    """Whether all of a table can be brought here."""
    snapshot = table.current_snapshot()
    return snapshot is None or _size(snapshot) <= LOCAL_BYTES


def _size(snapshot: Snapshot) -> int:
    return int(snapshot.summary["total-files-size"] or 0) if snapshot.summary else 0


def files_size(table: Table, where: BooleanExpression, snapshot_id: int | None = None) -> int:
    """How large the files are that hold the rows that match."""
    return sum(task.file.file_size_in_bytes for task in table.scan(where, snapshot_id=snapshot_id).plan_files())
