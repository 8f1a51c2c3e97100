"""Asset checks, each a spec builder beside the function that gives its result."""

from typing import TYPE_CHECKING

import dagster as dg

from leanops.names import Layer, table
from leanops_assets.specs import asset_key

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

_BEFORE = {Layer.STANDARDIZED: Layer.RAW, Layer.CURATED: Layer.STANDARDIZED}


def in_step_spec(layer: Layer, topic: str, days: dg.DailyPartitionsDefinition) -> dg.AssetCheckSpec:
    """A layer is in step when its last commit stands for all that the layer before it holds."""
    return dg.AssetCheckSpec(
        "in_step",
        asset=asset_key(layer, topic),
        description="The table stands for the last commit of the layer before it.",
        partitions_def=days,
    )


def in_step_result(catalog: "Catalog", layer: Layer, topic: str) -> dg.AssetCheckResult:
    """Compare what a layer's table says it stands for with what the layer before it holds by now."""
    from leanops.commits import checkpoint_of

    before = _BEFORE[layer]
    held, source = (catalog.load_table(table(each, topic)) for each in (layer, before))
    current = source.current_snapshot()
    newest = str(current.snapshot_id) if current else None
    stands_for = checkpoint_of(held).get(f"{before}-snapshot")
    return dg.AssetCheckResult(
        passed=newest == stands_for,
        asset_key=asset_key(layer, topic),
        check_name="in_step",
        severity=dg.AssetCheckSeverity.WARN,
        metadata={f"{before}_snapshot": newest or "none yet", "stands_for": stands_for or "none yet"},
    )
