"""Curated of a topic with its contract errors: one step."""

from collections.abc import Callable, Collection
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg

from leanops.contracts.manifest import Topic
from leanops.contracts.model import Contract
from leanops.names import Layer
from leanops.settings import Settings
from leanops_assets.layer_step import Built, build_layer_step
from leanops_assets.metadata import column_lineage, snapshot_text

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyspark.sql import SparkSession


def build_curated_assets(topic: Topic, contract: Contract, settings: Settings) -> dg.AssetsDefinition:
    """The step that makes a topic's Curated table and its errors what Standardized and the contract say they are."""

    def build(sessions: "Callable[[], SparkSession]", catalog: "Catalog", rebuild: Collection[date]) -> Built:
        from leanops.curated.build import build_curated

        done = build_curated(sessions, catalog, topic.name, contract, rebuild)
        metadata: dict[str, object] = {
            "standardized_snapshot": snapshot_text(done.standardized_snapshot),
            "contract_version": contract.version,
            "dagster/column_lineage": column_lineage(topic.name, contract, done.bound),
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

    return build_layer_step(topic, contract, settings, Layer.CURATED, Path(__file__), build)
