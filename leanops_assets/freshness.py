"""The check `fresh` of every RAW: whether the topic has gone silent against its own rhythm. One step for all topics."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from leanops.contracts.manifest import Manifest, Topic
from leanops.names import Layer, table
from leanops_assets.specs import asset_key
from leanops_resources.dagster_resources import CatalogResource


def build_freshness(manifest: Manifest) -> dg.AssetChecksDefinition:
    """The checks of all topics, told from the moments of RAW's commits."""
    specs = [
        dg.AssetCheckSpec("fresh", asset=asset_key(Layer.RAW, topic.name), description="Something landed as usual.")
        for topic in manifest.topics
    ]

    @dg.multi_asset_check(name="raw_is_fresh", specs=specs, can_subset=True)
    def freshness(context: dg.AssetCheckExecutionContext, iceberg: CatalogResource) -> Iterator[dg.AssetCheckResult]:
        from leanops.raw.table import landings
        from leanops.tables import find_table

        catalog, now = iceberg.load(), datetime.now(UTC)
        selected = {key.asset_key for key in context.selected_asset_check_keys}
        for topic in manifest.topics:
            if asset_key(Layer.RAW, topic.name) in selected:
                yield _fresh(topic, landings(find_table(catalog, table(Layer.RAW, topic.name))), now)

    return freshness


def freshness_job(checks: dg.AssetChecksDefinition) -> UnresolvedAssetJobDefinition:
    """The job that evaluates these checks."""
    return dg.define_asset_job(
        "freshness",
        selection=dg.AssetSelection.checks(checks),
        description="Finds topics that went silent against their own rhythm.",
    )


def _fresh(topic: Topic, landings: list[datetime], now: datetime) -> dg.AssetCheckResult:
    from leanops.raw.rhythm import silence

    hours = topic.contract.thresholds.silent_hours if topic.contract else None
    found = silence(landings, now, timedelta(hours=hours) if hours else None)
    metadata: dict[str, Any] = {"landings_known": len(landings)}
    if found:
        metadata |= {"last_landed": found.since.isoformat(timespec="seconds"), "silent_hours": _hours(found.lasts)}
        metadata |= {"usual_hours": _hours(found.usual)} if found.usual else {}
    is_silent = bool(found and found.is_too_long)
    return dg.AssetCheckResult(
        passed=not is_silent,
        asset_key=asset_key(Layer.RAW, topic.name),
        check_name="fresh",
        severity=dg.AssetCheckSeverity.WARN,
        description=f"Nothing has landed since {metadata['last_landed']}." if is_silent else None,
        metadata=metadata,
    )


def _hours(span: timedelta) -> float:
    return round(span.total_seconds() / 3600, 2)
