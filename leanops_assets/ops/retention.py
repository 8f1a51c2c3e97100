"""The job `retention`: what Dagster has written down of old runs is removed, so that it does not fill the disk.

| what | after `LEANOPS_RETENTION_DAYS` |
|---|---|
| finished runs, their events and logs, and what they left under `DAGSTER_HOME/storage` | removed |
| what these runs alone were planned from: snapshots of jobs and plans | removed |
| materialisations | removed, but for the latest of each day of an asset: the UI goes on showing the day as built |
| verdicts of checks | removed, but for the latest of each check and day |
| manifests | removed, but for those that the graph or an unfinished run is built from |

Dagster's own `delete_run` would remove the latest materialisations too, and a day that was built long ago would look as
if it never had been; and it leaves a run's file, its tags and the verdicts behind.
"""

import shutil
from collections.abc import Iterator, Mapping, Set
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import sqlalchemy as db
from dagster._core.definitions.definitions_load_context import DefinitionsLoadContext, DefinitionsLoadType
from dagster._core.storage.dagster_run import FINISHED_STATUSES, NOT_FINISHED_STATUSES
from dagster._core.storage.event_log.schema import (
    AssetCheckExecutionsTable,
    AssetEventTagsTable,
    SqlEventLogStorageTable,
)
from dagster._core.storage.event_log.sql_event_log import SqlEventLogStorage
from dagster._core.storage.event_log.sqlite.sqlite_event_log import SqliteEventLogStorage
from dagster._core.storage.runs.schema import RunTagsTable, SnapshotsTable
from dagster._core.storage.runs.sql_run_storage import SqlRunStorage

from leanops.contracts.manifest import Manifest
from leanops.home import Home
from leanops.settings import Settings
from leanops_assets.manifests import PIN

_RUNS_AT_A_TIME = 100
_MATERIALISED = dg.DagsterEventType.ASSET_MATERIALIZATION.value


def build_retention_job(manifest: Manifest, settings: Settings) -> dg.JobDefinition:
    """The job that removes what is old."""

    @dg.op(name="forget", description="Removes old runs, superseded materialisations and verdicts, and manifests.")
    def forget(context: dg.OpExecutionContext) -> None:
        before = datetime.now(UTC) - timedelta(days=settings.retention_days)
        home = Home(settings.home)
        context.add_output_metadata(
            {
                "runs": forget_runs(context.instance, home, before),
                "verdicts": forget_verdicts(context.instance, before),
                "manifests": forget_manifests(context.instance, home, before, manifest),
            }
        )

    @dg.job(name="retention", description="Removes what Dagster wrote down of runs that are older than some days.")
    def retention_job() -> None:
        forget()

    return retention_job


def forget_runs(instance: dg.DagsterInstance, home: Home, before: datetime) -> int:
    """Remove the runs that finished before a moment; how many there were."""
    events, runs = instance.event_log_storage, instance.run_storage
    assert isinstance(events, SqlEventLogStorage)
    assert isinstance(runs, SqlRunStorage)
    old = {
        run.run_id: _planned_from(run)
        for run in _runs(instance, dg.RunsFilter(statuses=FINISHED_STATUSES, updated_before=before))
    }
    _forget_snapshots(instance, runs, old)
    for run_id in old:
        _forget_events(events, run_id)
        shutil.rmtree(home.dagster / "storage" / run_id, ignore_errors=True)
        with runs.connect() as connection:
            connection.execute(RunTagsTable.delete().where(RunTagsTable.c.run_id == run_id))
        # The run itself comes last: what is cut off is taken up again by the next night.
        runs.delete_run(run_id)
    return len(old)


def _runs(instance: dg.DagsterInstance, filters: dg.RunsFilter) -> Iterator[dg.DagsterRun]:
    """All such runs, some at a time: a run of the tick names every one of its assets."""
    cursor = None
    while some := instance.get_runs(filters, cursor=cursor, limit=_RUNS_AT_A_TIME):
        yield from some
        cursor = some[-1].run_id


def _planned_from(run: dg.DagsterRun) -> set[str]:
    """The snapshots that a run refers to, but for that of the whole job, which the one of its part refers to."""
    return {each for each in (run.job_snapshot_id, run.execution_plan_snapshot_id) if each}


