"""RAW of a topic. Landing fills the table; materialising a day takes stock of what it holds of that day."""

from collections.abc import Iterator
from datetime import date
from pathlib import Path

import dagster as dg

from leanops.contracts.manifest import Topic
from leanops.names import Layer, step_name
from leanops.settings import Settings
from leanops_assets.metadata import days_metadata
from leanops_assets.partitions import publish_days
from leanops_assets.specs import asset_key, asset_spec
from leanops_assets.steps import topic_step
from leanops_resources.dagster_resources import CatalogResource


def build_raw_assets(topic: Topic, settings: Settings) -> dg.AssetsDefinition:
    """The step that takes stock of a topic's RAW table."""

    @topic_step(
        name=step_name(Layer.RAW, topic.name),
        specs=[asset_spec(Layer.RAW, topic, [], Path(__file__), settings)],
        partitions_def=publish_days(settings.first_day),
    )
    def take_stock(context: dg.AssetExecutionContext, iceberg: CatalogResource) -> Iterator[dg.MaterializeResult[None]]:
        from leanops.raw.table import ensure_raw_table

        catalog = iceberg.load()
        ensure_raw_table(catalog, topic.name)
        day = date.fromisoformat(context.partition_key)
        yield dg.MaterializeResult(
            asset_key=asset_key(Layer.RAW, topic.name),
            metadata=days_metadata(catalog, Layer.RAW, topic.name, [day])[day],
        )

    return take_stock
