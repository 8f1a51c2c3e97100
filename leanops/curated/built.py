"""What a build of Curated did."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import TYPE_CHECKING

from pyiceberg.table.snapshots import Snapshot

from leanops.curated.binding import BoundColumn
from leanops.slices import Slice

if TYPE_CHECKING:
    from leanops.curated.planned import PlannedCurated
    from leanops.curated.worker import Report


@dataclass(frozen=True)
class CuratedBuild:
    """What a build did with the rows that it read. `is_new` is False when there was nothing to do."""

    is_new: bool
    snapshot_id: int | None
    standardized_snapshot: int | None
    bound: Sequence[BoundColumn] = ()
    """Which columns of Standardized fill those of the contract."""
    days: frozenset[date] = frozenset()
    """The publish days of which rows came or went, here or in Standardized."""
    last_ingestion_ts: int | None = None
    part: Slice | None = None
    """Which rows it took in, by their numbers."""
    rows_read: int = 0
    written: int = 0
    updated: int = 0
    """Rows that stood in the table before and gave way to a later version, valid or broken."""
    broken: int = 0
    errors_by_rule: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls, planned: "PlannedCurated", snapshot: Snapshot, report: "Report", days: frozenset[date]
    ) -> "CuratedBuild":
        """A build that has published."""
        return cls(
            is_new=True,
            snapshot_id=snapshot.snapshot_id,
            standardized_snapshot=planned.source_snapshot,
            bound=planned.binding.bound,
            days=days,
            last_ingestion_ts=report.last_ingestion_ts or None,
            part=planned.part,
            rows_read=report.rows,
            written=report.rows - report.invalid,
            updated=len(report.written.gone),
            broken=report.invalid,
            errors_by_rule=dict(sorted(report.errors_by_rule.items())),
        )
