"""Key indexes made from tables: of what a large build has written, and where one is missing, damaged or in two files.

A worker reads ids and keys, and writes the index of a topic; only where it is comes back.
"""

import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import pyarrow as pa
from pyiceberg.table import Table
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, StringType, StructType

from leanops.batch import blame
from leanops.batch.data_file import file_io
from leanops.batch.scan import Scan, Task, work_where_read
from leanops.batch.write import Target
from leanops.commits import checkpoint_of
from leanops.key_index.entries import Entries
from leanops.key_index.file import IndexUpdate, KeyFile, KeyIndex, KeyIndexUnreadable, Kind
from leanops.key_index.table import attach_index, index_of, outdated_files
from leanops.slices import Slice, sized
from leanops.standardized.transform import STANDING

_REPORT = StructType().add("topic", StringType()).add("report", BinaryType())
_READ = ("landing_seq", "publish_time")


@dataclass(frozen=True)
class IndexJob:
    """An index to be written: what it goes on from, and the rows that come to it."""

    table: Table
    """The Standardized table that it is of."""
    update: IndexUpdate
    messages: Scan
    rows: Scan
    gone: Sequence[int] = ()
    """The rows that give way, by their numbers."""

    @classmethod
    def of(
        cls, topic: str, raw: Table, standardized: Table, update: IndexUpdate, messages: Scan | None = None
    ) -> "IndexJob":
        """All that is in the tables, or only some messages."""
        built = Slice(0, update.upto)
        whole = Scan(topic, raw, (), built.holds, built.may_be_in)
        ids = replace(messages or whole, columns=(Kind.ID, *_READ), role=Kind.ID)
        return cls(standardized, update, ids, Scan(topic, standardized, (Kind.KEY, *_READ), role=Kind.KEY))


def write_index(spark: SparkSession, job: IndexJob) -> KeyFile | None:
    """Have a worker write an index; None if what it goes on from cannot be read."""
    target, update, gone = Target.of(job.table), job.update, job.gone
    shape, seconds = to_arrow_schema(STANDING), blame.TOPIC_SECONDS

    def write(tasks: Sequence[Task]) -> Iterator[pa.RecordBatch]:
        for task in tasks:
            more: dict[Kind, list[Entries]] = {kind: [] for kind in Kind}
            for batch in task.batches(shape, None, seconds):
                if batch.num_rows:
                    kind = Kind(batch["role"][0].as_py())
                    more[kind].append(Entries.of(pa.Table.from_batches([batch]), kind))
            file = update.write(file_io(target.io), target.metadata, more, gone)
            yield pa.record_batch([pa.array([task.topic]), pa.array([pickle.dumps(file)])], list(_REPORT.names))

    [row] = work_where_read(spark, [job.messages, job.rows], write, _REPORT, by_topic=True).collect()
    found: KeyFile | None = pickle.loads(row["report"])  # noqa: S301 - our own worker's
    return found


def maintain_index(sessions: Callable[[], SparkSession], topic: str, raw: Table, standardized: Table) -> bool:
    """Make the index of a topic anew where it is missing or damaged, and of two files one; whether that was needed."""
    upto, current = int(checkpoint_of(standardized).get("upto", 0)), standardized.current_snapshot()
    if not upto or current is None or not _is_wanting(standardized):
        return False
    spark = sessions()
    sized(spark, upto)
    file = write_index(spark, IndexJob.of(topic, raw, standardized, IndexUpdate(None, upto)))
    assert file, "an index that begins has nothing to go on from"
    outdated = outdated_files(standardized.metadata, file)
    with standardized.transaction() as transaction:
        attach_index(transaction, current.snapshot_id, file)
    for each in outdated:
        with suppress(OSError):
            standardized.io.delete(each.statistics_path)
    return True


def _is_wanting(standardized: Table) -> bool:
    found = index_of(standardized)
    try:
        # The second file holds on to the snapshot that it came with.
        return found is None or KeyIndex.read(standardized.io, found.statistics_path).base is not None
    except KeyIndexUnreadable:
        return True
