"""Rows of many tables in one Spark scan.

Spark takes 50 ms to plan a scan of one Iceberg table, and a run reads thousands of tables. So PyIceberg plans which
files hold the rows, and Spark's Python workers read them, by Iceberg's own rules: columns by their ids, deleted
positions left out.
"""

import math
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import DataFile
from pyiceberg.table import FileScanTask, Table
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from leanops.batch import blame
from leanops.batch.blame import topic_blamed
from leanops.batch.data_file import file_io, read_data_file
from leanops.concurrency import Concurrency
from leanops.inventory import schema_at
from leanops.table_files import TableFile, table_files

_TASK_BYTES, _TASK_FILES, _MOST_TASKS = 2**20, 200, 400

_MOST_TOGETHER = 1_000_000

ON_DAYS = "on days"

RowFilter = Callable[[pa.Table], pa.ChunkedArray]
"""Which rows are wanted."""

MayHold = Callable[[TableFile], bool]

Reshape = Callable[[pa.RecordBatch], pa.RecordBatch]
"""What a worker makes of rows before Spark gets them."""


@dataclass(frozen=True)
class Scan:
    """The rows of one table that a job reads, and what they are to it."""

    topic: str
    table: Table
    columns: tuple[str, ...]
    where: RowFilter | None = None
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
    def field_ids(self) -> dict[int, str]:
        """The columns that are read, by their ids; those that the table does not have yet are NULL."""
        held = schema_at(self.table, self.snapshot_id) if self.snapshot_id else self.table.schema()
        wanted = {*self.columns, *(name for names in self.lists.values() for name in names)}
        return {each.field_id: each.name for each in held.fields if each.name in wanted}


