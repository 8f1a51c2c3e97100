"""Asset checks, each a spec builder beside the function that gives its result."""

from typing import TYPE_CHECKING

import dagster as dg

from leanops.names import Layer, table
from leanops_assets.metadata import snapshot_text
from leanops_assets.specs import asset_key

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog


def in_step_spec(layer: Layer, topic: str, days: dg.DailyPartitionsDefinition) -> dg.AssetCheckSpec:
    """A layer is in step when its last commit stands for all that the layer before it holds."""
    return dg.AssetCheckSpec(
        "in_step",
        asset=asset_key(layer, topic),
        description="The table stands for the last commit of the layer before it.",
        partitions_def=days,
    )


def in_step_result(catalog: "Catalog", before: Layer, topic: str, stands_for: int | None) -> dg.AssetCheckResult:
    """Compare what a layer stands for with what the layer before it holds by now."""
    current = catalog.load_table(table(before, topic)).current_snapshot()
    newest = current.snapshot_id if current else None
    return dg.AssetCheckResult(
        passed=newest == stands_for,
        check_name="in_step",
        severity=dg.AssetCheckSeverity.WARN,
        metadata={f"{before}_snapshot": snapshot_text(newest), "stands_for": snapshot_text(stands_for)},
    )
