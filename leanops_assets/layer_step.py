"""The step that builds a layer of a topic: gate, lock, time limit, build, and what the UI is told of it.

| run | what is built |
|---|---|
| of a day, by the tick or by hand | what the layer before has gained since the last build, of whatever day it is |
| with `resources: {builds: {config: {rebuild: true}}}` | that, and the day anew |
| of a backfill | the same |

A build can change other days than the one it was asked for: late arrivals reach their day, a correction takes a row
out of an older one. Each day that changed gets a materialisation of its own.
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
from dagster._core.storage.tags import BACKFILL_ID_TAG

from leanops.contracts.manifest import Topic
from leanops.contracts.model import Contract
from leanops.errors import BuildOvertaken, ContractReplaced, TopicBusy
from leanops.names import ERRORS, NEXT, SOURCE, Layer, step_name, table
from leanops.settings import Settings
from leanops_assets.checks import Verdict, check_days, check_specs
from leanops_assets.gates import closed_gate
from leanops_assets.metadata import days_metadata, preview
from leanops_assets.packing import RUN, SHARED_MINUTES, RunKind
from leanops_assets.partitions import publish_days
from leanops_assets.specs import asset_key, asset_spec
from leanops_assets.step_faults import failure_noted, spark_fault, transient_retried
from leanops_assets.steps import topic_step
from leanops_resources.dagster_resources import BuildOptions, CatalogResource, SparkConnectResource, StateStoreResource
from leanops_resources.spark.time_limit import TimeLimit
from leanops_resources.state.lease import lease

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyspark.sql import SparkSession

    from leanops.slices import Slice

PATIENCE = timedelta(minutes=5)
"""How long a step waits for another run that builds the same topic."""

SPARK_POOL = "spark"
"""The pool of runs that work off what is pending: as many at once as finish soonest (`dagster.yaml`)."""

ATTEMPTS = 3
Result = dg.MaterializeResult[None] | dg.AssetCheckResult


@dataclass(frozen=True)
class Built:
    """What a build has to show."""

    is_new: bool
    days: frozenset[date] = frozenset()
    source_snapshot: int | None = None
    last_ingestion_ts: int | None = None
    part: "Slice | None" = None
    """Which rows it took in."""
    metadata: dict[str, Any] = field(default_factory=dict)


Build = Callable[["Callable[[], SparkSession]", "Catalog", Collection[date]], Built]
"""Builds a layer of one topic, with the days that are to be made anew."""


def build_layer_step(
    topic: Topic,
    contract: Contract,
    settings: Settings,
    layer: Layer,
    code: Path,
    build: Build,
) -> dg.AssetsDefinition:
    """The step that makes a layer's table and the table of its errors what the layer before says they are."""
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
    ) -> Iterator[Result]:
        catalog, store = iceberg.load(), state.store
        with failure_noted(store, topic.name):
            day = date.fromisoformat(context.partition_key)
            selected = [each for each in (errors, layer) if asset_key(each, topic.name) in context.selected_asset_keys]
            checks = {key.name for key in context.selected_asset_check_keys}
            rebuild = [day] if builds.rebuild or BACKFILL_ID_TAG in context.run.tags else []
            reason = closed_gate(topic.name, store.gate(topic.name)) if selected else None
            begun = time.monotonic()
            try:
                if reason is None:
                    with (
                        transient_retried(context, spark),
                        lease(store, f"build/{topic.name}", f"run {context.run.run_id}", PATIENCE),
                        TimeLimit(
                            f"The build of {layer}/{topic.name}", _longest(context, settings), spark.session
                        ) as limit,
                    ):
                        require_in_force(catalog, topic.name, contract)
                        built = _until_published(build, limit.session, catalog, rebuild) if selected else None
                        built_after = time.monotonic() - begun
                        verdicts: list[Verdict] = []
                        unchecked: Exception | None = None
                        if checks and (built is None or built.is_new):
                            touched, new = ({day, *built.days}, built.part) if built else ({day}, None)
                            try:
                                found = check_days(limit.session, catalog, topic.name, contract, layer, touched, new)
                                verdicts = [verdict for verdict in found if verdict.check in checks]
                            except Exception as error:  # noqa: BLE001 - it is raised below
                                # What is built is published, and is told before the step fails.
                                unchecked = spark_fault(limit.named(error), spark)
            except (TopicBusy, BuildOvertaken, ContractReplaced) as error:
                reason = str(error)
            if reason:
                _tell_skipped(context, topic.name, layer, selected, reason)
                return
            # The UI shows the last verdict of all, which is to be that on the day that was asked for.
            for verdict in verdicts:
                if verdict.day != day:
                    context.log_event(verdict.evaluation())
            if built:
                store.save_checkpoint(f"{layer}/{topic.name}", source, built.source_snapshot, built.last_ingestion_ts)
                seconds = {"seconds": built_after, "check_seconds": time.monotonic() - begun - built_after}
                yield from _results(context, catalog, topic.name, layer, selected, built, day, seconds)
            if unchecked:
                raise unchecked
            for verdict in verdicts:
                if verdict.day == day:
                    yield verdict.result()
            if built and layer is Layer.CURATED:
                store.clear_failures(topic.name)

    return step


def _longest(context: dg.AssetExecutionContext, settings: Settings) -> timedelta:
    """How long a build may take: not long where others wait for it."""
    is_shared = context.run.tags.get(RUN) == RunKind.SHARED
    return timedelta(minutes=min(SHARED_MINUTES, settings.step_minutes) if is_shared else settings.step_minutes)


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


def require_in_force(catalog: "Catalog", topic: str, contract: Contract) -> None:
    """A run that was planned with an earlier contract does not undo what the tables have been built for since."""
    from leanops.commits import checkpoint_of
    from leanops.tables import find_table

    built_for = int(checkpoint_of(find_table(catalog, table(Layer.CURATED, topic))).get("contract-version", 0))
    if built_for > contract.version:
        raise ContractReplaced(
            f"This run was planned with version {contract.version} of the contract of {topic}, whose tables have been "
            f"built for version {built_for} since.",
            "What is pending comes with the next tick.",
        )


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
    context: dg.AssetExecutionContext,
    catalog: "Catalog",
    topic: str,
    layer: Layer,
    selected: list[Layer],
    built: Built,
    day: date,
    seconds: Mapping[str, float],
) -> Iterator[Result]:
    """A result for the day that was asked for, and an event for each other day that has changed."""
    numbers = {name: value for name, value in built.metadata.items() if isinstance(value, int)}
    context.log.info("%s", numbers if built.is_new else "Nothing new.")
    if notice := built.metadata.get("notice"):
        context.log.warning("%s", notice)
    for each in selected:
        key = asset_key(each, topic)
        shown = days_metadata(catalog, each, topic, {day, *built.days})
        for other in sorted(built.days - {day}):
            context.log_event(dg.AssetMaterialization(key, partition=other.isoformat(), metadata=shown[other]))
        metadata = shown[day]
        if each is layer:
            metadata = {**metadata, "anything_new": built.is_new, **built.metadata}
            metadata |= {what: round(took, 2) for what, took in seconds.items()}
            if built.is_new:
                metadata["preview"] = preview(catalog, each, topic, day)
        yield dg.MaterializeResult(asset_key=key, metadata=metadata)
