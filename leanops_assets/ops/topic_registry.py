"""`ops/topic_registry`: the picture of all topics, drawn anew every hour."""

from collections.abc import Mapping

import dagster as dg

from leanops.contracts.manifest import Manifest
from leanops.settings import Settings
from leanops_assets.metadata import markdown_table
from leanops_assets.ops.table_asset import ops_asset
from leanops_resources.dagster_resources import CatalogResource, SchemaStoreResource, StateStoreResource

_DESCRIPTION = "Every topic that is known, its state, and when it was first and last seen."


def build_topic_registry(manifest: Manifest, left_out: Mapping[str, str], settings: Settings) -> dg.AssetsDefinition:
    """The asset of `ops_db.topic_registry`, over the topics of `manifest`. It also says what the graph has not."""
    description = "\n\n".join([_DESCRIPTION, *(f"Not in the graph: {why}" for why in left_out.values())])

    @ops_asset("topic_registry", description, __file__)
    def topic_registry(
        iceberg: CatalogResource, state: StateStoreResource, contracts: SchemaStoreResource
    ) -> dg.MaterializeResult[None]:
        from leanops.ops.topic_registry import save_registry, topic_states
        from leanops_resources.known_topics import strays

        closed = {
            topic: gate.status.value for topic, gate in state.store.gates().items() if not gate.processing_enabled
        }
        catalog = iceberg.load()
        states = list(topic_states(catalog, manifest, closed))
        save_registry(catalog, states)
        counts = {name: sum(each.state == name for each in states) for name in sorted({each.state for each in states})}
        no_topics = markdown_table(
            ("no topic's",), ([each] for each in strays(settings, contracts.store, iceberg.catalog)), 400
        )
        return dg.MaterializeResult(metadata={"dagster/row_count": len(states), **counts, "no_topics": no_topics})

    return topic_registry
