"""Which topics are in a run that is not finished, so that the tick does not ask for them again."""

import dagster as dg
from dagster._core.storage.dagster_run import NOT_FINISHED_STATUSES

from leanops.contracts.manifest import Manifest
from leanops_assets.jobs import tick


def topics_under_way(instance: dg.DagsterInstance, manifest: Manifest) -> set[str]:
    """The topics of the main job's runs that wait in the queue or are being worked off."""
    topics: set[str] = set()
    for run in instance.get_runs(dg.RunsFilter(job_name=tick.name, statuses=NOT_FINISHED_STATUSES)):
        if run.asset_selection is None:
            return set(manifest.by_name)
        topics |= {key.path[1] for key in run.asset_selection}
    return topics
