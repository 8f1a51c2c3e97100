"""Which topics are in a run that is not finished, so that the tick does not ask for them again."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import dagster as dg
from dagster._core.storage.dagster_run import NOT_FINISHED_STATUSES

from leanops.contracts.manifest import Manifest
from leanops.settings import Settings
from leanops_assets.jobs import tick
from leanops_assets.layer_step import PATIENCE


def topics_under_way(instance: dg.DagsterInstance, manifest: Manifest, settings: Settings, now: datetime) -> set[str]:
    """The topics of the main job's runs that wait in the queue or are being worked off."""
    topics: set[str] = set()
    for run in _unfinished(instance, now - silent(settings)):
        if run.asset_selection is None:
            return set(manifest.by_name)
        topics |= {key.path[1] for key in run.asset_selection}
    return topics


def silent(settings: Settings) -> timedelta:
    """A run that says nothing for longer was killed: no step may take, or wait for another, so long."""
    return 2 * timedelta(minutes=settings.step_minutes) + PATIENCE


def _unfinished(instance: dg.DagsterInstance, spoke_after: datetime) -> Iterator[dg.DagsterRun]:
    unfinished = dg.RunsFilter(job_name=tick.name, statuses=NOT_FINISHED_STATUSES)
    for record in instance.get_run_records(unfinished):
        # A run may wait in the queue for as long as it has to.
        if record.dagster_run.status is dg.DagsterRunStatus.QUEUED or _last_word(instance, record) > spoke_after:
            yield record.dagster_run


def _last_word(instance: dg.DagsterInstance, record: dg.RunRecord) -> datetime:
    latest = instance.get_records_for_run(record.dagster_run.run_id, limit=1, ascending=False).records
    if latest:
        return datetime.fromtimestamp(latest[0].timestamp, UTC)
    return record.create_timestamp.astimezone(UTC)
