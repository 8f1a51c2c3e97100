"""Asset checks, each a spec builder beside the function that gives its result."""

from typing import TYPE_CHECKING

import dagster as dg

from leanops.names import Layer, table
from leanops_assets.specs import asset_key

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

_BEFORE = {Layer.STANDARDIZED: Layer.RAW, Layer.CURATED: Layer.STANDARDIZED}


def in_step_spec(layer: Layer, topic: str, days: dg.DailyPartitionsDefinition) -> dg.AssetCheckSpec:
    """A layer is in step when it stands for every message that the layer before it stands for."""
    return dg.AssetCheckSpec(
        "in_step",
        asset=asset_key(layer, topic),
        description="The table stands for every message that the layer before it holds or stands for.",
        partitions_def=days,
    )


def in_step_result(catalog: "Catalog", layer: Layer, topic: str) -> dg.AssetCheckResult:
    """Compare what a layer's table says it stands for with what the layer before it holds by now."""
    from leanops.commits import checkpoint_of
    from leanops.raw.table import last_landing_seq
    from leanops.tables import find_table

    before = _BEFORE[layer]
    held, source = (find_table(catalog, table(each, topic)) for each in (layer, before))
    newest = last_landing_seq(source) if before is Layer.RAW else int(checkpoint_of(source).get("upto", 0))
    stands_for = int(checkpoint_of(held).get("upto", 0))
    return dg.AssetCheckResult(
        passed=newest == stands_for,
        asset_key=asset_key(layer, topic),
        check_name="in_step",
        severity=dg.AssetCheckSeverity.WARN,
        metadata={f"{before}_upto": newest, "stands_for": stands_for},
    )
