"""From topics to assets: RAW for every topic that is known, the layers after it for those with an active contract."""

from collections.abc import Iterator

import dagster as dg

from leanops.contracts.manifest import Manifest
from leanops.settings import Settings
from leanops_assets.curated.assets import build_curated_assets
from leanops_assets.raw.assets import build_raw_assets
from leanops_assets.standardized.assets import build_standardized_assets


def topic_assets(manifest: Manifest, settings: Settings) -> Iterator[dg.AssetsDefinition]:
    """Every topic's steps: one per layer, so that one topic's failure stays one topic's failure."""
    for topic in manifest.topics:
        yield build_raw_assets(topic, settings)
        if topic.contract:
            yield build_standardized_assets(topic, topic.contract, settings)
            yield build_curated_assets(topic, topic.contract, settings)
