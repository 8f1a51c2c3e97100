"""Rows of many tables in one Spark scan.

Spark takes 50 ms to plan a scan of one Iceberg table, and a run reads thousands of tables. So PyIceberg plans which
files hold the rows, and Spark's Python workers read them, by Iceberg's own rules: columns by their ids, deleted
positions left out.
"""

import math
import pickle
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.metadata import TableMetadata
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from leanops.batch import blame
from leanops.batch.blame import topic_blamed
from leanops.inventory import schema_at
from leanops.table_files import TableFile, table_files

_TASK_BYTES, _TASK_FILES, _MOST_TASKS = 2 * 2**20, 50, 400
_ALL = AlwaysTrue()

ON_DAYS = "on days"

MayHold = Callable[[TableFile], bool]

Reshape = Callable[[pa.RecordBatch], pa.RecordBatch]
"""What a worker makes of rows before Spark gets them."""


@dataclass(frozen=True)
class Scan:
    """The rows of one table that a job reads, and what they are to it."""

    topic: str
    table: Table
    columns: tuple[str, ...]
    where: BooleanExpression = _ALL
    may_hold: MayHold = lambda _: True
    """Whether a file may hold such rows."""
    snapshot_id: int | None = None
    role: str = ""
    days: frozenset[date] = frozenset()
    """Rows of these publish days have the role `ON_DAYS`."""
    lists: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Columns of the table whose values come as one list, under its name."""

    @cached_property
    def files(self) -> list[FileScanTask]:
        """The files that may hold such rows, by their metadata."""
        return [each.task for each in table_files(self.table, self.snapshot_id) if self.may_hold(each)]

    def files_called(self, paths: Sequence[str]) -> list[DataFile]:
        """Some of these files, by their paths."""
        files = {task.file.file_path: task.file for task in self.files} if paths else {}
        return [files[path] for path in paths]

    @property
    def bytes(self) -> int:
        """How large they are."""
        return sum(task.file.file_size_in_bytes for task in self.files)

    @property
    def schema(self) -> Schema:
        """The columns that are read; those that the table does not have yet are NULL."""
        held = schema_at(self.table, self.snapshot_id) if self.snapshot_id else self.table.schema()
        wanted = (*self.columns, *(name for names in self.lists.values() for name in names))
        return held.select(*(name for name in dict.fromkeys(wanted) if name in held.column_names))


@dataclass(frozen=True)
class WorkerTable:
    """What a worker has to know of a table to read and write its files: its metadata without its history."""

    metadata: TableMetadata
    properties: Mapping[str, str]

    @classmethod
    def of(cls, table: Table) -> "WorkerTable":
        lists = ("snapshots", "snapshot_log", "metadata_log", "statistics", "partition_statistics")
        bare: dict[str, object] = {**{name: [] for name in lists}, "refs": {}, "current_snapshot_id": None}
        return cls(table.metadata.model_copy(update=bare), dict(table.io.properties))

    @cached_property
    def io(self) -> FileIO:
        return load_file_io(dict(self.properties), self.metadata.location)

    def __getstate__(self) -> dict[str, Any]:
        return {"metadata": self.metadata, "properties": self.properties}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            object.__setattr__(self, name, value)


@dataclass(frozen=True)
class _Read:
    """Files of one table, as a worker reads them."""

    topic: str
    role: str
    table: WorkerTable
    schema: Schema
    where: BooleanExpression
    days: frozenset[date]
    lists: Mapping[str, tuple[str, ...]]
    files: list[FileScanTask] = field(default_factory=list)

    def batches(self, task: FileScanTask, shape: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The rows of one file."""
        scan = ArrowScan(self.table.metadata, self.table.io, self.schema, self.where)
        for batch in scan.to_record_batches([task]):
            if batch.num_rows:
                yield self._shaped(batch, task.file.file_path, shape)

    def _shaped(self, batch: pa.RecordBatch, file: str, shape: pa.Schema) -> pa.RecordBatch:
        """The rows with all columns of the scan.

        What is told of them is not looked for in the table, where a payload's field may be called so.
        """
        told = {"topic": self.topic, "role": self.role, "file": file}
        there = {*batch.schema.names}
        columns = [
            _repeated(told[each.name], batch.num_rows)
            if each.name in told
            else self._list(batch, each.name)
            if each.name in self.lists
            else batch[each.name].cast(each.type)
            if each.name in there
            else pa.nulls(batch.num_rows, each.type)
            for each in shape
        ]
        rows = pa.RecordBatch.from_arrays(columns, schema=shape)
        return self._with_roles(rows) if self.days else rows

    def _list(self, batch: pa.RecordBatch, name: str) -> pa.Array:
        there, nothing = {*batch.schema.names}, pa.nulls(batch.num_rows, pa.string())
        columns = [batch[each].cast(pa.string()) if each in there else nothing for each in self.lists[name]]
        return lists_of(columns, batch.num_rows)

    def _with_roles(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        days = pc.cast(rows["publish_time"], pa.date32())
        is_on_days = pc.fill_null(pc.is_in(days, pa.array(sorted(self.days), pa.date32())), False)
        place = rows.schema.get_field_index("role")
        return rows.set_column(place, rows.schema.field(place), pc.if_else(is_on_days, ON_DAYS, rows["role"]))


def read_tables(
    spark: SparkSession,
    scans: Sequence[Scan],
    shape: StructType,
    reshape: Reshape | None = None,
    into: StructType | None = None,
) -> DataFrame:
    """The rows of all scans, in the columns of `shape`, of which `topic`, `role` and `file` tell where each is from.

    What `reshape` makes of them has the columns `into`. Both happen in the worker that reads them.
    """
    arrow_shape, slots, seconds = to_arrow_schema(shape), _packed(scans), blame.TOPIC_SECONDS

    def read(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in (number for batch in numbers for number in batch.column(0).to_pylist()):
            for task in pickle.loads(zlib.decompress(slots[number])):  # noqa: S301 - written by ourselves, above
                for file in task.files:
                    with topic_blamed(task.topic, seconds):
                        batches = task.batches(file, arrow_shape)
                        batches = list(map(reshape, batches) if reshape else batches)
                    yield from batches

    return spark.range(0, len(slots), 1, max(1, len(slots))).mapInArrow(read, into or shape)


def _packed(scans: Sequence[Scan]) -> list[bytes]:
    """The files of all scans, shared out among tasks: each gets about as many bytes."""
    files = [(task, scan) for scan in scans for task in scan.files]
    files.sort(key=lambda each: -each[0].file.file_size_in_bytes)
    by_bytes = math.ceil(sum(task.file.file_size_in_bytes for task, _ in files) / _TASK_BYTES)
    count = min(max(by_bytes, math.ceil(len(files) / _TASK_FILES)), _MOST_TASKS, len(files))
    tables = {id(scan): WorkerTable.of(scan.table) for scan in scans}
    slots: list[dict[int, _Read]] = [{} for _ in range(count)]
    for i, (task, scan) in enumerate(files):
        # Forth and back, so that the first does not get the largest of each round.
        place = i % count if (i // count) % 2 == 0 else count - 1 - i % count
        read = slots[place].setdefault(
            id(scan), _Read(scan.topic, scan.role, tables[id(scan)], scan.schema, scan.where, scan.days, scan.lists)
        )
        read.files.append(task)
    return [zlib.compress(pickle.dumps([*slot.values()]), 1) for slot in slots]


def lists_of(columns: Sequence[pa.Array], rows: int) -> pa.Array:
    """The values of columns of texts, row by row, as lists."""
    width = len(columns)
    offsets = np.arange(rows + 1, dtype=np.int32) * width
    if not width:
        return pa.ListArray.from_arrays(pa.array(offsets), pa.array([], pa.string()))
    places = np.arange(rows * width).reshape(width, rows).T.ravel()
    return pa.ListArray.from_arrays(pa.array(offsets), pa.concat_arrays(columns).take(pa.array(places)))


def _repeated(text: str, times: int) -> pa.Array:
    return pa.repeat(pa.scalar(text, pa.string()), times)
