"""What starts work by itself. All of it is on by default, and all of it is in the UI.

| sensor | every | what |
|---|---|---|
| drain | `LEANOPS_DRAIN_SECONDS` | brings what waits in queues or the landing folder to RAW (`raw/drain_job.py`) |
| tick | `LEANOPS_TICK_MINUTES` | requests runs of the main job for the topics of which anything has landed |
| run_log | minute | writes what finished runs did to `ops_db.job_run_history` and `ops_db.reconciliation_log` |
| lost_runs | minute | ends runs whose process is gone (`lost_runs.py`) |
| contracts | 30 s | takes in what is uploaded to `schemas/*/pending/` (`contracts/job.py`) |
| graph | 30 s | reloads the code location when contracts or topics have changed (`contracts/reload.py`) |

The tick asks the tables' metadata alone what is pending; Spark is woken by the runs. What is pending stays pending
until it is built, so a lost cursor loses nothing. A topic in a run that is not finished is not asked for again, and one
that has failed is left alone for a while (`leanops/backoff.py`). Topics share runs by how much each has to build
(`packing.py`).
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import dagster as dg

from leanops.contracts.manifest import Manifest
from leanops.settings import Settings
from leanops_assets import jobs
from leanops_assets.packing import RUN, PlannedRun, planned_runs
from leanops_assets.run_job import QUIET
from leanops_assets.run_log import log_finished
from leanops_assets.tick import Work, find_work
from leanops_assets.tick_runs import selection
from leanops_assets.under_way import topics_under_way
from leanops_resources.dagster_resources import CatalogResource, StateStoreResource
from leanops_resources.spark.server import wake


def build_tick_sensor(manifest: Manifest, settings: Settings) -> dg.SensorDefinition:
    """The sensor that finds what has landed for the topics of `manifest`."""

    @dg.sensor(
        name="tick",
        job=jobs.tick,
        minimum_interval_seconds=settings.tick_minutes * 60,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Builds what has landed: each topic with anything new in a run of its newest day that has.",
    )
    def tick(
        context: dg.SensorEvaluationContext, iceberg: CatalogResource, state: StateStoreResource
    ) -> list[dg.RunRequest] | dg.SkipReason:
        work = find_work(iceberg.catalog, state.store, manifest, settings)
        due = work.pending
        if due:
            under_way = topics_under_way(context.instance, manifest)
            due = [each for each in due if each.topic not in under_way]
        if not due:
            return dg.SkipReason(_nothing_to_do(manifest, work))
        # It takes as long to start as the runs take to be requested.
        wake(settings)
        for topic, problem in work.damaged.items():
            context.log.warning("%s is left out: %s", topic, problem)
        for topic, reason in work.skipped.items():
            context.log.info("%s is held back: %s", topic, reason)
        return run_requests(planned_runs(due, settings.first_day, settings.topics_per_run, work.failed_before))

    return tick


@dg.sensor(
    name="run_log",
    minimum_interval_seconds=60,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Writes what finished runs did to ops_db, all of them in one commit.",
)
def run_log(context: dg.SensorEvaluationContext, iceberg: CatalogResource) -> dg.SkipReason:
    """The cursor is the moment up to which runs have been looked at. Runs that are logged already are left out."""
    begun = datetime.now(UTC)
    since = datetime.fromisoformat(context.cursor) if context.cursor else begun - timedelta(hours=1)
    statuses = [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED]
    # A run may have been stored a little later than it says.
    finished = context.instance.get_runs(
        dg.RunsFilter(statuses=statuses, updated_after=since - timedelta(minutes=1)), ascending=True
    )
    count = log_finished(iceberg.load(), context.instance, finished)
    context.update_cursor(begun.isoformat())
    return dg.SkipReason(f"Wrote down {count} runs." if count else "No run has finished.")


def run_requests(runs: Iterable[PlannedRun]) -> list[dg.RunRequest]:
    """A request for each run."""
    return [
        dg.RunRequest(
            partition_key=run.day.isoformat(),
            asset_selection=selection(run.topics),
            run_config=dict(QUIET),
            tags={RUN: run.kind.value},
        )
        for run in runs
    ]


def _nothing_to_do(manifest: Manifest, work: Work) -> str:
    """Why nothing is requested, with each topic that is held back although it has something new."""
    asked = sum(topic.contract is not None for topic in manifest.topics)
    text = f"Nothing new in RAW for any of {asked} topics with a contract."
    if work.pending:
        names = ", ".join(each.topic for each in work.pending)
        text = f"All that is new is in runs that are queued or under way: {names}."
    if work.skipped:
        text += " Held back: " + " ".join(f"{topic}: {reason}" for topic, reason in work.skipped.items())
    if work.damaged:
        text += f" Left out, because their tables cannot be read: {', '.join(work.damaged)}."
    return text
