"""What a build of Standardized did, and how a table grows columns."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from leanops.ops.drift_log import log_drift
from leanops.slices import Slice
from leanops.standardized.flatten_plan import FlattenPlan
from leanops.standardized.table import add_columns
from leanops.standardized.transform import Fate


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
        snapshot: Snapshot,
        checkpoint: Mapping[str, str],
        part: Slice,
        messages: int,
        last_ingestion_ts: int | None,
        fates: Mapping[str, int],
        new_columns: tuple[str, ...],
    ) -> "StandardizedBuild":
        """A build that has published, by what became of its messages and of rows that were there."""
        return cls(
            is_new=True,
            snapshot_id=snapshot.snapshot_id,
            raw_snapshot=int(checkpoint["raw-snapshot"]),
            last_ingestion_ts=last_ingestion_ts,
            part=part,
            rows_read=messages,
            written=messages - fates[Fate.DUPLICATE] - fates[Fate.PARSE_ERROR] - fates[Fate.SUPERSEDED],
            duplicates=fates[Fate.DUPLICATE],
            parse_errors=fates[Fate.PARSE_ERROR],
            superseded=fates[Fate.SUPERSEDED],
            updated=fates[Fate.REPLACED],
            new_columns=new_columns,
        )


def evolve(catalog: Catalog, topic: str, table: Table, grown: FlattenPlan) -> None:
    """A column for each new field, logged before it is there."""
    log_drift(catalog, topic, grown)
    add_columns(table, grown.columns)
