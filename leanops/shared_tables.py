"""Tables that all topics share: each topic adds or replaces its own rows, whoever else commits at the same time.

Hundreds of topics commit to them in a tick. All metadata is written with each commit, so of these tables only the
latest snapshots are kept, as the nightly maintenance would: once there are twice as many, the others go. What it says
of their files is the same.
"""

import warnings
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pyarrow as pa
from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.expressions import BooleanExpression
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table
from pyiceberg.table.update import RemoveSnapshotsUpdate

from leanops.manifests import arrange
from leanops.replacement import fitted
from leanops.tables import SNAPSHOTS, is_by_topic, overtaken, with_many_retries

_COMMITS = 16
"""After so many, manifests are looked at."""

_IN_USE = timedelta(seconds=30)
"""Whoever commits looks at what has happened since the snapshot that it has read."""


def append_rows(table: Table, rows: pa.Table) -> None:
    """Add rows in one commit."""
    with_many_retries(table)
    table.append(rows)
    _keep_up(table)


def replace_own(table: Table, rows: pa.Table, own: BooleanExpression | None) -> None:
    """Put few rows in the place of those of the topic that match `own`, in one commit; or beside all of them.

    What others commit of their topics does not matter; PyIceberg looks at that and commits again. `BuildOvertaken` when
    it was the same topic.
    """
    rows = fitted(rows, schema_to_pyarrow(table.schema()))
    with_many_retries(table)
    try:
        if own is None:
            table.append(rows)
        else:
            with warnings.catch_warnings():
                # That there is nothing to replace is no news.
                warnings.filterwarnings("ignore", "Delete operation did not match any records")
                table.overwrite(rows, own) if rows.num_rows else table.delete(own)
    except (CommitFailedException, ValidationException) as error:
        raise overtaken(table) from error
    _keep_up(table)


def _keep_up(table: Table) -> None:
    """Now and then, see to it that a table of many commits stays quick to commit to."""
    _forget_snapshots(table)
    if table.metadata.next_sequence_number() % _COMMITS == 0 and is_by_topic(table):
        arrange(table)


def _forget_snapshots(table: Table) -> None:
    snapshots = sorted(table.metadata.snapshots, key=lambda each: each.sequence_number or 0)
    if len(snapshots) <= 2 * SNAPSHOTS:
        return
    before = (datetime.now(UTC) - _IN_USE).timestamp() * 1000
    old = [each.snapshot_id for each in snapshots[:-SNAPSHOTS] if each.timestamp_ms < before]
    # Somebody else may be at it; whoever is second finds the table changed, or the snapshots gone.
    with suppress(CommitFailedException, ValueError):
        table.catalog.commit_table(table, (), (RemoveSnapshotsUpdate(snapshot_ids=old),))
