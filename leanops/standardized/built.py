"""What a build of Standardized did."""

from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

from pyiceberg.table.snapshots import Snapshot

from leanops.slices import Slice
from leanops.standardized.transform import Fate

if TYPE_CHECKING:
    from leanops.standardized.planned import PlannedStandardized
    from leanops.standardized.worker import Report


@dataclass(frozen=True)
class StandardizedBuild:
    """What a build did with the messages that it read. `is_new` is False when there was nothing to do."""

    is_new: bool
    snapshot_id: int | None
    raw_snapshot: int | None
    days: frozenset[date] = frozenset()
    """The publish days of which rows came or went."""
    last_ingestion_ts: int | None = None
    part: Slice | None = None
    """Which messages it took in."""
    notice: str | None = None
    """Why it read all of RAW again, where that is so."""
    rows_read: int = 0
    written: int = 0
    duplicates: int = 0
    parse_errors: int = 0
    superseded: int = 0
    updated: int = 0
    """Rows that stood in the table before and gave way to a later version."""
    new_columns: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, planned: "PlannedStandardized", snapshot: Snapshot, report: "Report", days: frozenset[date]
    ) -> "StandardizedBuild":
        """A build that has published, by what happened to its messages and to rows that were there."""
        fates = report.fates
        return cls(
            is_new=True,
            snapshot_id=snapshot.snapshot_id,
            raw_snapshot=planned.source_snapshot,
            days=days,
            last_ingestion_ts=report.last_ingestion_ts or None,
            part=planned.part,
            notice=planned.notice,
            rows_read=report.messages,
            written=report.messages - fates[Fate.DUPLICATE] - fates[Fate.PARSE_ERROR] - fates[Fate.SUPERSEDED],
            duplicates=fates[Fate.DUPLICATE],
            parse_errors=fates[Fate.PARSE_ERROR],
            superseded=fates[Fate.SUPERSEDED],
            updated=fates[Fate.REPLACED],
            new_columns=tuple(column.name for column in report.new_columns),
        )
