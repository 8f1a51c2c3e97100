"""Files of many tables written in one Spark job: the rows of a topic come together in one worker, which writes them.

A worker writes files and commits nothing. Files that no commit names are orphans, and go with the week's maintenance.
"""

import math
import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Generic, Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from leanops.batch import blame
from leanops.batch.blame import topic_blamed
from leanops.batch.data_file import file_io
from leanops.batch.scan import Scan, Task, fitted, repeated, work_where_read
from leanops.checkpointed import checkpointed
from leanops.concurrency import Concurrency
from leanops.data_files import DayFiles, write_deleted_positions
from leanops.key_index.file import KeyFile
from leanops.names import SYSTEM_COLUMNS

Result_co = TypeVar("Result_co", covariant=True)
SHARE_BYTES = 64 * 2**20
"""So much of a large topic a worker holds before it writes."""


@dataclass(frozen=True)
class Target:
    """A table that a worker writes files for."""

    metadata: TableMetadata
    """Without its history, which is most of it."""
    io: Mapping[str, str]
    """The properties of the file system."""

    @classmethod
    def of(cls, table: Table) -> "Target":
        history = ("snapshots", "snapshot_log", "metadata_log", "statistics", "partition_statistics")
        bare: dict[str, object] = {**{name: [] for name in history}, "refs": {}, "current_snapshot_id": None}
        return cls(table.metadata.model_copy(update=bare), table.io.properties)

    def with_schema(self, schema: Schema) -> "Target":
        """The same table with other columns, which it has once the files are committed."""
        if schema == self.schema:
            return self
        last = max(schema.highest_field_id, self.metadata.last_column_id)
        changed = {"schemas": [schema], "current_schema_id": schema.schema_id, "last_column_id": last}
        return replace(self, metadata=self.metadata.model_copy(update=changed))

    @property
    def schema(self) -> Schema:
        return self.metadata.schema()

    def write(self, rows: pa.Table) -> list[DataFile]:
        """Write rows, each publish day to a file of its own."""
        schema = schema_to_pyarrow(self.schema)
        repeated = [name for name in schema.names if name not in SYSTEM_COLUMNS]
        files = DayFiles(file_io(self.io), self.metadata, schema, repeated)
        return list(files.write(fitted(rows, schema)))

    def delete(self, rows: pa.Table) -> list[tuple[str, DataFile]]:
        """Take rows out, which have the `file` and `position` of each; the paths of these files, and what it wrote."""
        io = file_io(self.io)

        def delete_in(path: str) -> tuple[str, DataFile]:
            own = rows.filter(pc.equal(rows["file"], path))
            return path, write_deleted_positions(io, self.metadata, path, own)

        return Concurrency().map(delete_in, rows["file"].unique().to_pylist())


@dataclass(frozen=True)
class Written:
    """What a worker has made of a topic's rows: the files that it wrote, and the rows that they replace."""

    added: Sequence[DataFile] = ()
    deletes: Sequence[tuple[str, DataFile]] = ()
    """Files with deleted positions, each with the path of the file that the rows were in."""
    gone: Sequence[int] = ()
    """The rows of the table, by their numbers, that give way."""
    index: KeyFile | None = None
    """The topic's key index, with the rows that were written."""

    def and_also(self, other: "Written") -> "Written":
        """What two workers have made of the rows of one topic."""
        return Written(
            [*self.added, *other.added],
            [*self.deletes, *other.deletes],
            sorted([*self.gone, *other.gone]),
            other.index or self.index,
        )


def replace_rows(target: Target, rows: pa.Table, gone: pa.Table) -> Written:
    """Write rows, and take others out, of which `gone` has the `file`, `position`, `publish_time` and `landing_seq`."""
    return Written(target.write(rows), target.delete(gone), sorted(gone["landing_seq"].to_pylist()))


class RowWriter(Protocol[Result_co]):
    """Writes the rows of one topic, and reports what it has written."""

    def write(self, rows: pa.Table) -> tuple[Result_co, pa.Table]:
        """The report, and the rows that did not make it into the topic's own table."""


