"""The step of a layer of a topic: it asks the run's batch what happened to the topic, and tells the UI.

| run | what is built |
|---|---|
| of a day, by the tick or by hand | what the layer before has gained since the last build, of whatever day it is |
| with `resources: {builds: {config: {rebuild: true}}}` | that, and the day anew |
| of a backfill | the same |

A build can change other days than the one it was asked for: late arrivals reach their day, a correction takes a row
out of an older one. Each day that changed gets a materialisation of its own.
"""

from collections.abc import Iterator, Mapping
from datetime import date
from pathlib import Path

import dagster as dg
from dagster._core.storage.tags import BACKFILL_ID_TAG

from leanops.contracts.manifest import Manifest, Topic
from leanops.names import ERRORS, NEXT, SOURCE, Layer, step_name
from leanops.settings import Settings
from leanops_assets.checks import check_specs
from leanops_assets.metadata import day_query, days_metadata
from leanops_assets.partitions import publish_days
from leanops_assets.run_batch import BatchResource, LayerBuild, StepOutcome
from leanops_assets.specs import asset_key, asset_spec
from leanops_assets.step_faults import failure_noted, transient_retried
from leanops_assets.steps import topic_step
from leanops_resources.dagster_resources import BuildOptions, CatalogResource, SparkConnectResource, StateStoreResource

SPARK_POOL = "spark"
"""The pool of runs that work off what is pending: as many at once as finish soonest (`dagster.yaml`)."""

Result = dg.MaterializeResult[None] | dg.Output[None]


def build_layer_step(
    topic: Topic,
    manifest: Manifest,
    settings: Settings,
    layer: Layer,
    code: Path,
    layer_builds: Mapping[Layer, LayerBuild],
) -> dg.AssetsDefinition:
    """The step that makes a layer's table and the table of its errors what the layer before says they are.

    `layer_builds` build any layer of any topic of the `manifest`: those of the run's other steps are built with it.
    """
    days, source, errors = publish_days(settings.first_day), SOURCE[layer], ERRORS[layer]

    @topic_step(
        name=step_name(layer, topic.name),
        specs=[asset_spec(each, topic, [source], code, settings) for each in (layer, errors)],
        check_specs=check_specs(layer, topic.name, days),
        partitions_def=days,
        can_subset=True,
        pool=SPARK_POOL,
    )
    def step(
        context: dg.AssetExecutionContext,
        iceberg: CatalogResource,
        state: StateStoreResource,
        spark: SparkConnectResource,
        builds: BuildOptions,
        batch: BatchResource,
    ) -> Iterator[Result]:
        store = state.store
        with failure_noted(store, topic.name):
            day = date.fromisoformat(context.partition_key)
            selected = [each for each in (errors, layer) if asset_key(each, topic.name) in context.selected_asset_keys]
            checks = {key.name for key in context.selected_asset_check_keys}
            rebuild = builds.rebuild or BACKFILL_ID_TAG in context.run.tags
            with transient_retried(context, spark):
                of_run = batch.of(context, manifest, settings, layer_builds, rebuild, iceberg, state, spark)
                found = of_run.outcome(layer, topic.name)
            if found.skipped:
                _tell_skipped(context, topic.name, layer, selected, found.skipped)
                return
            if found.failed:
                raise found.failed
            verdicts = [verdict for verdict in found.verdicts if verdict.check in checks]
            # The UI shows the last verdict of all, which is to be that on the day that was asked for.
            for verdict in verdicts:
                if verdict.day != day:
                    context.log_event(verdict.evaluation())
            built = found.built
            if built:
                store.save_checkpoint(f"{layer}/{topic.name}", source, built.source_snapshot, built.last_ingestion_ts)
                yield from _results(context, topic.name, layer, selected, found, day)
            if found.unchecked and checks:
                raise found.unchecked
            for verdict in verdicts:
                if verdict.day == day:
                    # An `AssetCheckResult` would look the materialisation up in the event log, 4 ms for each check.
                    context.log_event(verdict.evaluation())
                    yield dg.Output(None, verdict.output_name)
            if built and layer is Layer.CURATED:
                store.clear_failures(topic.name)

    return step


def _tell_skipped(
    context: dg.AssetExecutionContext, topic: str, layer: Layer, selected: list[Layer], reason: str
) -> None:
    """A skip is an observation: it shows on the asset's own page, and the day is not counted as materialised.

    Dagster then skips what is built from it without a word, so it is told here for that too.
    """
    context.log.warning("Skipped: %s", reason)
    after = [NEXT[layer], ERRORS[NEXT[layer]]] if layer in NEXT else []
    wanted = context.run.asset_selection
    for each in [*selected, *(each for each in after if wanted is None or asset_key(each, topic) in wanted)]:
        context.log_event(
            dg.AssetObservation(asset_key(each, topic), partition=context.partition_key, metadata={"skipped": reason})
        )


def _results(
    context: dg.AssetExecutionContext, topic: str, layer: Layer, selected: list[Layer], found: StepOutcome, day: date
) -> Iterator[Result]:
    """A result for the day that was asked for, and an event for each other day that has changed."""
    built = found.built
    assert built is not None
    numbers = {name: value for name, value in built.metadata.items() if isinstance(value, int)}
    context.log.info("%s", numbers if built.is_new else "Nothing new.")
    if notice := built.metadata.get("notice"):
        context.log.warning("%s", notice)
    for each in selected:
        key = asset_key(each, topic)
        shown = days_metadata(found.table, {day, *built.days}) if each is layer else found.errors_by_day
        for other in sorted(built.days - {day}):
            context.log_event(dg.AssetMaterialization(key, partition=other.isoformat(), metadata=shown.get(other, {})))
        metadata = shown.get(day, {})
        if each is layer:
            metadata = {**metadata, "anything_new": built.is_new, **built.metadata}
            if built.is_new:
                metadata["query"] = day_query(layer, topic, day)
        yield dg.MaterializeResult(asset_key=key, metadata=metadata)
