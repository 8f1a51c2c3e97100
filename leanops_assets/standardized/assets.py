"""Standardized of a topic with its parse errors: one step."""

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
from leanops_assets.metadata import snapshot_text

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyspark.sql import SparkSession


def build_standardized_assets(topic: Topic, contract: Contract, settings: Settings) -> dg.AssetsDefinition:
    """The step that makes a topic's Standardized table and its parse errors what RAW says they are."""

    def build(sessions: "Callable[[], SparkSession]", catalog: "Catalog", rebuild: Collection[date]) -> Built:
        from leanops.standardized.build import build_standardized

        done = build_standardized(sessions, catalog, topic.name, contract, rebuild)
        metadata: dict[str, object] = {
            "raw_snapshot": snapshot_text(done.raw_snapshot),
            "contract_version": contract.version,
        }
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

    return build_layer_step(topic, contract, settings, Layer.STANDARDIZED, Path(__file__), build)