@dataclass(frozen=True)
class _Workers(Generic[Result_co]):
    """The writers of topics, for workers that report what each has written, and hand back rows as `refused` has them.

    Each is packed by itself: a worker unpacks the writers of its own topics, and not those of all.
    """

    packed: Mapping[str, bytes]
    refused: StructType
    seconds: float
    share_bytes: float
    """So much of a topic one writer gets at a time."""

    @classmethod
    def of(
        cls, writers: Mapping[str, RowWriter[Result_co]], refused: StructType, is_large: bool
    ) -> "_Workers[Result_co]":
        packed = {topic: pickle.dumps(each) for topic, each in writers.items()}
        return cls(packed, refused, blame.TOPIC_SECONDS, SHARE_BYTES if is_large else math.inf)

    @property
    def columns(self) -> StructType:
        told = [StructField("topic", StringType()), StructField("report", BinaryType())]
        return StructType([*told, *self.refused.fields])

    def write(self, topic: str, rows: pa.Table) -> pa.Table:
        """A row with the report, and those that are handed back."""
        with topic_blamed(topic, self.seconds):
            report, back = pickle.loads(self.packed[topic]).write(rows)  # noqa: S301 - our own, from above
            first = pa.table({"report": pa.array([pickle.dumps(report)], pa.binary())})
            shape = to_arrow_schema(self.refused)
            found = pa.concat_tables([first, fitted(back, shape)], promote_options="default")
            return found.add_column(0, "topic", repeated(topic, found.num_rows))

    def write_shares(self, topic: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same of rows that come in parts, as many at a time as a worker can hold."""
        share: list[pa.RecordBatch] = []
        for batch in chain(batches, [None]):
            share += [batch] if batch is not None and batch.num_rows else []
            is_full = sum(each.nbytes for each in share) >= self.share_bytes
            if share and (is_full or batch is None):
                # Rows of one table, or of several that have not the same columns.
                rows = pa.concat_tables(map(_table_of, share), promote_options="default")
                yield from self.write(topic, rows).to_batches()
                share = []

    def reports(self, made: DataFrame) -> tuple[dict[str, list[Result_co]], DataFrame]:
        """Have it done. Reports come here; the rows that were handed back, of all topics, stay in Spark."""
        # Apart from what led to it: it is asked twice, and files are written once.
        done = checkpointed(made)
        found: dict[str, list[Result_co]] = {topic: [] for topic in self.packed}
        for row in done.where(F.col("report").isNotNull()).select("topic", "report").collect():
            found[row["topic"]].append(pickle.loads(row["report"]))  # noqa: S301 - our own workers'
        return found, done.where(F.col("report").isNull()).drop("report")


def write_rows(
    rows: DataFrame, writers: Mapping[str, RowWriter[Result_co]], refused: StructType, is_large: bool
) -> tuple[dict[str, list[Result_co]], DataFrame]:
    """Have workers write rows; the reports of each topic, and what did not make it into its table.

    The rows of a topic come together in one worker, unless it is large and alone: then each worker writes what it has,
    as much of it at a time as it can hold.
    """
    workers = _Workers.of(writers, refused, is_large)
    if not is_large:
        by_topic = rows.groupBy("topic").applyInArrow(
            lambda topic, rows: workers.write(topic[0].as_py(), rows), workers.columns
        )
        return workers.reports(by_topic)
    [topic] = writers

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return workers.write_shares(topic, batches)

    return workers.reports(rows.mapInArrow(write, workers.columns))


def write_where_read(
    spark: SparkSession,
    scans: Sequence[Scan],
    writers: Mapping[str, RowWriter[Result_co]],
    refused: StructType,
    is_large: bool,
) -> tuple[dict[str, list[Result_co]], DataFrame]:
    """The same of rows that need not meet others: whichever worker reads them writes them."""
    workers = _Workers.of(writers, refused, is_large)

    def write(tasks: Sequence[Task]) -> Iterator[pa.RecordBatch]:
        def write_task(task: Task) -> list[pa.RecordBatch]:
            return list(workers.write_shares(task.topic, task.batches(None, None, workers.seconds)))

        return chain.from_iterable(Concurrency().map(write_task, tasks))

    return workers.reports(work_where_read(spark, scans, write, workers.columns, by_topic=not is_large))


def _table_of(batch: pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches([batch])


def list_columns(lists: pa.ChunkedArray, width: int) -> Iterator[pa.Array]:
    """The first items of all lists, the second ones, and so on; NULL where a list is shorter."""
    if not width:
        return
    lists = lists.combine_chunks()
    items = pc.list_slice(lists, 0, width, return_fixed_size_list=True).flatten() if len(lists) else lists.values
    for place in range(width):
        yield items.take(pa.array(np.arange(place, len(lists) * width, width)))
