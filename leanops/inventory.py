"""What a table holds, from its metadata alone: no data file is opened and no Spark is woken."""

from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import date
from itertools import takewhile
from typing import NamedTuple

from pyiceberg.manifest import ManifestEntry, ManifestEntryStatus
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot, ancestors_of

from leanops.snapshots import is_compaction
from leanops.table_files import NO_DAY, TableFile, count_rows, file_day, known_files, table_files


@dataclass(frozen=True)
class TableDay:
    """A publish day of a table."""

    rows: int
    data_files: int
    bytes: int
    snapshot_id: int | None


def table_days(table: Table, days: Collection[date]) -> dict[date, TableDay]:
    """What a table holds of each of these days."""
    if not days:
        return {}
    files = _by_day(table)
    snapshot = table.current_snapshot()
    return {
        day: TableDay(
            rows=count_rows(files[day]),
            data_files=len(files[day]),
            bytes=sum(each.file.file_size_in_bytes for each in files[day]),
            snapshot_id=snapshot.snapshot_id if snapshot else None,
        )
        for day in days
    }


def schema_at(table: Table, snapshot_id: int) -> Schema:
    """The columns that a table had when a snapshot was committed."""
    snapshot = table.snapshot_by_id(snapshot_id)
    if snapshot is None or snapshot.schema_id is None:
        return table.schema()
    return table.schemas()[snapshot.schema_id]


def rows_by_day(table: Table) -> dict[date, int]:
    """How many rows a table holds of each day of which it holds any."""
    files = _by_day(table)
    return {day: count_rows(files[day]) for day in sorted(files)}


def _by_day(table: Table) -> defaultdict[date, list[TableFile]]:
    files: defaultdict[date, list[TableFile]] = defaultdict(list)
    for each in table_files(table):
        files[each.day].append(each)
    return files


def table_day(table: Table, day: date) -> TableDay:
    """What a table holds of one day."""
    return table_days(table, [day])[day]


def days_changed(table: Table, before: int, after: int) -> frozenset[date]:
    """The days of which rows came or went by the commits from one snapshot to a later one."""
    first, last = known_files(table, before), known_files(table, after)
    if first is None or last is None or any(map(is_compaction, _commits(table, before, after))):
        return frozenset(file_day(each.data_file) for each in _changes(table, before, after))
    # What a build has listed and committed itself it knows without a manifest.
    return frozenset(each.day for each in {*map(_content, first)} ^ {*map(_content, last)})


def bytes_added(table: Table, before: int, after: int) -> dict[date, int]:
    """How large the files are that these commits added, by day. A day that has only lost files is not in it."""
    added: defaultdict[date, int] = defaultdict(int)
    for each in _changes(table, before, after):
        if each.status is ManifestEntryStatus.ADDED:
            added[file_day(each.data_file)] += each.data_file.file_size_in_bytes
    return dict(added)


def _changes(table: Table, before: int, after: int) -> Iterator[ManifestEntry]:
    for snapshot in _commits(table, before, after):
        if is_compaction(snapshot):
            continue
        for manifest in snapshot.manifests(table.io):
            if manifest.added_snapshot_id == snapshot.snapshot_id:
                entries = manifest.fetch_manifest_entry(table.io, discard_deleted=False)
                yield from (each for each in entries if each.snapshot_id == manifest.added_snapshot_id)


def _commits(table: Table, before: int, after: int) -> Iterator[Snapshot]:
    commits = ancestors_of(table.snapshot_by_id(after), table.metadata)
    return takewhile(lambda each: each.snapshot_id != before, commits)


class _Content(NamedTuple):
    """Which rows a file holds: its own, but for those that are deleted."""

    day: date
    path: str
    deletes: frozenset[str]


def _content(file: TableFile) -> _Content:
    return _Content(file.day, file.file.file_path, frozenset(each.file_path for each in file.task.delete_files))


def row_count(table: Table) -> int:
    """How many rows a table holds."""
    current = table.current_snapshot()
    if current is None or current.summary is None:
        return 0
    has_deletes = int(current.summary["total-delete-files"] or 0)
    return count_rows(table_files(table)) if has_deletes else int(current.summary["total-records"] or 0)


def newest_day(table: Table) -> date:
    """The latest publish day of which the table holds anything."""
    return max(each.day for each in table_files(table))


def has_rows_without_day(table: Table) -> bool:
    """Whether somebody has put rows into a table that stand on no publish day."""
    return any(each.day == NO_DAY for each in table_files(table))
