"""What a build of Curated did."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date

from leanops.curated.binding import BoundColumn
from leanops.slices import Slice


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