def _forget_snapshots(instance: dg.DagsterInstance, storage: SqlRunStorage, old: Mapping[str, Set[str]]) -> None:
    """Remove the snapshots that none but old runs refer to.

    One that a run is about to refer to again, at this very moment, is missed by it: the run is refused or fails, and
    what it was to build is asked for by the next tick.
    """
    gone = set[str]().union(*old.values())
    if gone:
        for run in _runs(instance, dg.RunsFilter()):
            if run.run_id not in old:
                gone -= _planned_from(run)
    with storage.connect() as connection:
        for snapshot_id in gone:
            connection.execute(SnapshotsTable.delete().where(SnapshotsTable.c.snapshot_id == snapshot_id))


def _forget_events(storage: SqlEventLogStorage, run_id: str) -> None:
    """Remove a run's events, but for materialisations that no later one has taken the place of."""
    event, later = SqlEventLogStorageTable, SqlEventLogStorageTable.alias("later")
    is_superseded = (
        db.select(later.c.id)
        .where(
            later.c.asset_key == event.c.asset_key,
            later.c.dagster_event_type == _MATERIALISED,
            later.c.partition.is_not_distinct_from(event.c.partition),
            later.c.id > event.c.id,
        )
        .exists()
    )
    is_latest = db.and_(event.c.dagster_event_type == _MATERIALISED, ~is_superseded)
    gone = db.select(event.c.id).where(
        event.c.run_id == run_id, db.or_(event.c.dagster_event_type.is_(None), ~is_latest)
    )
    with storage.index_connection() as connection:
        connection.execute(AssetEventTagsTable.delete().where(AssetEventTagsTable.c.event_id.in_(gone)))
        connection.execute(event.delete().where(event.c.id.in_(gone)))
    if isinstance(storage, SqliteEventLogStorage):
        file = Path(storage.path_for_shard(run_id))
        for each in (file, file.with_name(f"{file.name}-wal"), file.with_name(f"{file.name}-shm")):
            each.unlink(missing_ok=True)


def forget_verdicts(instance: dg.DagsterInstance, before: datetime) -> int:
    """Remove the verdicts of checks from before a moment that later ones have taken the place of."""
    storage = instance.event_log_storage
    assert isinstance(storage, SqlEventLogStorage)
    verdict, later = AssetCheckExecutionsTable, AssetCheckExecutionsTable.alias("later")
    is_superseded = (
        db.select(later.c.id)
        .where(
            later.c.asset_key == verdict.c.asset_key,
            later.c.check_name == verdict.c.check_name,
            later.c.partition.is_not_distinct_from(verdict.c.partition),
            later.c.id > verdict.c.id,
        )
        .exists()
    )
    gone = db.select(verdict.c.id).where(
        verdict.c.create_timestamp < before.astimezone(UTC).replace(tzinfo=None), is_superseded
    )
    with storage.index_connection() as connection:
        return connection.execute(verdict.delete().where(verdict.c.id.in_(gone))).rowcount


def forget_manifests(instance: dg.DagsterInstance, home: Home, before: datetime, current: Manifest) -> int:
    """Remove the manifests from before a moment that nothing is built from any more."""
    needed = {current.version, *_pinned(instance)}
    old = [
        path
        for path in home.manifests.glob("*.json")
        if path.stem not in needed and path.stat().st_mtime < before.timestamp()
    ]
    for path in old:
        path.unlink(missing_ok=True)
    return len(old)


def _pinned(instance: dg.DagsterInstance) -> Iterator[str]:
    """The versions that unfinished runs were planned with."""
    for run in instance.get_runs(dg.RunsFilter(statuses=NOT_FINISHED_STATUSES)):
        if run.execution_plan_snapshot_id:
            plan = instance.get_execution_plan_snapshot(run.execution_plan_snapshot_id)
            loaded = DefinitionsLoadContext(DefinitionsLoadType.RECONSTRUCTION, plan.repository_load_data)
            if PIN in loaded.reconstruction_metadata:
                yield str(loaded.reconstruction_metadata[PIN])
