"""What a table holds, from its metadata alone: no data file is opened and no Spark is woken."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, GreaterThanOrEqual, LessThan
from pyiceberg.table import Table


@dataclass(frozen=True)
class TableDay:
    """A publish day of a table."""

    rows: int
    data_files: int
    bytes: int
    snapshot_id: int | None


@dataclass(frozen=True)
class TableTotals:
    """A whole table."""

    rows: int
    first_commit: datetime | None
    last_commit: datetime | None


def table_day(table: Table, day: date, where: BooleanExpression = AlwaysTrue()) -> TableDay:  # noqa: B008
    """What a table holds of `day`. The platform's tables have no delete files, so their files' own counts are exact."""
    files = [task.file for task in table.scan(row_filter=And(where, published_on(day))).plan_files()]
    snapshot = table.current_snapshot()
    return TableDay(
        rows=sum(file.record_count for file in files),
        data_files=len(files),
        bytes=sum(file.file_size_in_bytes for file in files),
        snapshot_id=snapshot.snapshot_id if snapshot else None,
    )


def table_totals(table: Table) -> TableTotals:
    """All that a table holds, and when it was committed to, as far back as its snapshots are kept."""
    commits = sorted(snapshot.timestamp_ms for snapshot in table.metadata.snapshots)
    current = table.current_snapshot()
    if current is None or current.summary is None:
        return TableTotals(rows=0, first_commit=None, last_commit=None)
    return TableTotals(
        rows=int(current.summary["total-records"] or 0),
        first_commit=_moment(commits[0]),
        last_commit=_moment(current.timestamp_ms),
    )


def published_on(day: date) -> BooleanExpression:
    """The rows of a publish day, as a filter that meets the table's partitions edge to edge."""
    start = datetime.combine(day, time(), UTC)
    return And(
        GreaterThanOrEqual(term="publish_time", value=start.isoformat()),
        LessThan(term="publish_time", value=(start + timedelta(days=1)).isoformat()),
    )


def _moment(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
