"""What a build of Standardized did."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

from pyiceberg.table.snapshots import Snapshot

from leanops.slices import Slice
from leanops.standardized.flatten_plan import FlatColumn
from leanops.standardized.transform import Fate

if TYPE_CHECKING:
    from leanops.standardized.planned import Planned


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
        cls,
        planned: "Planned",
        snapshot: Snapshot,
        messages: int,
        last_ingestion_ts: int | None,
        fates: Mapping[str, int],
        new_columns: Iterable[FlatColumn],
        days: frozenset[date],
    ) -> "StandardizedBuild":
        """A build that has published, by what happened to its messages and to rows that were there."""
        counts = Counter(fates)
        return cls(
            is_new=True,
            snapshot_id=snapshot.snapshot_id,
            raw_snapshot=int(planned.checkpoint["raw-snapshot"]),
            days=days,
            last_ingestion_ts=last_ingestion_ts,
            part=planned.part,
            notice=planned.notice,
            rows_read=messages,
            written=messages - counts[Fate.DUPLICATE] - counts[Fate.PARSE_ERROR] - counts[Fate.SUPERSEDED],
            duplicates=counts[Fate.DUPLICATE],
            parse_errors=counts[Fate.PARSE_ERROR],
            superseded=counts[Fate.SUPERSEDED],
            updated=counts[Fate.REPLACED],
            new_columns=tuple(column.name for column in new_columns),
        )
