"""Standardized of a topic with its parse errors: one step."""

import time
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg

from leanops.contracts.manifest import Topic
from leanops.contracts.model import Contract
from leanops.names import Layer
from leanops.settings import Settings
from leanops_assets.checks import in_step_result, in_step_spec
from leanops_assets.metadata import day_metadata, errors_day_metadata, snapshot_text
from leanops_assets.partitions import publish_days
from leanops_assets.specs import asset_key, asset_spec
from leanops_assets.steps import topic_step
from leanops_resources.dagster_resources import CatalogResource, SparkConnectResource

if TYPE_CHECKING:
    from leanops.standardized.build import StandardizedBuild


def build_standardized_assets(topic: Topic, contract: Contract, settings: Settings) -> dg.AssetsDefinition:
    """The step that makes a topic's Standardized table and its parse errors what RAW says they are."""
    days = publish_days(settings.first_day)
    layer_key, errors_key = asset_key(Layer.STANDARDIZED, topic.name), asset_key(Layer.PARSE_ERRORS, topic.name)

    @topic_step(
        name=f"standardized__{topic.name}",
        specs=[
            asset_spec(layer, topic, [Layer.RAW], Path(__file__), settings)
            for layer in (Layer.STANDARDIZED, Layer.PARSE_ERRORS)
        ],
        check_specs=[in_step_spec(Layer.STANDARDIZED, topic.name, days)],
        partitions_def=days,
        can_subset=True,
    )
    def standardize(
        context: dg.AssetExecutionContext, iceberg: CatalogResource, spark: SparkConnectResource
    ) -> Iterator[dg.MaterializeResult[None] | dg.AssetCheckResult]:
        from leanops.standardized.build import build_standardized
        from leanops.standardized.table import ensure_parse_errors_table

        day, catalog = date.fromisoformat(context.partition_key), iceberg.load()
        if context.selected_asset_keys:
            begun = time.monotonic()
            build = build_standardized(spark.session, catalog, topic.name, contract)
            context.log.info("%s", build if build.is_new else "Nothing new in RAW.")
        if errors_key in context.selected_asset_keys:
            errors = ensure_parse_errors_table(catalog)
            yield dg.MaterializeResult(asset_key=errors_key, metadata=errors_day_metadata(errors, topic.name, day))
        if layer_key in context.selected_asset_keys:
            yield dg.MaterializeResult(
                asset_key=layer_key,
                metadata={
                    **day_metadata(catalog, Layer.STANDARDIZED, topic.name, day),
                    "dagster/row_count": build.rows,
                    "raw_rows": build.rows_in,
                    **_counts(build),
                    "raw_snapshot": snapshot_text(build.raw_snapshot),
                    "contract_version": contract.version,
                    "seconds": round(time.monotonic() - begun, 2),
                },
            )
        if context.selected_asset_check_keys:
            yield in_step_result(catalog, Layer.STANDARDIZED, topic.name)

    return standardize


def _counts(build: "StandardizedBuild") -> dict[str, Any]:
    """What only a build that had something to do has counted."""
    if not build.is_new:
        return {"anything_new": False}
    return {
        "anything_new": True,
        "duplicates": build.duplicates,
        "parse_errors": build.parse_errors,
        "superseded": build.superseded,
        "new_columns": list(build.new_columns),
    }
