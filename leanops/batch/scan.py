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
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import DataFile
from pyiceberg.table import FileScanTask, Table
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from leanops.batch import blame
from leanops.batch.blame import each_blamed, topic_blamed
from leanops.batch.data_file import POSITION, file_io, read_data_file
from leanops.concurrency import Concurrency
from leanops.inventory import schema_at
from leanops.key_index.entries import hashes_of
from leanops.key_index.file import KeyIndex, KeyIndexUnreadable, Kind
from leanops.names import CATALOG
from leanops.table_files import PackedFiles, TableFile, table_files

_PACK_BYTES, _PACK_FILES, _MOST_PACKS = 2**20, 200, 400
_SMALL_BYTES = 4 * 2**20
"""Files up to this size are read as a whole."""

_MOST_TOGETHER = 1_000_000

ON_DAYS = "on days"

_TOLD = ("topic", "role", "file", "position")
TOLD = ("@topic", "@role", "@file", POSITION)
"""What is told of rows beside columns of payloads, none of which can be called so."""

_TYPES = {
    "publish_time": pa.timestamp("us", "UTC"),
    "ingestion_ts": pa.int64(),
    "landing_seq": pa.int64(),
    POSITION: pa.int64(),
}

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
    condition: str = "true"
    """What `where` asks, in SQL, for who has Spark read the rows."""
    seqs: Sequence[int] | None = None
    """The numbers of the rows, in order, where they are known."""
    by: str | None = None
    """The column of which a worker has some values, where it looks for the rows that have these."""
    index: str | None = None
    """Where the topic's key index is, if that can say which files have them."""
    uncommitted: Sequence[DataFile] | None = None
    """The files that it is about, where no snapshot has them yet."""

    @cached_property
    def table_files(self) -> list[TableFile]:
        """The files that may hold such rows, by their metadata."""
        if self.uncommitted is not None:
            return TableFile.all_of(map(FileScanTask, self.uncommitted), self.table.schema())
        files = (each for each in table_files(self.table, self.snapshot_id) if self.may_hold(each))
        return [each for each in files if self.seqs is None or each.may_hold_any(self.seqs)]

    @property
    def files(self) -> list[FileScanTask]:
        return [each.task for each in self.table_files]

    @property
    def bytes(self) -> int:
        """How large they are."""
        return sum(task.file.file_size_in_bytes for task in self.files)

    @property
    def field_ids(self) -> dict[int, str]:
        """The columns that are read, by their ids; those that the table does not have yet are NULL."""
        held = schema_at(self.table, self.snapshot_id) if self.snapshot_id else self.table.schema()
        return {each.field_id: each.name for each in held.fields if each.name in self.columns}


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
    shape: pa.Schema
    """Its own columns, and what is told of rows."""
    seqs: Sequence[int] | None

    @classmethod
    def of(cls, scan: Scan) -> "_Read":
        io, shape = scan.table.io.properties, shape_of((*TOLD, *scan.columns))
        return cls(scan.topic, scan.role, io, scan.field_ids, scan.where, scan.days, shape, scan.seqs)

    def batches(self, rows: pa.Table, file: str, shape: pa.Schema | None) -> Iterator[pa.RecordBatch]:
        """The rows that it wants of those of a file, in the columns of `shape`, or else in its own.

        What is told of them is not looked for in the table, where a payload's field may be called so.
        """
        wanted = rows if self.where is None else rows.filter(self.where(rows))
        if self.seqs is not None:
            wanted = wanted.filter(_is_among(wanted["landing_seq"], self.seqs))
        names = _TOLD if shape else TOLD
        told = dict(zip(names, (self.topic, self.role, file), strict=False))
        shape, there = shape or self.shape, {*self.columns.values()}
        columns = [
            repeated(told[each.name], wanted.num_rows)
            if each.name in told
            else wanted[POSITION]
            if each.name == names[-1]
            else wanted[each.name].cast(each.type)
            if each.name in there
            else pa.nulls(wanted.num_rows, each.type)
            for each in shape
        ]
        found = pa.table(columns, schema=shape)
        return iter((self._with_roles(found, [*told][1]) if self.days else found).to_batches())

    def _with_roles(self, rows: pa.Table, role: str) -> pa.Table:
        days = pc.cast(rows["publish_time"], pa.date32())
        is_on_days = pc.fill_null(pc.is_in(days, pa.array(sorted(self.days), pa.date32())), False)
        place = rows.schema.get_field_index(role)
        return rows.set_column(place, rows.schema.field(place), pc.if_else(is_on_days, ON_DAYS, rows[role]))


def _is_among(numbers: pa.ChunkedArray, seqs: Sequence[int]) -> pa.ChunkedArray:
    if isinstance(seqs, range):
        return pc.and_(pc.greater_equal(numbers, seqs.start), pc.less(numbers, seqs.stop))
    return pc.is_in(numbers, pa.array(seqs, pa.int64()))


