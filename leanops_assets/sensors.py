"""What starts work by itself. All of it is on by default, and all of it is in the UI.

| sensor | every | what |
|---|---|---|
| drain | `LEANOPS_DRAIN_SECONDS` | brings what waits in queues or the landing folder to RAW (`raw/drain_job.py`) |
| tick | `LEANOPS_TICK_MINUTES` | requests runs of the main job for the topics of which anything has landed |
| run_log | minute | writes what finished runs did to `ops_db.job_run_history` and `ops_db.reconciliation_log` |
| contracts | 30 s | takes in what is uploaded to `schemas/*/pending/` (`contracts/job.py`) |
| graph | 30 s | reloads the code location when contracts or topics have changed (`contracts/reload.py`) |

The tick asks the tables' metadata alone what is pending; Spark is woken by the runs. What is pending stays pending
until it is built, so a lost cursor loses nothing. The same work is requested once an hour at most: its run may still
be in the queue.
"""

from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from hashlib import sha256
from typing import TYPE_CHECKING

import dagster as dg

from leanops.contracts.manifest import Manifest
from leanops.settings import Settings
from leanops_assets import jobs
from leanops_assets.run_log import log_finished
from leanops_assets.tick import Work, find_work, runs_by_day, selection
from leanops_resources.dagster_resources import CatalogResource, StateStoreResource

if TYPE_CHECKING:
    from leanops.pending import Pending


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
        work = find_work(iceberg.load(), state.store, manifest)
        for topic, problem in work.damaged.items():
            context.log.warning("%s is left out: %s", topic, problem)
        requests = run_requests(runs_by_day(work.pending, settings.first_day), datetime.now(UTC))
        return requests or dg.SkipReason(_nothing_to_do(manifest, work))

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


def run_requests(runs: "Mapping[date, list[Pending]]", now: datetime) -> list[dg.RunRequest]:
    """A request for each run."""
    return [
        dg.RunRequest(
            run_key=_run_key(day, topics, now), partition_key=day.isoformat(), asset_selection=selection(topics)
        )
        for day, topics in runs.items()
    ]


def _nothing_to_do(manifest: Manifest, work: Work) -> str:
    """Why nothing is requested, with each topic that is held back although it has something new."""
    asked = sum(topic.contract is not None for topic in manifest.topics)
    text = f"Nothing new in RAW for any of {asked} topics with a contract."
    if work.skipped:
        text += " Held back: " + " ".join(f"{topic}: {reason}" for topic, reason in work.skipped.items())
    if work.damaged:
        text += f" Left out, because their tables cannot be read: {', '.join(work.damaged)}."
    return text


def _run_key(day: date, topics: "list[Pending]", now: datetime) -> str:
    """The same for the same work within an hour: what failed is asked for again in the next."""
    work = "\n".join(f"{each.topic} {each.upto}" for each in topics)
    return f"{day} {now:%Y-%m-%dT%H} {sha256(work.encode()).hexdigest()[:16]}"
