"""RAW of a topic. Landing fills the table; materialising a day takes stock of what it holds of that day."""

from collections.abc import Iterator
from datetime import date
from pathlib import Path

import dagster as dg

from leanops.contracts.manifest import Topic
from leanops.names import Layer
from leanops.settings import Settings
from leanops_assets.partitions import publish_days
from leanops_assets.specs import asset_key, asset_spec
from leanops_resources.dagster_resources import CatalogResource
from leanops_resources.schema_store import LocalSchemaStore, Stage


def build_raw_assets(topic: Topic, settings: Settings) -> dg.AssetsDefinition:
    """The step that takes stock of a topic's RAW table."""
    contract_file = Path(LocalSchemaStore(settings.schemas).where(topic.name, Stage.ACTIVE))

    @dg.multi_asset(
        name=f"raw__{topic.name}",
        specs=[asset_spec(Layer.RAW, topic, [], Path(__file__), contract_file)],
        partitions_def=publish_days(settings.first_day),
    )
    def take_stock(context: dg.AssetExecutionContext, iceberg: CatalogResource) -> Iterator[dg.MaterializeResult[None]]:
        yield dg.MaterializeResult(
            asset_key=asset_key(Layer.RAW, topic.name),
            metadata=raw_metadata(iceberg, topic.name, date.fromisoformat(context.partition_key)),
        )

    return take_stock


def raw_metadata(iceberg: CatalogResource, topic: str, day: date) -> dict[str, int | str]:
    """What the UI shows of a day of RAW."""
    from leanops.raw.inventory import raw_day

    held = raw_day(iceberg.load(), topic, day)
    return {
        "dagster/partition_row_count": held.rows,
        "data_files": held.data_files,
        "bytes": held.bytes,
        "snapshot_id": str(held.snapshot_id) if held.snapshot_id else "none yet",
    }
