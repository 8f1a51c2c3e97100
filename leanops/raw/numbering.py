"""Numbers for rows that others have appended to RAW: a Firehose knows no landing_seq.

Until they have one, no build sees them. They are written anew, in files like our own, which take the place of those
that they came in; nothing but the number changes. They are numbered behind all that has a number, in the order in which
they were committed: what is incremental sees them as if they had landed now.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.expressions import AlwaysTrue, IsNull
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.manifest import DataFile
from pyiceberg.table import FileScanTask, Table

from leanops.errors import LandingConflict, disk_faults_named
from leanops.raw.files import ARROW_SCHEMA, RawFiles
from leanops.raw.landing import ATTEMPTS, CHUNK_BYTES
from leanops.raw.table import LAST_SEQ, RAW_SCHEMA, last_landing_seq

_PLACE = ARROW_SCHEMA.get_field_index("landing_seq")


def number_rows(table: Table) -> int:
    """Give every row of a RAW table its number, in one commit; how many had none."""
    with disk_faults_named(Path(table.location().removeprefix("file://"))):
        for _ in range(ATTEMPTS):
            table.refresh()
            if not (tasks := _unnumbered(table)):
                return 0
            numbered = _number(table, tasks)
            if numbered is not None:
                return numbered
    raise LandingConflict(
        f"{'.'.join(table.name())} was committed to by others time and again.",
        "No row was numbered. Run the same again.",
    )


def _unnumbered(table: Table) -> list[FileScanTask]:
    """The files that may have rows without a number, as their metadata says, in the order of their commits."""
    tasks = list(table.scan(row_filter=IsNull(term="landing_seq")).plan_files())
    snapshot = table.current_snapshot()
    if not tasks or snapshot is None:
        return []
    entries = (entry for each in snapshot.manifests(table.io) for entry in each.fetch_manifest_entry(table.io))
    commits = {entry.data_file.file_path: entry.sequence_number or 0 for entry in entries}
    return sorted(tasks, key=lambda task: (commits[task.file.file_path], task.file.file_path))


def _number(table: Table, tasks: Sequence[FileScanTask]) -> int | None:
    """Replace these files by numbered ones; how many rows were numbered, or None if others were faster."""
    first = seq = last_landing_seq(table)
    with suppress(CommitFailedException), RawFiles(table) as files:
        written: list[DataFile] = []
        for chunk in _chunks(table, tasks):
            rows, seq = _with_numbers(chunk, seq)
            day_files = list(files.write(rows))
            assert sum(file.record_count for file in day_files) == rows.num_rows, "A row of RAW has no publish_time."
            written += day_files
        if seq > first:
            files.commit(written, {LAST_SEQ: str(seq)}, replaced=[task.file for task in tasks])
        else:
            files.remove()
        return seq - first
    return None


def _chunks(table: Table, tasks: Sequence[FileScanTask]) -> Iterator[pa.Table]:
    """The rows of these files one after the other, as many at a time as may be held in memory beside a file's own."""
    scan = ArrowScan(table.metadata, table.io, RAW_SCHEMA, AlwaysTrue())
    batches: list[pa.RecordBatch] = []
    size = 0
    for batch in (batch for task in tasks for batch in scan.to_record_batches([task])):
        batches.append(batch)
        size += batch.nbytes
        if size >= CHUNK_BYTES:
            yield pa.Table.from_batches(batches).cast(ARROW_SCHEMA)
            batches, size = [], 0
    if batches:
        yield pa.Table.from_batches(batches).cast(ARROW_SCHEMA)


def _with_numbers(rows: pa.Table, seq: int) -> tuple[pa.Table, int]:
    """The rows, of which those without a number have the next ones, and the last of these."""
    numbers = rows["landing_seq"].combine_chunks()
    lacking = numbers.null_count
    following = pa.array(range(seq + 1, seq + 1 + lacking), pa.int64())
    numbers = pc.replace_with_mask(numbers, pc.is_null(numbers), following)
    return rows.set_column(_PLACE, ARROW_SCHEMA.field(_PLACE), numbers), seq + lacking
