"""The step that builds a layer of a topic: gate, lock, build, and what the UI is told of it.

| run | what is built |
|---|---|
| of a day, by the tick or by hand | what the layer before has gained since the last build, of whatever day it is |
| with `resources: {builds: {config: {rebuild: true}}}` | that, and the day anew |
| of a backfill | the same |

A build can change other days than the one it was asked for: late arrivals reach their day, a correction takes a row
out of an older one. Each day that changed gets a materialisation of its own.
"""

import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
from dagster._core.storage.tags import BACKFILL_ID_TAG

from leanops.contracts.manifest import Topic
from leanops.errors import BuildOvertaken, TopicBusy
from leanops.names import Layer, step_name
from leanops.settings import Settings
from leanops_assets.checks import in_step_result, in_step_spec
from leanops_assets.metadata import days_metadata, preview
from leanops_assets.partitions import publish_days
from leanops_assets.specs import asset_key, asset_spec
from leanops_assets.steps import topic_step
from leanops_resources.dagster_resources import BuildOptions, CatalogResource, SparkConnectResource, StateStoreResource
from leanops_resources.state.lease import lease
from leanops_resources.state.store import StateStore

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyspark.sql import SparkSession

PATIENCE = timedelta(minutes=5)
"""How long a step waits for another run that builds the same topic."""

ATTEMPTS = 3
Result = dg.MaterializeResult[None] | dg.AssetCheckResult


@dataclass(frozen=True)
class Built:
    """What a build has to show."""

    is_new: bool
    days: frozenset[date] = frozenset()
    source_snapshot: int | None = None
    last_ingestion_ts: int | None = None
    metadata: dict[str, Any] = field(default_factory=dict)


Build = Callable[["Callable[[], SparkSession]", "Catalog", Collection[date]], Built]
"""Builds a layer of one topic, with the days that are to be made anew."""


def build_layer_step(
    topic: Topic, settings: Settings, source: Layer, layer: Layer, errors: Layer, code: Path, build: Build
) -> dg.AssetsDefinition:
    """The step that makes a layer's table and the table of its errors what the layer before says they are."""
    days = publish_days(settings.first_day)

    @topic_step(
        name=step_name(layer, topic.name),
        specs=[asset_spec(each, topic, [source], code, settings) for each in (layer, errors)],
        check_specs=[in_step_spec(layer, topic.name, days)],
        partitions_def=days,
        can_subset=True,
    )
    def step(
        context: dg.AssetExecutionContext,
        iceberg: CatalogResource,
        state: StateStoreResource,
        spark: SparkConnectResource,
        builds: BuildOptions,
    ) -> Iterator[Result]:
        catalog, store = iceberg.load(), state.store
        day = date.fromisoformat(context.partition_key)
        selected = [each for each in (errors, layer) if asset_key(each, topic.name) in context.selected_asset_keys]
        if selected:
            rebuild = [day] if builds.rebuild or BACKFILL_ID_TAG in context.run.tags else []
            begun = time.monotonic()
            reason = closed_gate(store, topic.name)
            try:
                if reason is None:
                    with lease(store, f"build/{topic.name}", f"run {context.run.run_id}", PATIENCE):
                        built = _until_published(build, spark.session, catalog, rebuild)
            except (TopicBusy, BuildOvertaken) as error:
                reason = str(error)
            if reason:
                _tell_skipped(context, topic.name, selected, reason)
            else:
                store.save_checkpoint(f"{layer}/{topic.name}", source, built.source_snapshot, built.last_ingestion_ts)
                seconds = round(time.monotonic() - begun, 2)
                yield from _results(context, catalog, topic.name, layer, selected, built, day, seconds)
        if context.selected_asset_check_keys:
            yield in_step_result(catalog, layer, topic.name)

    return step


def _until_published(
    build: Build, sessions: "Callable[[], SparkSession]", catalog: "Catalog", rebuild: Collection[date]
) -> Built:
    """Build, and again when somebody without the lock was faster: what is left to do is less then."""
    for _ in range(ATTEMPTS - 1):
        try:
            return build(sessions, catalog, rebuild)
        except BuildOvertaken:
            continue
    return build(sessions, catalog, rebuild)


def closed_gate(store: StateStore, topic: str) -> str | None:
    """Why a topic is not processed now, or None if it is."""
    gate = store.gate(topic)
    if gate is None or gate.processing_enabled:
        return None
    reason = f": {gate.reason}" if gate.reason else ""
    return f"{topic} is {gate.status.lower()}{reason}. What lands is kept in RAW until it is resumed."


def _tell_skipped(context: dg.AssetExecutionContext, topic: str, selected: list[Layer], reason: str) -> None:
    """A skip is an observation: it shows on the asset's own page, and the day is not counted as materialised."""
    context.log.warning("Skipped: %s", reason)
    for each in selected:
        context.log_event(
            dg.AssetObservation(asset_key(each, topic), partition=context.partition_key, metadata={"skipped": reason})
        )


def _results(
    context: dg.AssetExecutionContext,
    catalog: "Catalog",
    topic: str,
    layer: Layer,
    selected: list[Layer],
    built: Built,
    day: date,
    seconds: float,
) -> Iterator[Result]:
    """A result for the day that was asked for, and an event for each other day that has changed."""
    context.log.info("%s", built if built.is_new else "Nothing new.")
    for each in selected:
        key = asset_key(each, topic)
        shown = days_metadata(catalog, each, topic, {day, *built.days})
        for other in sorted(built.days - {day}):
            context.log_event(dg.AssetMaterialization(key, partition=other.isoformat(), metadata=shown[other]))
        metadata = shown[day]
        if each is layer:
            metadata = {**metadata, "anything_new": built.is_new, **built.metadata, "seconds": seconds}
            if built.is_new:
                metadata["preview"] = preview(catalog, each, topic, day)
        yield dg.MaterializeResult(asset_key=key, metadata=metadata)
