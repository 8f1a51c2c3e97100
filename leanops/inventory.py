"""What a table holds, from its metadata alone: no data file is opened and no Spark is woken."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, GreaterThanOrEqual, IsNull, LessThan
from pyiceberg.manifest import DataFile, ManifestEntry, ManifestEntryStatus
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.snapshots import Operation, ancestors_of

_ALL = AlwaysTrue()

NO_DAY = date(1970, 1, 1)
"""Where rows are counted whose publish time somebody has taken away."""


@dataclass(frozen=True)
class TableDay:
    """A publish day of a table."""

    rows: int
    data_files: int
    bytes: int
    snapshot_id: int | None


def table_days(table: Table, days: Collection[date], where: BooleanExpression = _ALL) -> dict[date, TableDay]:
    """What a table holds of each of these days. The day of publish_time is the last field of every partition."""
    if not days:
        return {}
    between = And(published_on(min(days), max(days)), where)
    tasks: dict[date, list[FileScanTask]] = {day: [] for day in days}
    for task in table.scan(row_filter=between).plan_files():
        tasks.setdefault(file_day(task.file), []).append(task)
    snapshot = table.current_snapshot()
    return {
        day: TableDay(
            rows=_rows(tasks[day]),
            data_files=len(tasks[day]),
            bytes=sum(task.file.file_size_in_bytes for task in tasks[day]),
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
    tasks: defaultdict[date, list[FileScanTask]] = defaultdict(list)
    for task in table.scan().plan_files():
        tasks[file_day(task.file)].append(task)
    return {day: _rows(tasks[day]) for day in sorted(tasks)}


def table_day(table: Table, day: date, where: BooleanExpression = _ALL) -> TableDay:
    """What a table holds of one day."""
    return table_days(table, [day], where)[day]


def days_changed(table: Table, before: int, after: int) -> frozenset[date]:
    """The days of which rows came or went by the commits from one snapshot to a later one."""
    return frozenset(file_day(each.data_file) for each in _changes(table, before, after))


def bytes_added(table: Table, before: int, after: int) -> dict[date, int]:
    """How large the files are that these commits added, by day. A day that has only lost files is not in it."""
    added: defaultdict[date, int] = defaultdict(int)
    for each in _changes(table, before, after):
        if each.status is ManifestEntryStatus.ADDED:
            added[file_day(each.data_file)] += each.data_file.file_size_in_bytes
    return dict(added)


def _changes(table: Table, before: int, after: int) -> Iterator[ManifestEntry]:
    for snapshot in ancestors_of(table.snapshot_by_id(after), table.metadata):
        if snapshot.snapshot_id == before:
            break
        if snapshot.summary and snapshot.summary.operation is Operation.REPLACE:
            continue  # A compaction: other files, the same rows.
        for manifest in snapshot.manifests(table.io):
            if manifest.added_snapshot_id == snapshot.snapshot_id:
                entries = manifest.fetch_manifest_entry(table.io, discard_deleted=False)
                yield from (each for each in entries if each.snapshot_id == manifest.added_snapshot_id)


def row_count(table: Table) -> int:
    """How many rows a table holds."""
    current = table.current_snapshot()
    if current is None or current.summary is None:
        return 0
    has_deletes = int(current.summary["total-delete-files"] or 0)
    return _rows(table.scan().plan_files()) if has_deletes else int(current.summary["total-records"] or 0)


def newest_day(table: Table) -> date:
    """The latest publish day of which the table holds anything."""
    return max(file_day(task.file) for task in table.scan().plan_files())


def _rows(tasks: Iterable[FileScanTask]) -> int:
    """The rows of these files: theirs by their own count, less the positions that are deleted, each of them once."""
    held, deletes = 0, {}
    for task in tasks:
        held += task.file.record_count
        deletes.update({file.file_path: file.record_count for file in task.delete_files})
    return held - sum(deletes.values())


def published_on(first: date, last: date) -> BooleanExpression:
    """The rows of publish days, as a filter that meets the table's partitions edge to edge."""
    start, end = (datetime.combine(day, time(), UTC) for day in (first, last + timedelta(days=1)))
    return And(
        GreaterThanOrEqual(term="publish_time", value=start.isoformat()),
        LessThan(term="publish_time", value=end.isoformat()),
    )


def file_day(file: DataFile) -> date:
    """The publish day of a file's rows."""
    return NO_DAY + timedelta(days=file.partition[len(file.partition) - 1] or 0)


def has_rows_without_day(table: Table) -> bool:
    """Whether somebody has put rows into a table that stand on no publish day."""
    return any(True for _ in table.scan(row_filter=IsNull(term="publish_time")).plan_files())
