"""Build a topic's Curated table and its contract errors from what Standardized has gained and lost."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime

from pyiceberg.catalog import Catalog
from pyiceberg.expressions import EqualTo
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from leanops.commits import Draft, certain_upto, checkpoint_of, commits_since, current_id
from leanops.contracts.model import Contract
from leanops.curated.binding import bound_columns
from leanops.curated.built import CuratedBuild
from leanops.curated.errors import restamp_open_errors
from leanops.curated.few import FewRows
from leanops.curated.many import ManyRows
from leanops.curated.table import ensure_curated_table, ensure_errors_table, in_force_since
from leanops.few_rows import LOCAL_BYTES, files_size
from leanops.inventory import days_changed, has_rows_without_day, schema_at, table_days
from leanops.picked import Picked
from leanops.slices import SMALL, Slice, sized
from leanops.standardized.table import ensure_standardized_table, flat_columns


def build_curated(
    sessions: Callable[[], SparkSession],
    catalog: Catalog,
    topic: str,
    contract: Contract,
    rebuild: Collection[date] = (),
) -> CuratedBuild:
    """Make Curated what the spec says it is over all of Standardized. When nothing has changed, Spark is not asked.

    What Standardized has gained since the last build is taken in, and days that were rebuilt there, or are to be
    rebuilt here, are made anew. When the contract says something else, everything is.
    """
    source = ensure_standardized_table(catalog, topic, contract)
    target = ensure_curated_table(catalog, topic, contract)
    errors = ensure_errors_table(catalog)
    read = source.current_snapshot()
    held = schema_at(source, read.snapshot_id) if read else source.schema()
    bound = bound_columns(contract, flat_columns(held))
    since = _Since.read(source, target, contract, rebuild)
    if read is None or (since.part.is_empty and since.is_of_version):
        return CuratedBuild(False, current_id(target), current_id(source), bound)
    if not since.is_of_version:
        restamp_open_errors(sessions, errors, topic, contract.version)

    checkpoint = {
        "upto": str(since.part.upto),
        "standardized-snapshot": str(read.snapshot_id),
        "contract": contract.fingerprint,
        "contract-version": str(contract.version),
        "contract-since": in_force_since(target, contract) or datetime.now(UTC).isoformat(),
    }
    part = since.part
    draft = Draft.of(target, part.after)
    rows = part.rows_landed + sum(day.rows for day in table_days(source, part.days).values())
    lost = None if draft.is_second_try else since.lost
    if rows <= SMALL and _is_little(source, part, read.snapshot_id, errors, topic, lost):
        done = FewRows(sessions, topic, contract, bound, source, errors, part, lost, draft).build(checkpoint)
    else:
        draft.begin()
        spark = sessions()
        with sized(spark, rows):
            done = ManyRows(spark, topic, contract, bound, part, lost, draft).build(checkpoint)
    assert done.snapshot_id is not None
    own, others = (target, draft.base_id, done.snapshot_id), (source, since.snapshot, read.snapshot_id)
    return replace(done, bound=bound, days=days_changed(*own) | days_changed(*others))


def _is_little(source: Table, part: Slice, snapshot_id: int, errors: Table, topic: str, lost: Picked | None) -> bool:
    """Whether all that the build has to look at can be brought here."""
    if files_size(source, part.filter, snapshot_id) > LOCAL_BYTES:
        return False
    own = EqualTo(term="topic_name", value=topic)
    return lost is not None or files_size(errors, own) <= LOCAL_BYTES


@dataclass(frozen=True)
class _Since:
    """What Standardized has gained and lost since Curated last looked."""

    part: Slice
    lost: Picked | None
    """The rows that later versions have replaced; None where it takes a look at the tables to tell."""
    snapshot: int
    """What it last looked at; 0 when it never did."""
    is_of_version: bool = True
    """Whether it was built by this version of a contract that says the same of rows as an earlier one."""

    @classmethod
    def read(cls, source: Table, target: Table, contract: Contract, rebuild: Collection[date]) -> "_Since":
        upto, said = int(checkpoint_of(source).get("upto", 0)), checkpoint_of(target)
        builds = commits_since(source, said.get("standardized-snapshot"))
        rebuilt = [day for build in builds or () for day in build.get("rebuilt", "").split(",") if day]
        if builds is None or "all" in rebuilt or said.get("contract") != contract.fingerprint:
            return cls(Slice(0, upto), None, 0)
        days = {*rebuild, *map(date.fromisoformat, rebuilt)}
        if days and has_rows_without_day(target):
            return cls(Slice(0, upto), None, 0)
        after = certain_upto(target, int(said.get("upto", 0)))
        lost = None if days else Picked.told((build.get("replaced", "") for build in builds), after)
        is_of_version = said.get("contract-version") == str(contract.version)
        return cls(Slice(after, upto, frozenset(days)), lost, int(said["standardized-snapshot"]), is_of_version)