@dataclass(frozen=True)
class LookUp:
    """The rows of one table that have one of some values in a column."""

    read: _Read
    by: str
    files: PackedFiles
    index: str | None

    @classmethod
    def of(cls, scan: Scan) -> "LookUp":
        assert scan.by
        return cls(_Read.of(scan), scan.by, PackedFiles.of(scan.table_files), scan.index)

    @property
    def role(self) -> str:
        return self.read.role

    def rows(self, values: pa.ChunkedArray, known: "KnownIndexes", shape: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The rows that have one of these values, in the columns of `shape`."""
        wanted = values.unique()
        files = [*self._files_with(wanted, known)] if len(wanted) else []

        def read(found: tuple[FileScanTask, Sequence[int] | None]) -> list[pa.Table]:
            parts = read_data_file(file_io(self.read.io), found[0], self.read.columns, found[1])
            return [part.filter(pc.is_in(part[self.by], wanted)) for part in parts]

        for (file, _), parts in zip(files, Concurrency().map(read, files), strict=True):
            for part in parts:
                yield from self.read.batches(part, file.file.file_path, shape)

    def _files_with(
        self, values: pa.Array, known: "KnownIndexes"
    ) -> Iterator[tuple[FileScanTask, Sequence[int] | None]]:
        """The files that may have such rows, each with the numbers of these where they are known."""
        if self.by == "landing_seq":
            yield from self.files.having(values.to_numpy())
            return
        index = known.index(self.read.io, self.index) if self.index else None
        if index is None:
            yield from ((file, None) for file in self.files.beyond(None))
            return
        entries = index.having(Kind(self.by), hashes_of(values))
        yield from ((file, None) for file in self.files.beyond(index.upto))
        yield from self.files.having(entries.seqs, entries.days, index.upto)


class KnownIndexes:
    """The key indexes that a worker has read for the rows of a topic: ids and keys are looked up in the same one."""

    def __init__(self) -> None:
        self._known: dict[str, KeyIndex | None] = {}

    def index(self, io: Mapping[str, str], path: str) -> KeyIndex | None:
        """An index; None if it is missing or damaged."""
        if path not in self._known:
            try:
                self._known[path] = KeyIndex.read(file_io(io), path).whole(file_io(io))
            except KeyIndexUnreadable:
                self._known[path] = None
        return self._known[path]


@dataclass(frozen=True)
class Task:
    """Files that a worker reads, each once, and which of its reads want rows of it; and what it looks up then."""

    reads: list[_Read] = field(default_factory=list)
    files: list[tuple[FileScanTask, list[int]]] = field(default_factory=list)
    look_ups: list[LookUp] = field(default_factory=list)

    @property
    def topic(self) -> str:
        """The topic of its files, where it is one."""
        return self.reads[0].topic

    @property
    def bytes(self) -> int:
        return sum(file.file.file_size_in_bytes for file, _ in self.files)

    def batches(self, shape: pa.Schema | None, reshape: Reshape | None, seconds: float) -> Iterator[pa.RecordBatch]:
        """The rows of all its files, in the columns of `shape`, or in those that each read asks for.

        Small files are read at once where each is waited for; of a large one, a part at a time is in memory.
        """

        def read(planned: tuple[FileScanTask, list[int]]) -> Iterator[pa.Table]:
            file, reads = planned[0], [self.reads[each] for each in planned[1]]
            columns = {number: name for each in reads for number, name in each.columns.items()}
            # A file that others want more rows of is read whole.
            return read_data_file(file_io(reads[0].io), file, columns, reads[0].seqs if len(reads) == 1 else None)

        def read_whole(planned: tuple[FileScanTask, list[int]]) -> Iterator[pa.Table]:
            with topic_blamed(self.reads[planned[1][0]].topic, seconds):
                return iter(list(read(planned)))

        small = [each for each in self.files if each[0].file.file_size_in_bytes <= _SMALL_BYTES]
        large = [each for each in self.files if each[0].file.file_size_in_bytes > _SMALL_BYTES]
        parts = chain(
            zip(small, Concurrency().map(read_whole, small), strict=True), zip(large, map(read, large), strict=True)
        )
        for (file, wanted), rows in parts:
            reads, path = [self.reads[each] for each in wanted], file.file.file_path
            found = (batch for part in rows for each in reads for batch in each.batches(part, path, shape))
            yield from each_blamed(map(reshape, found) if reshape else found, reads[0].topic, seconds)


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
    arrow_shape, seconds = to_arrow_schema(shape), blame.TOPIC_SECONDS

    def read(tasks: Sequence[Task]) -> Iterator[pa.RecordBatch]:
        return merged(tasks).batches(arrow_shape, reshape, seconds)

    return work_where_read(spark, scans, read, into or shape)


def read_table(spark: SparkSession, scan: Scan, shape: StructType) -> DataFrame:
    """The same rows by Spark's own reader, which reads one large table faster, and the columns alone that are used."""
    at = scan.snapshot_id or scan.table.metadata.current_snapshot_id
    name = ".".join(f"`{part}`" for part in (CATALOG, *scan.table.name()))
    rows = spark.read.option("versionAsOf", str(at)).table(name).where(scan.condition)
    told = {"topic": F.lit(scan.topic), "role": F.lit(scan.role)}
    held = {each: F.col(each) for each in scan.columns}
    columns = (told | held).get
    return rows.select(*(columns(each.name, F.lit(None)).cast(each.dataType).alias(each.name) for each in shape))


def work_where_read(
    spark: SparkSession,
    scans: Sequence[Scan],
    work: Callable[[Sequence[Task]], Iterator[pa.RecordBatch]],
    into: StructType,
    *,
    by_topic: bool = False,
) -> DataFrame:
    """What workers make of the files of all scans, shared out among them: file by file, or topic by topic."""
    packs = _in_packs(tasks_of_topics(scans) if by_topic else _tasks_of_files(scans))

    def read(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in (number for batch in numbers for number in batch.column(0).to_pylist()):
            yield from work(unpacked(packs[number]))

    return spark.range(0, len(packs), 1, max(1, len(packs))).mapInArrow(read, into)


def merged(tasks: Sequence[Task]) -> Task:
    """The files of some tasks as one: more of them can be read at once."""
    whole = Task()
    for task in tasks:
        first = len(whole.reads)
        whole.reads.extend(task.reads)
        whole.files.extend((file, [first + each for each in reads]) for file, reads in task.files)
    return whole


def _tasks_of_files(scans: Sequence[Scan]) -> list[Task]:
    """A task for each file. As of another snapshot, other rows of it may be deleted."""
    wanted: dict[tuple[str, frozenset[str]], tuple[FileScanTask, list[_Read]]] = {}
    for scan in scans:
        read = _Read.of(scan)
        for file in scan.files:
            which = (file.file.file_path, frozenset(each.file_path for each in file.delete_files))
            wanted.setdefault(which, (file, []))[1].append(read)
    return [Task(reads, [(file, [*range(len(reads))])]) for file, reads in wanted.values()]


def tasks_of_topics(scans: Sequence[Scan]) -> list[Task]:
    """A task for all files of each topic, also where it has none: a worker may have more to do than to read."""
    topics: dict[str, Task] = {}
    for scan in scans:
        task = topics.setdefault(scan.topic, Task())
        if scan.by:
            task.look_ups.append(LookUp.of(scan))
            continue
        task.reads.append(_Read.of(scan))
        task.files.extend((file, [len(task.reads) - 1]) for file in scan.files)
    return [*topics.values()]


def _in_packs(tasks: Sequence[Task]) -> list[bytes]:
    """Tasks in packs, each of about as many bytes. What the tasks of one have in common is in it once."""
    largest_first = sorted(tasks, key=lambda each: -each.bytes)
    by_bytes = math.ceil(sum(each.bytes for each in tasks) / _PACK_BYTES)
    by_files = math.ceil(sum(len(each.files) for each in tasks) / _PACK_FILES)
    packs: list[list[Task]] = [[] for _ in range(min(max(by_bytes, by_files, 1), _MOST_PACKS, len(tasks)))]
    for i, task in enumerate(largest_first):
        # Forth and back, so that the first does not get the largest of each round.
        packs[i % len(packs) if (i // len(packs)) % 2 == 0 else -1 - i % len(packs)].append(task)
    return [packed(pack) for pack in packs]


def packed(tasks: Sequence[Task]) -> bytes:
    """Tasks as they are sent to a worker: names of files are most of it, and much alike."""
    return zlib.compress(pickle.dumps(tasks), 1)


def unpacked(tasks: bytes) -> list[Task]:
    """The same in the worker."""
    found: list[Task] = pickle.loads(zlib.decompress(tasks))  # noqa: S301 - packed by ourselves, above
    return found


def together(rows: DataFrame, others: Iterable[Scan]) -> DataFrame:
    """Rows with all those of a topic in one place: whatever groups them by topic, or within one, finds them there.

    Unless many of the `others` among them are only looked up: these are better shared out.
    """
    looked_up = sum(task.file.record_count for scan in others for task in scan.files)
    return rows.repartition("topic") if looked_up <= _MOST_TOGETHER else rows


def shape_of(columns: Iterable[str]) -> pa.Schema:
    """Columns with their types: all but some of the platform's own are texts."""
    return pa.schema([(name, _TYPES.get(name, pa.string())) for name in columns])


def fitted(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows with all columns of a table, and in its types; those that they lack are NULL."""
    columns = [
        rows[each.name] if each.name in rows.column_names else pa.nulls(rows.num_rows, each.type) for each in schema
    ]
    return pa.table(columns, schema.names).cast(schema)


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
