"""Run a job of the graph at once, in this process, as its sensor or schedule would have it run."""

from collections.abc import Mapping
from typing import Any

import dagster as dg

from leanops.errors import RunFailed
from leanops.home import Home
from leanops.settings import Settings
from leanops_assets.instance import dagster_instance

QUIET: Mapping[str, Any] = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
"""What a run is told so that it logs to the UI alone."""


def run_job(
    settings: Settings, name: str, op: str, config: Mapping[str, Any], definitions: dg.Definitions | None = None
) -> dg.ExecuteInProcessResult:
    """The finished run of a job with one step, which is in the UI like any other."""
    from leanops_assets.definitions import defs

    job = (definitions or defs()).resolve_job_def(name)
    run_config = {**QUIET, "ops": {op: {"config": dict(config)}}}
    with dagster_instance(Home(settings.home).prepare()) as instance:
        return job.execute_in_process(instance=instance, run_config=run_config, raise_on_error=False)


def rows_told(run: dg.ExecuteInProcessResult, name: str) -> list[dict[str, Any]]:
    """The rows that a run's step shows under a name; also where it failed because of what some of them say."""
    for event in run.all_events:
        if shown := _metadata(event).get(name):
            rows: list[dict[str, Any]] = shown.value
            return rows
    if run.success:
        return []
    job = run.dagster_run.job_name
    raise RunFailed(f"The job {job} failed (run {run.run_id}).", "`make dev` shows it under Runs.")


def _metadata(event: dg.DagsterEvent) -> Mapping[str, Any]:
    if event.is_successful_output:
        return event.step_output_data.metadata
    failed = event.step_failure_data.user_failure_data if event.is_step_failure else None
    return failed.metadata if failed else {}
