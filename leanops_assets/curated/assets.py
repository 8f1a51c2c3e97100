"""Curated of a topic with its contract errors: one step."""

import time
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import dagster as dg

from leanops.contracts.manifest import Topic
from leanops.contracts.model import Contract
from leanops.names import Layer
from leanops.settings import Settings
from leanops_assets.checks import in_step_result, in_step_spec
from leanops_assets.metadata import column_lineage, day_metadata, errors_day_metadata, snapshot_text
from leanops_assets.partitions import publish_days
from leanops_assets.specs import asset_key, asset_spec
from leanops_assets.steps import topic_step
from leanops_resources.dagster_resources import CatalogResource, SparkConnectResource


def build_curated_assets(topic: Topic, contract: Contract, settings: Settings) -> dg.AssetsDefinition:
    """The step that makes a topic's Curated table and its errors what Standardized and the contract say they are."""
    days = publish_days(settings.first_day)
    layer_key, errors_key = asset_key(Layer.CURATED, topic.name), asset_key(Layer.ERRORS, topic.name)

    @topic_step(
        name=f"curated__{topic.name}",
        specs=[
            asset_spec(layer, topic, [Layer.STANDARDIZED], Path(__file__), settings)
            for layer in (Layer.CURATED, Layer.ERRORS)
        ],
        check_specs=[in_step_spec(Layer.CURATED, topic.name, days)],
        partitions_def=days,
        can_subset=True,
    )
    def curate(
        context: dg.AssetExecutionContext, iceberg: CatalogResource, spark: SparkConnectResource
    ) -> Iterator[dg.MaterializeResult[None] | dg.AssetCheckResult]:
        from leanops.curated.build import build_curated
        from leanops.curated.table import ensure_errors_table

        day, catalog = date.fromisoformat(context.partition_key), iceberg.load()
        if context.selected_asset_keys:
            begun = time.monotonic()
            build = build_curated(spark.session, catalog, topic.name, contract)
            context.log.info("%s", build if build.is_new else "Nothing new in Standardized.")
        if errors_key in context.selected_asset_keys:
            errors = ensure_errors_table(catalog)
            yield dg.MaterializeResult(asset_key=errors_key, metadata=errors_day_metadata(errors, topic.name, day))
        if layer_key in context.selected_asset_keys:
            yield dg.MaterializeResult(
                asset_key=layer_key,
                metadata={
                    **day_metadata(catalog, Layer.CURATED, topic.name, day),
                    "dagster/row_count": build.rows,
                    "dagster/column_lineage": column_lineage(topic.name, contract),
                    "anything_new": build.is_new,
                    "standardized_rows": build.rows_in,
                    "open_errors": build.open_errors,
                    **({"errors_by_rule": dict(build.errors_by_rule)} if build.is_new else {}),
                    "standardized_snapshot": snapshot_text(build.standardized_snapshot),
                    "contract_version": contract.version,
                    "seconds": round(time.monotonic() - begun, 2),
                },
            )
        if context.selected_asset_check_keys:
            yield in_step_result(catalog, Layer.CURATED, topic.name)

    return curate
