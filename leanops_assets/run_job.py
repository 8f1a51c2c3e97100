"""Run a job of the graph at once, in this process, as its sensor or schedule would have it run."""

from collections.abc import Mapping
from typing import Any

import dagster as dg

from leanops.home import Home
from leanops.settings import Settings
from leanops_assets.instance import dagster_instance

QUIET: Mapping[str, Any] = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
"""What a run is told so that it logs to the UI alone."""


def run_job(settings: Settings, name: str, op: str, config: Mapping[str, Any]) -> dg.ExecuteInProcessResult:
    """The finished run of a job with one step, which is in the UI like any other."""
    from leanops_assets.definitions import defs

    with dagster_instance(Home(settings.home).prepare()) as instance:
        return (
            defs()
            .resolve_job_def(name)
            .execute_in_process(
                instance=instance, run_config={**QUIET, "ops": {op: {"config": dict(config)}}}, raise_on_error=False
            )
        )
