"""Which files a table has, and what their metadata says of the rows in each: read once for each snapshot.

A snapshot never changes, so whoever asks again, for other rows of it, reads no manifest. Statistics of which nobody
asks are left out: they are most of what a manifest holds.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta

import numpy as np
import numpy.typing as npt
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table
from pyiceberg.typedef import Record

from leanops.recent import Recent

NO_DAY = date(1970, 1, 1)
"""Where rows are counted whose publish time somebody has taken away."""

_FIRST, _LAST = -(2**62), 2**62

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
    last_landed: int | None
    """When the first and the last of its rows landed, where that is known."""

    @classmethod
    def all_of(cls, tasks: Iterable[FileScanTask], schema: Schema) -> "list[TableFile]":
        """The files that a plan has named, of a table with these columns."""
        ids = {each.name: each.field_id for each in schema.fields}
        seq, landed = ids.get("landing_seq", -1), ids.get("ingestion_ts", -1)
        return [
            cls(
                bare_task(task),
                file_day(file),
                _bound(file.lower_bounds, seq),
                _bound(file.upper_bounds, seq),
                (file.null_value_counts or {}).get(seq, 1) > 0,
                _bound(file.lower_bounds, landed),
                _bound(file.upper_bounds, landed),
            )
            for task in tasks
            for file in [task.file]
        ]

    @property
    def file(self) -> DataFile:
        return self.task.file

    def with_deletes(self, deletes: set[DataFile] | None) -> "TableFile":
        """The same file with further positions deleted in it."""
        return replace(self, task=FileScanTask(self.file, self.task.delete_files | deletes)) if deletes else self

    def may_hold_any(self, seqs: Sequence[int]) -> bool:
        """Whether it may hold rows of some numbers, which are in order."""
        first = _FIRST if self.first_seq is None else self.first_seq
        return has_between(seqs, first, _LAST if self.last_seq is None else self.last_seq)

    def may_hold(self, after: int, upto: int) -> bool:
        """Whether it may hold rows that landed after one number and up to another."""
        return (self.first_seq is None or self.first_seq <= upto) and (self.last_seq is None or self.last_seq > after)


@dataclass(frozen=True)
class PackedFiles:
    """Files of a table by columns, for workers: of hundreds that a topic has, a look-up opens a few."""

    paths: str
    days: npt.NDArray[np.int32]
    first_seqs: npt.NDArray[np.int64]
    last_seqs: npt.NDArray[np.int64]
    """The bounds of landing_seq; those of a file that may have any number, or rows without one, are far apart."""
    deletes: Mapping[int, Sequence[str]]
    """The files of deleted positions that some of them have."""

    @classmethod
    def of(cls, files: Sequence[TableFile]) -> "PackedFiles":
        return cls(
            "\n".join(each.file.file_path for each in files),
            np.array([day_number(each.day) for each in files], np.int32),
            np.array([_FIRST if each.first_seq is None or each.may_lack_seq else each.first_seq for each in files]),
            np.array([_LAST if each.last_seq is None or each.may_lack_seq else each.last_seq for each in files]),
            {
                place: [delete.file_path for delete in each.task.delete_files]
                for place, each in enumerate(files)
                if each.task.delete_files
            },
        )

    def beyond(self, upto: int | None) -> list[FileScanTask]:
        """The files that may hold rows beyond a number, or without one; all of them, if there is no number."""
        return self._tasks(np.flatnonzero(self.last_seqs > upto) if upto is not None else range(len(self.days)))

    def having(
        self, seqs: npt.NDArray[np.int64], days: npt.NDArray[np.int32] | None = None, upto: int | None = None
    ) -> Iterator[tuple[FileScanTask, list[int]]]:
        """The files that may hold rows of these numbers, and days; of those that hold none beyond a number."""
        may_hold = (self.first_seqs[:, None] <= seqs) & (seqs <= self.last_seqs[:, None])
        if days is not None:
            may_hold &= self.days[:, None] == days
        if upto is not None:
            may_hold &= (self.last_seqs <= upto)[:, None]
        places = np.flatnonzero(may_hold.any(axis=1))
        for place, task in zip(places, self._tasks(places), strict=True):
            yield task, sorted(seqs[may_hold[place]].tolist())

    def _tasks(self, places: Iterable[int]) -> list[FileScanTask]:
        paths = self.paths.split("\n")
        return [FileScanTask(_named(paths[place]), {*map(_deletes, self.deletes.get(place, ()))}) for place in places]


def _named(path: str, content: DataFileContent = DataFileContent.DATA) -> DataFile:
    """A file of which nothing is known but where it is."""
    return DataFile.from_args(content=content, file_path=path, file_format=FileFormat.PARQUET, partition=Record())


def _deletes(path: str) -> DataFile:
    return _named(path, DataFileContent.POSITION_DELETES)


def has_between(seqs: Sequence[int], first: int, last: int) -> bool:
    """Whether any of some numbers, which are in order, lies between two others."""
    place = bisect_left(seqs, first)
    return place < len(seqs) and seqs[place] <= last


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
        tasks = table.scan(snapshot_id=snapshot_id).plan_files()
        found = _kept.keep(which, TableFile.all_of(tasks, table.schema()))
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


def note_files(
    table: Table,
    base: int | None,
    dropped: Collection[DataFile],
    added: Iterable[DataFile],
    deletes: Iterable[tuple[str, DataFile]] = (),
) -> None:
    """Know the files of the snapshot that readers see now: those of `base`, but some, and others.

    Of those that stay, `deletes` are positions that are deleted, each with the path of the file that they are in.
    """
    current, before = table.current_snapshot(), known_files(table, base or 0)
    if current is None or before is None:
        return
    deleted = dict[str, set[DataFile]]()
    for path, file in deletes:
        deleted.setdefault(path, set()).add(_bare_file(file))
    gone = {file.file_path for file in dropped}
    left = [each.with_deletes(deleted.get(each.file.file_path)) for each in before if each.file.file_path not in gone]
    which = (str(table.metadata.table_uuid), current.snapshot_id)
    _kept.keep(which, [*left, *TableFile.all_of(map(FileScanTask, added), table.schema())])


def day_number(day: date) -> int:
    """A day as Iceberg counts days."""
    return (day - NO_DAY).days


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
    # As Iceberg writes a BIGINT; PyIceberg's own reader of bounds takes ten times as long to find that out.
    return None if found is None else int.from_bytes(found, "little", signed=True)
