"""`ops/topic_registry`: the picture of all topics, drawn anew every hour."""

import dagster as dg

from leanops.contracts.manifest import Manifest
from leanops_assets.ops.table_asset import ops_asset
from leanops_resources.dagster_resources import CatalogResource, StateStoreResource


def build_topic_registry(manifest: Manifest) -> dg.AssetsDefinition:
    """The asset of `ops_db.topic_registry`, over the topics of `manifest`."""

    @ops_asset("topic_registry", "Every topic that is known, its state, and when it was first and last seen.", __file__)
    def topic_registry(iceberg: CatalogResource, state: StateStoreResource) -> dg.MaterializeResult[None]:
        from leanops.ops.topic_registry import save_registry, topic_states

        closed = {
            topic: gate.status.value for topic, gate in state.store.gates().items() if not gate.processing_enabled
        }
        catalog = iceberg.load()
        states = list(topic_states(catalog, manifest, closed))
        save_registry(catalog, states)
        counts = {name: sum(each.state == name for each in states) for name in sorted({each.state for each in states})}
        return dg.MaterializeResult(metadata={"dagster/row_count": len(states), **counts})

    return topic_registry
