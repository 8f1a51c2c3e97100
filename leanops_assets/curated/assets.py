"""Curated of a topic with its contract errors: one step."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg

from leanops.contracts.manifest import Manifest, Topic
from leanops.names import Layer
from leanops.settings import Settings
from leanops_assets.layer_step import build_layer_step
from leanops_assets.metadata import column_lineage, snapshot_text
from leanops_assets.run_batch import Built, LayerBuild

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from leanops.batch.isolation import Jobs
    from leanops.batch.topics import Outcome, TopicBuild
    from leanops.curated.built import CuratedBuild


def build_curated_assets(
    topic: Topic, manifest: Manifest, settings: Settings, layer_builds: Mapping[Layer, LayerBuild]
) -> dg.AssetsDefinition:
    """The step that makes a topic's Curated table and its errors what Standardized and the contract say they are."""
    return build_layer_step(topic, manifest, settings, Layer.CURATED, Path(__file__), layer_builds)


def curate(jobs: "Jobs", catalog: "Catalog", topics: "Sequence[TopicBuild]") -> "dict[str, Outcome[Built]]":
    """Build Curated of some topics; what there is to show of each."""
    from leanops.curated.build import build_curated

    builds = {each.topic: each for each in topics}
    done = build_curated(jobs, catalog, topics)
    return {
        topic: found if isinstance(found, Exception) else _shown(found, builds[topic]) for topic, found in done.items()
    }


def _shown(done: "CuratedBuild", build: "TopicBuild") -> Built:
    metadata: dict[str, object] = {
        "standardized_snapshot": snapshot_text(done.standardized_snapshot),
        "contract_version": build.contract.version,
        "dagster/column_lineage": column_lineage(build.topic, build.contract, done.bound),
    }
    if done.is_new:
        metadata |= {
            "rows_read": done.rows_read,
            "rows_written": done.written,
            "rows_updated": done.updated,
            "errors": done.broken,
            "errors_by_rule": dict(done.errors_by_rule),
            "whole_topic": bool(done.part and done.part.is_whole),
        }
    return Built(done.is_new, done.days, done.standardized_snapshot, done.last_ingestion_ts, done.part, metadata)
