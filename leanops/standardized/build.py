"""Build a topic's Standardized table and its parse errors from what RAW has gained."""

from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import date

from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession

from leanops.commits import Draft, checkpoint_of, current_id
from leanops.contracts.model import Contract
from leanops.errors import RowsForeign
from leanops.few_rows import LOCAL_BYTES, files_size
from leanops.inventory import days_changed, table_days
from leanops.raw.table import ensure_raw_table, last_landing_seq
from leanops.slices import SMALL, Slice, sized
from leanops.standardized.built import StandardizedBuild
from leanops.standardized.few import FewMessages
from leanops.standardized.many import ManyMessages
from leanops.standardized.table import (
    ensure_parse_errors_table,
    ensure_standardized_table,
    is_mapped_by,
    plan_of,
)

REREAD = "All of RAW was read again: Standardized had been built by earlier rules, or for other fields of the contract."


def build_standardized(
    sessions: Callable[[], SparkSession],
    catalog: Catalog,
    topic: str,
    contract: Contract,
    rebuild: Collection[date] = (),
) -> StandardizedBuild:
    """Make Standardized what the spec says it is over all of RAW. When nothing has changed, Spark is not asked.

    What landed since the last build is taken in, of whatever day it is, and the days to `rebuild` are made anew from
    all that RAW holds of them. When the contract maps fields otherwise, or the table was built by other rules,
    everything is; and when days that are to be rebuilt turn out to hold rows that RAW does not have so.
    """
    try:
        return _build(sessions, catalog, topic, contract, frozenset(rebuild), is_whole=False)
    except RowsForeign:
        return _build(sessions, catalog, topic, contract, frozenset(), is_whole=True)


def _build(
    sessions: Callable[[], SparkSession],
    catalog: Catalog,
    topic: str,
    contract: Contract,
    rebuild: frozenset[date],
    is_whole: bool,
) -> StandardizedBuild:
    raw = ensure_raw_table(catalog, topic)
    target = ensure_standardized_table(catalog, topic, contract)
    ensure_parse_errors_table(catalog)
    landed, said = raw.current_snapshot(), checkpoint_of(target)
    plan = plan_of(target, contract)
    notice = None if is_mapped_by(target, contract) else REREAD
    after = 0 if notice or is_whole else int(said.get("upto", 0))
    part = Slice(after, last_landing_seq(raw), rebuild if after else frozenset())
    if landed is None or part.is_empty:
        return StandardizedBuild(False, current_id(target), current_id(raw))

    checkpoint = {"upto": str(part.upto), "raw-snapshot": str(landed.snapshot_id)}
    if part.is_whole or part.days:
        checkpoint["rebuilt"] = "all" if part.is_whole else ",".join(map(str, sorted(part.days)))
    rows = part.rows_landed + sum(day.rows for day in table_days(raw, part.days).values())
    draft = Draft.of(target, after)
    if rows <= SMALL and files_size(raw, part.filter, landed.snapshot_id) <= LOCAL_BYTES:
        done = FewMessages(sessions, catalog, topic, contract, raw, part, draft).build(plan, checkpoint)
    else:
        draft.begin()
        spark = sessions()
        with sized(spark, rows):
            done = ManyMessages(spark, catalog, topic, contract, part, draft).build(plan, checkpoint)
    assert done.snapshot_id is not None
    return replace(done, notice=notice, days=days_changed(target, draft.base_id, done.snapshot_id))
