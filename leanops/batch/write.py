"""Files of many tables written in one Spark job: the rows of a topic come together in one worker, which writes them.

A worker writes files and commits nothing. Files that no commit names are orphans, and go with the week's maintenance.
"""

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.metadata import TableMetadata
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from leanops.batch import blame
from leanops.batch.blame import topic_blamed
from leanops.batch.data_file import file_io, read_data_file
from leanops.batch.scan import repeated
from leanops.checkpointed import checkpointed
from leanops.data_files import DayFiles
from leanops.names import SYSTEM_COLUMNS

Result_co = TypeVar("Result_co", covariant=True)
REWRITTEN_BYTES = 8 * 2**20
"""What a worker writes again at most, compressed, to take rows out of files."""


@dataclass(frozen=True)
class Target:
    """A table that a worker writes files for."""

    metadata: TableMetadata
    """Without its history, which is most of it."""
    io: Mapping[str, str]
    """The properties of the file system."""
    files: Mapping[str, FileScanTask] = field(default_factory=dict)
    """Its files that rows may be taken out of, by their paths."""
    rewritten_bytes: int = 0
    """What may be written again of them."""

    @classmethod
    def of(cls, table: Table, files: Iterable[FileScanTask] = ()) -> "Target":
        tasks = {each.file.file_path: each for each in files}
        history = ("snapshots", "snapshot_log", "metadata_log", "statistics", "partition_statistics")
        bare: dict[str, object] = {**{name: [] for name in history}, "refs": {}, "current_snapshot_id": None}
        return cls(table.metadata.model_copy(update=bare), table.io.properties, tasks, REWRITTEN_BYTES)

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
        """Write rows, each publish day to a file of its own, so that a row is found by its key."""
        schema = schema_to_pyarrow(self.schema)
        repeated = [name for name in schema.names if name not in SYSTEM_COLUMNS]
        files = DayFiles(file_io(self.io), self.metadata, schema, "idempotency_key", repeated)
        return list(files.write(fitted(rows, schema)))

    def remaining(self, gone: Mapping[str, Sequence[int]]) -> pa.Table | None:
        """What is left of files when rows are taken out of them; None if that is too much to be written again."""
        tasks = [self.files[path] for path in gone]
        if sum(task.file.file_size_in_bytes for task in tasks) > self.rewritten_bytes:
            return None
        schema = schema_to_pyarrow(self.schema)
        if not tasks:
            return schema.empty_table()
        columns = {each.field_id: each.name for each in self.schema.fields}
        files = (part for task in tasks for part in read_data_file(file_io(self.io), task, columns))
        rows = pa.concat_tables(fitted(part, schema) for part in files)
        seqs = pa.array([seq for each in gone.values() for seq in each], pa.int64())
        return rows.filter(pc.invert(pc.is_in(rows["landing_seq"], seqs)))


@dataclass(frozen=True)
class Written:
    """What a worker has made of a topic's rows: the files that it wrote, and those that they replace."""

    added: Sequence[DataFile] = ()
    rewritten: Sequence[str] = ()
    """The paths of files whose remaining rows are among those that were added."""
    gone: Sequence[int] = ()
    """The rows of the table, by their numbers, that give way."""
    is_deletion_left: bool = False
    """Whether the rows that are gone are still in their files, which were too large to be written again."""


def replace_rows(target: Target, rows: pa.Table, gone: Mapping[str, Sequence[int]]) -> Written:
    """Write rows, and the files anew that others are taken out of."""
    remaining = target.remaining(gone)
    seqs = sorted(seq for each in gone.values() for seq in each)
    if remaining is None:
        return Written(target.write(rows), (), seqs, is_deletion_left=True)
    rows = pa.concat_tables([remaining, fitted(rows, remaining.schema)]) if gone else rows
    return Written(target.write(rows), [*gone], seqs)


class RowWriter(Protocol[Result_co]):
    """Writes the rows of one topic, and reports what it has written."""

    def write(self, rows: pa.Table) -> tuple[Result_co, pa.Table]:
        """The report, and the rows that did not make it into the topic's own table."""


def by_topic(
    rows: DataFrame, writers: Mapping[str, RowWriter[Result_co]], refused: StructType
) -> tuple[dict[str, Result_co], DataFrame]:
    """Bring the rows of each topic together in one worker, whose writer reports of them.

    Reports come here. The rows that a writer hands back, of all topics and in the columns `refused`, stay in Spark.
    """
    seconds, shape = blame.TOPIC_SECONDS, to_arrow_schema(refused)
    # Each by itself: a worker unpacks the writers of its own topics, and not those of all.
    packed = {topic: pickle.dumps(writer) for topic, writer in writers.items()}

    def work(topic: tuple[pa.Scalar, ...], rows: pa.Table) -> pa.Table:
        name = topic[0].as_py()
        with topic_blamed(name, seconds):
            report, others = pickle.loads(packed[name]).write(rows)  # noqa: S301 - our own, from above
            first = pa.table({"report": pa.array([pickle.dumps(report)], pa.binary())})
            found = pa.concat_tables([first, fitted(others, shape)], promote_options="default")
            return found.add_column(0, "topic", repeated(name, found.num_rows))

    columns = StructType([StructField("topic", StringType()), StructField("report", BinaryType()), *refused.fields])
    # Apart from what led to it: it is asked twice, and files are written once.
    done = checkpointed(rows.groupBy("topic").applyInArrow(work, columns))
    reports = done.where(F.col("report").isNotNull()).select("topic", "report").collect()
    found = {row["topic"]: pickle.loads(row["report"]) for row in reports}  # noqa: S301 - our own workers'
    return found, done.where(F.col("report").isNull()).drop("report")


def fitted(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows with all columns of a table, and in its types; those that they lack are NULL."""
    columns = [
        rows[each.name] if each.name in rows.column_names else pa.nulls(rows.num_rows, each.type) for each in schema
    ]
    return pa.table(columns, schema.names).cast(schema)


def list_columns(lists: pa.ChunkedArray, width: int) -> Iterator[pa.Array]:
    """The first items of all lists, the second ones, and so on; NULL where a list is shorter."""
    if not width:
        return
    lists = lists.combine_chunks()
    items = pc.list_slice(lists, 0, width, return_fixed_size_list=True).flatten() if len(lists) else lists.values
    for place in range(width):
        yield items.take(pa.array(np.arange(place, len(lists) * width, width)))
