"""Standardized of a topic with its parse errors: one step."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg

from leanops.contracts.manifest import Manifest, Topic
from leanops.names import Layer
from leanops.settings import Settings
from leanops_assets.layer_step import build_layer_step
from leanops_assets.metadata import snapshot_text
from leanops_assets.run_batch import Built, LayerBuild

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from leanops.batch.isolation import Jobs
    from leanops.batch.topics import Outcome, TopicBuild
    from leanops.standardized.built import StandardizedBuild


def build_standardized_assets(
    topic: Topic, manifest: Manifest, settings: Settings, layer_builds: Mapping[Layer, LayerBuild]
) -> dg.AssetsDefinition:
    """The step that makes a topic's Standardized table and its parse errors what RAW says they are."""
    return build_layer_step(topic, manifest, settings, Layer.STANDARDIZED, Path(__file__), layer_builds)


def standardize(jobs: "Jobs", catalog: "Catalog", topics: "Sequence[TopicBuild]") -> "dict[str, Outcome[Built]]":
    """Build Standardized of some topics; what there is to show of each."""
    from leanops.standardized.build import build_standardized

    versions = {each.topic: each.contract.version for each in topics}
    done = build_standardized(jobs, catalog, topics)
    return {
        topic: found if isinstance(found, Exception) else _shown(found, versions[topic])
        for topic, found in done.items()
    }


def _shown(done: "StandardizedBuild", version: int) -> Built:
    metadata: dict[str, object] = {"raw_snapshot": snapshot_text(done.raw_snapshot), "contract_version": version}
    if done.is_new:
        metadata |= {
            "rows_read": done.rows_read,
            "rows_written": done.written,
            "rows_updated": done.updated,
            "duplicates": done.duplicates,
            "parse_errors": done.parse_errors,
            "superseded": done.superseded,
            "new_columns": list(done.new_columns),
            "whole_topic": bool(done.part and done.part.is_whole),
        }
    if done.notice:
        metadata["notice"] = done.notice
    return Built(done.is_new, done.days, done.raw_snapshot, done.last_ingestion_ts, done.part, metadata)
