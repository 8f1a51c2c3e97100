"""What RAW holds of a day, from table metadata alone: no data file is opened and no Spark is woken."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

from pyiceberg.catalog import Catalog
from pyiceberg.expressions import And, BooleanExpression, GreaterThanOrEqual, LessThan
from pyiceberg.table import Table

from leanops.raw.table import ensure_raw_table


@dataclass(frozen=True)
class RawDay:
    """A publish day of a topic's RAW table."""

    rows: int
    data_files: int
    bytes: int
    snapshot_id: int | None


def raw_day(catalog: Catalog, topic: str, day: date) -> RawDay:
    """What the topic's RAW table holds of `day`. RAW is append-only, so its files' own counts are exact."""
    table = ensure_raw_table(catalog, topic)
    files = [task.file for task in table.scan(row_filter=published_on(day)).plan_files()]
    snapshot = table.current_snapshot()
    return RawDay(
        rows=sum(file.record_count for file in files),
        data_files=len(files),
        bytes=sum(file.file_size_in_bytes for file in files),
        snapshot_id=snapshot.snapshot_id if snapshot else None,
    )


@dataclass(frozen=True)
class RawTotals:
    """A whole RAW table."""

    rows: int
    first_landed: datetime | None
    last_landed: datetime | None


def raw_totals(table: Table) -> RawTotals:
    """All that a RAW table holds, and when it grew, as far back as its snapshots are kept."""
    snapshots = sorted(table.metadata.snapshots, key=lambda snapshot: snapshot.timestamp_ms)
    current = table.current_snapshot()
    if current is None or current.summary is None:
        return RawTotals(rows=0, first_landed=None, last_landed=None)
    return RawTotals(
        rows=int(current.summary["total-records"] or 0),
        first_landed=_moment(snapshots[0].timestamp_ms),
        last_landed=_moment(current.timestamp_ms),
    )


def _moment(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def published_on(day: date) -> BooleanExpression:
    """The rows of a publish day, as a filter that meets the table's partitions edge to edge."""
    start = datetime.combine(day, time(), UTC)
    return And(
        GreaterThanOrEqual(term="publish_time", value=start.isoformat()),
        LessThan(term="publish_time", value=(start + timedelta(days=1)).isoformat()),
    )
