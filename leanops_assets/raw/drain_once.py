"""Drain once, in this process, as a run of the job `drain`: what `leanops drain` and the demo do."""

from collections.abc import Collection
from typing import Any

from leanops.settings import Settings
from leanops_assets.raw.drain_job import DRAINED
from leanops_assets.run_job import rows_told, run_job


def drain_once(settings: Settings, topics: Collection[str] = ()) -> list[dict[str, Any]]:
    """What was done with each topic that had anything waiting; and whether any failed is for its row to say."""
    return rows_told(run_job(settings, "drain", "drain_sources", {"topics": list(topics)}), DRAINED)
