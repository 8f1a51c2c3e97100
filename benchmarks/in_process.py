"""A tick in this process, as `leanops tick` does it, and what its runs took without what was loaded for them."""

import os
import time
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import dagster as dg

from benchmarks.fleet_home import Fleet
from leanops.settings import Settings
from leanops_assets.tick import tick_once


@dataclass
class RunCost:
    """What the runs of a tick took, from Dagster's first event to its last: by the clock, and of this process alone."""

    seconds: float = 0
    core_seconds: float = 0


def tick_here(fleet: Fleet) -> RunCost:
    """Build what is pending of a home, which must succeed."""
    cost, execute = RunCost(), dg.JobDefinition.execute_in_process

    def timed(*arguments: Any, **named: Any) -> dg.ExecuteInProcessResult:
        begun, begun_here = time.perf_counter(), time.process_time()
        try:
            return execute(*arguments, **named)
        finally:
            cost.seconds += time.perf_counter() - begun
            cost.core_seconds += time.process_time() - begun_here

    with (
        patch.dict(os.environ, fleet.environment(), clear=True),
        patch.object(dg.JobDefinition, "execute_in_process", timed),
    ):
        ticked = tick_once(Settings.load())
    assert ticked.built, "Nothing was built."
    assert not ticked.failed, ticked.failed
    return cost
