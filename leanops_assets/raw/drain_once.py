"""Drain once, in this process, as a run of the job `drain`: what `leanops drain` and the demo do."""

from collections.abc import Collection, Mapping
from typing import Any

import dagster as dg

from leanops.errors import RunFailed
from leanops.settings import Settings
from leanops_assets.raw.drain_job import DRAINED
from leanops_assets.run_job import run_job


def drain_once(settings: Settings, topics: Collection[str] = ()) -> list[dict[str, Any]]:
    """What was done with each topic that had anything waiting; and whether any failed is for its row to say."""
    run = run_job(settings, "drain", "drain_sources", {"topics": list(topics)})
    for event in run.all_events:
        if rows := _metadata(event).get(DRAINED):
            drained: list[dict[str, Any]] = rows.value
            return drained
    if run.success:
        return []
    raise RunFailed(f"The drain failed (run {run.run_id}).", "`make dev` shows it under Runs.")


def _metadata(event: dg.DagsterEvent) -> Mapping[str, Any]:
    """What the step shows, whether it succeeded or failed."""
    if event.is_successful_output:
        return event.step_output_data.metadata
    failed = event.step_failure_data.user_failure_data if event.is_step_failure else None
    return failed.metadata if failed else {}
