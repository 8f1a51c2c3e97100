"""Which files a table has, and what their metadata says of the rows in each: read once for each snapshot.

A snapshot never changes, so whoever asks again, for other rows of it, reads no manifest. Statistics of which nobody
asks are left out: they are most of what a manifest holds.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table
from pyiceberg.types import LongType

from leanops.recent import Recent

NO_DAY = date(1970, 1, 1)
"""Where rows are counted whose publish time somebody has taken away."""

_kept: "Recent[tuple[str, int], Sequence[TableFile]]" = Recent(4096)
"""By the table and the snapshot."""


@dataclass(frozen=True)
class TableFile:
    """A data file with the positions that are deleted in it, and the bounds of its rows."""

    task: FileScanTask
    day: date
    """The publish day of its rows."""
    first_seq: int | None
    last_seq: int | None
    """The bounds of landing_seq, where they are known."""
    may_lack_seq: bool
    """Whether there may be rows without a number."""
    landed: int | None
    """When the first of its rows landed, where that is known."""

    @classmethod
    def of(cls, task: FileScanTask, schema: Schema) -> "TableFile":
        names = schema.column_names
        seq = schema.find_field("landing_seq").field_id if "landing_seq" in names else -1
        landed = schema.find_field("ingestion_ts").field_id if "ingestion_ts" in names else -1
        file = task.file
        return cls(
            bare_task(task),
            file_day(file),
            _bound(file.lower_bounds, seq),
            _bound(file.upper_bounds, seq),
            (file.null_value_counts or {}).get(seq, 1) > 0,
            _bound(file.lower_bounds, landed),
        )

    @property
    def file(self) -> DataFile:
        return self.task.file

    def may_hold(self, after: int, upto: int) -> bool:
        """Whether it may hold rows that landed after one number and up to another."""
        return (self.first_seq is None or self.first_seq <= upto) and (self.last_seq is None or self.last_seq > after)


def table_files(table: Table, snapshot_id: int | None = None) -> "Sequence[TableFile]":
    """All files of a snapshot, or of what readers see now."""
    if snapshot_id is None:
        current = table.current_snapshot()
        if current is None:
            return ()
        snapshot_id = current.snapshot_id
    which = (str(table.metadata.table_uuid), snapshot_id)
    found = _kept.get(which)
    if found is None:
        schema, tasks = table.schema(), table.scan(snapshot_id=snapshot_id).plan_files()
        found = _kept.keep(which, [TableFile.of(task, schema) for task in tasks])
    return found


def known_files(table: Table, snapshot_id: int) -> "Sequence[TableFile] | None":
    """The files of a snapshot, where this process has listed them before. 0 stands for no snapshot, and has none."""
    return _kept.get((str(table.metadata.table_uuid), snapshot_id)) if snapshot_id else ()


def count_rows(files: "Iterable[TableFile]") -> int:
    """The rows of files: theirs by their own count, less the positions that are deleted, each of them once."""
    held, deletes = 0, {}
    for each in files:
        held += each.file.record_count
        deletes.update({file.file_path: file.record_count for file in each.task.delete_files})
    return held - sum(deletes.values())


def note_files(table: Table, base: int | None, dropped: Collection[DataFile], added: Iterable[DataFile]) -> None:
    """Know the files of the snapshot that readers see now: those of `base`, but some, and others."""
    current, before = table.current_snapshot(), known_files(table, base or 0)
    if current is None or before is None:
        return
    paths, schema = {file.file_path for file in dropped}, table.schema()
    left = [each for each in before if each.file.file_path not in paths]
    which = (str(table.metadata.table_uuid), current.snapshot_id)
    _kept.keep(which, [*left, *(TableFile.of(FileScanTask(file), schema) for file in added)])


def file_day(file: DataFile) -> date:
    """The publish day of a file's rows: the last field of every partition."""
    return NO_DAY + timedelta(days=file.partition[len(file.partition) - 1] or 0)


def bare_task(task: FileScanTask) -> FileScanTask:
    """A task without statistics."""
    return FileScanTask(_bare_file(task.file), {_bare_file(each) for each in task.delete_files})


def _bare_file(file: DataFile) -> DataFile:
    bare = DataFile.from_args(
        content=file.content if file.content is not None else DataFileContent.DATA,
        file_path=file.file_path,
        file_format=FileFormat.PARQUET,
        partition=file.partition,
        record_count=file.record_count,
        file_size_in_bytes=file.file_size_in_bytes,
    )
    bare.spec_id = getattr(file, "_spec_id", 0)
    return bare


def _bound(bounds: dict[int, bytes] | None, field_id: int) -> int | None:
    found = (bounds or {}).get(field_id)
    return None if found is None else int(from_bytes(LongType(), found))
