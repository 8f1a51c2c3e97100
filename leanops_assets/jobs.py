"""The jobs that automation and people start. None of them belongs to one topic."""

import dagster as dg

from leanops.names import Layer

tick = dg.define_asset_job(
    "tick",
    selection=dg.AssetSelection.groups(Layer.RAW, Layer.STANDARDIZED, Layer.CURATED),
    description="The main job: builds a publish day of the selected topics, layer after layer.",
)

ledger = dg.define_asset_job(
    "ledger",
    selection=dg.AssetSelection.assets(["ops", "reconciliation_log"]),
    description="Draws up the ledger of all topics over all days, or of those in its config.",
)

error_groups = dg.define_asset_job(
    "error_groups",
    selection=dg.AssetSelection.assets(["ops", "error_groups"]),
    description="Draws ops_db.error_groups anew from the open errors of all topics.",
)

topic_registry = dg.define_asset_job(
    "topic_registry",
    selection=dg.AssetSelection.assets(["ops", "topic_registry"]),
    description="Draws ops_db.topic_registry anew from the tables' metadata.",
)
