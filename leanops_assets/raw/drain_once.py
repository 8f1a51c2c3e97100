"""Drain once, in this process, as a run of the job `drain`: what `leanops drain` and the demo do."""

from collections.abc import Collection
from typing import Any

import dagster as dg

from leanops.settings import Settings
from leanops_assets.raw.drain_job import DRAINED, build_drain_job
from leanops_assets.run_job import rows_told, run_job
from leanops_resources.dagster_resources import embedded_resources


def drain_once(settings: Settings, topics: Collection[str] = ()) -> list[dict[str, Any]]:
    """What was done with each topic that had anything waiting; and whether any failed is for its row to say."""
    # Without the assets: to put the graph of 700 topics together takes longer than to drain some of them.
    definitions = dg.Definitions(jobs=[build_drain_job(settings)], resources=embedded_resources(settings))
    return rows_told(run_job(settings, "drain", "drain_sources", {"topics": list(topics)}, definitions), DRAINED)
