"""Rows of a table of records that give way to others, without Spark.

Files that hold nothing but such rows are dropped. Small ones that hold others too are written again without them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import AlwaysTrue, And, GreaterThanOrEqual, In, LessThanOrEqual
from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow
from pyiceberg.manifest import DataFile
from pyiceberg.table import FileScanTask, Table

from leanops.data_files import DataFiles
from leanops.inventory import file_day, published_on
from leanops.names import SYSTEM_COLUMNS


@dataclass(frozen=True)
class Gone:
    """Rows that are taken out: some by their numbers, whole days, or everything."""

    seqs: Sequence[int] = ()
    days: frozenset[date] = frozenset()
    everything: bool = False


class Replacement:
    """The files that have to be touched to take rows out."""

    def __init__(self, table: Table, gone: Gone) -> None:
        self._table = table
        self._seqs = gone.seqs
        self._dropped = list(_whole_files(table, gone))
        dropped = {file.file_path for file in self._dropped}
        self._reread = [task for task in _tasks_with(table, gone.seqs) if task.file.file_path not in dropped]

    @property
    def bytes(self) -> int:
        """How much has to be written again."""
        return sum(task.file.file_size_in_bytes for task in self._reread)

    @property
    def files(self) -> list[DataFile]:
        """All files that give way."""
        return [*self._dropped, *(task.file for task in self._reread)]

    @property
    def left(self) -> pa.Table:
        """The rows of these files that stay."""
        schema = schema_to_pyarrow(self._table.schema())
        if not self._reread:
            return schema.empty_table()
        scan = ArrowScan(self._table.metadata, self._table.io, self._table.schema(), AlwaysTrue())
        rows = scan.to_table(self._reread)
        return fitted(rows.filter(pc.invert(pc.is_in(rows["landing_seq"], pa.array(self._seqs, pa.int64())))), schema)


def keyed_files(table: Table) -> DataFiles:
    """Files of a table with one row per record, which is found by its key."""
    schema = schema_to_pyarrow(table.schema())
    repeated = [name for name in schema.names if name not in SYSTEM_COLUMNS]
    return DataFiles(table, schema, "idempotency_key", repeated)


def fitted(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows with all columns of a table, and in its types; those that they lack are NULL."""
    columns = [
        rows[field.name] if field.name in rows.column_names else pa.nulls(rows.num_rows, field.type) for field in schema
    ]
    return pa.table(columns, schema.names).cast(schema)


def _whole_files(table: Table, gone: Gone) -> Iterator[DataFile]:
    if gone.everything:
        yield from (task.file for task in table.scan().plan_files())
    for day in gone.days:
        tasks = table.scan(row_filter=published_on(day, day)).plan_files()
        yield from (task.file for task in tasks if file_day(task.file) == day)


def _tasks_with(table: Table, seqs: Sequence[int]) -> list[FileScanTask]:
    if not seqs:
        return []
    # Of hundreds of numbers PyIceberg asks no file's bounds, of their range it does.
    within = And(
        GreaterThanOrEqual(term="landing_seq", value=min(seqs)), LessThanOrEqual(term="landing_seq", value=max(seqs))
    )
    return list(table.scan(row_filter=And(In(term="landing_seq", literals=set(seqs)), within)).plan_files())