@dataclass(frozen=True)
class _Read:
    """What a worker makes of the rows of files of one table."""

    topic: str
    role: str
    io: Mapping[str, str]
    """The properties of the file system."""
    columns: Mapping[int, str]
    where: RowFilter | None
    days: frozenset[date]
    lists: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, scan: Scan) -> "_Read":
        io = scan.table.io.properties
        return cls(scan.topic, scan.role, io, scan.field_ids, scan.where, scan.days, scan.lists)

    def batches(self, rows: pa.Table, file: str, shape: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The rows that it wants of those of a file."""
        wanted = rows if self.where is None else rows.filter(self.where(rows))
        for batch in self._shaped(wanted, file, shape).to_batches():
            yield self._with_roles(batch) if self.days else batch

    def _shaped(self, rows: pa.Table, file: str, shape: pa.Schema) -> pa.Table:
        """The rows with all columns of the scan.

        What is told of them is not looked for in the table, where a payload's field may be called so.
        """
        told = {"topic": self.topic, "role": self.role, "file": file}
        there = {*self.columns.values()}
        columns = [
            repeated(told[each.name], rows.num_rows)
            if each.name in told
            else self._list(rows, each.name)
            if each.name in self.lists
            else rows[each.name].cast(each.type)
            if each.name in there
            else pa.nulls(rows.num_rows, each.type)
            for each in shape
        ]
        return pa.table(columns, schema=shape)

    def _list(self, rows: pa.Table, name: str) -> pa.Array:
        there, nothing = {*self.columns.values()}, pa.nulls(rows.num_rows, pa.string())
        columns = [
            rows[each].combine_chunks().cast(pa.string()) if each in there else nothing for each in self.lists[name]
        ]
        return lists_of(columns, rows.num_rows)

    def _with_roles(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        days = pc.cast(rows["publish_time"], pa.date32())
        is_on_days = pc.fill_null(pc.is_in(days, pa.array(sorted(self.days), pa.date32())), False)
        place = rows.schema.get_field_index("role")
        return rows.set_column(place, rows.schema.field(place), pc.if_else(is_on_days, ON_DAYS, rows["role"]))


@dataclass(frozen=True)
class _Task:
    """The files that one task reads, each once, and which of its reads want rows of it."""

    reads: list[_Read] = field(default_factory=list)
    files: list[tuple[FileScanTask, list[int]]] = field(default_factory=list)

    def batches(self, shape: pa.Schema, reshape: Reshape | None, seconds: float) -> Iterator[pa.RecordBatch]:
        """The rows of all its files, which are a megabyte or so, or one. What is wrong with one blames its topic."""

        def read(planned: tuple[FileScanTask, list[int]]) -> list[pa.Table]:
            file, reads = planned[0], [self.reads[each] for each in planned[1]]
            columns = {number: name for each in reads for number, name in each.columns.items()}
            with topic_blamed(reads[0].topic, seconds):
                return list(read_data_file(file_io(reads[0].io), file, columns))

        for (file, wanted), rows in zip(self.files, Concurrency().map(read, self.files), strict=True):
            reads = [self.reads[each] for each in wanted]
            with topic_blamed(reads[0].topic, seconds):
                found = [
                    batch for part in rows for each in reads for batch in each.batches(part, file.file.file_path, shape)
                ]
                found = list(map(reshape, found)) if reshape else found
            yield from found


def read_tables(
    spark: SparkSession,
    scans: Sequence[Scan],
    shape: StructType,
    reshape: Reshape | None = None,
    into: StructType | None = None,
) -> DataFrame:
    """The rows of all scans, in the columns of `shape`, of which `topic`, `role` and `file` tell where each is from.

    What `reshape` makes of them has the columns `into`. Both happen in the worker that reads them. A file that several
    scans want rows of is read once.
    """
    arrow_shape, tasks, seconds = to_arrow_schema(shape), _packed(scans), blame.TOPIC_SECONDS

    def read(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in (number for batch in numbers for number in batch.column(0).to_pylist()):
            task: _Task = pickle.loads(tasks[number])  # noqa: S301 - written by ourselves, below
            yield from task.batches(arrow_shape, reshape, seconds)

    return spark.range(0, len(tasks), 1, max(1, len(tasks))).mapInArrow(read, into or shape)


def _packed(scans: Sequence[Scan]) -> list[bytes]:
    """The files of all scans, shared out among tasks: each gets about as many bytes."""
    wanted: dict[tuple[str, frozenset[str]], list[Scan]] = {}
    files: dict[tuple[str, frozenset[str]], FileScanTask] = {}
    for scan in scans:
        for file in scan.files:
            # As of another snapshot, other rows of a file may be deleted.
            which = (file.file.file_path, frozenset(each.file_path for each in file.delete_files))
            files[which] = file
            wanted.setdefault(which, []).append(scan)
    largest_first = sorted(files.items(), key=lambda each: -each[1].file.file_size_in_bytes)
    by_bytes = math.ceil(sum(file.file.file_size_in_bytes for file in files.values()) / _TASK_BYTES)
    count = min(max(by_bytes, math.ceil(len(files) / _TASK_FILES)), _MOST_TASKS, len(files))
    tasks = [_Task() for _ in range(count)]
    numbers: list[dict[int, int]] = [{} for _ in range(count)]
    for i, (which, file) in enumerate(largest_first):
        # Forth and back, so that the first does not get the largest of each round.
        place = i % count if (i // count) % 2 == 0 else count - 1 - i % count
        task, own = tasks[place], numbers[place]
        for scan in wanted[which]:
            if own.setdefault(id(scan), len(task.reads)) == len(task.reads):
                task.reads.append(_Read.of(scan))
        task.files.append((file, [own[id(scan)] for scan in wanted[which]]))
    return [pickle.dumps(task) for task in tasks]


def together(rows: DataFrame, others: Iterable[Scan]) -> DataFrame:
    """Rows with all those of a topic in one place: whatever groups them by topic, or within one, finds them there.

    Unless many of the `others` among them are only looked up: these are better shared out.
    """
    looked_up = sum(task.file.record_count for scan in others for task in scan.files)
    return rows.repartition("topic") if looked_up <= _MOST_TOGETHER else rows


def lists_of(columns: Sequence[pa.Array], rows: int) -> pa.Array:
    """The values of columns of texts, row by row, as lists."""
    width = len(columns)
    offsets = np.arange(rows + 1, dtype=np.int32) * width
    if not width:
        return pa.ListArray.from_arrays(pa.array(offsets), pa.array([], pa.string()))
    places = np.arange(rows * width).reshape(width, rows).T.ravel()
    return pa.ListArray.from_arrays(pa.array(offsets), pa.concat_arrays(columns).take(pa.array(places)))


def repeated(text: str, times: int) -> pa.Array:
    """A text for each of so many rows."""
    return pa.repeat(pa.scalar(text, pa.string()), times)
