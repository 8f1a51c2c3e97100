"""The runs of a tick, as Dagster has them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import date
from typing import TYPE_CHECKING, Any

import dagster as dg

from leanops.home import Home
from leanops.names import Layer
from leanops.progress import Advance
from leanops_assets.instance import dagster_instance
from leanops_assets.packing import RUN, PlannedRun
from leanops_assets.run_job import QUIET
from leanops_assets.run_log import log_finished, outcomes
from leanops_assets.specs import asset_key
from leanops_assets.tick import Ticked

if TYPE_CHECKING:
    from leanops.pending import Pending
    from leanops_resources.catalog import IcebergCatalog


def selection(topics: "Iterable[Pending]") -> list[dg.AssetKey]:
    """All layers of these topics but RAW, which is drained at a rhythm of its own."""
    layers = [layer for layer in Layer if layer is not Layer.RAW]
    return [asset_key(layer, each.topic) for each in topics for layer in layers]


def run_at_once(
    home: Home, catalog: "IcebergCatalog", runs: Sequence[PlannedRun], ticked: Ticked, advance: Advance
) -> None:
    """Do these runs one after the other, in this process, and note what became of their topics."""
    from leanops_assets.definitions import defs

    definitions = defs()
    job = definitions.resolve_job_def("tick")
    with dagster_instance(home) as instance:
        finished = []
        for planned in _in_the_graph(definitions, runs, ticked):
            run = job.execute_in_process(**_run(instance, planned))
            finished.append(run.dagster_run)
            _note(run, planned.day, ticked)
            advance(len(planned.topics))
        log_finished(catalog.load(), instance, finished)


def _in_the_graph(definitions: dg.Definitions, runs: Iterable[PlannedRun], ticked: Ticked) -> Iterator[PlannedRun]:
    """The runs without the topics that the graph could not take: each of these has failed, with the reason."""
    graph = definitions.resolve_asset_graph()
    for planned in runs:
        topics = [each for each in planned.topics if graph.has(asset_key(Layer.CURATED, each.topic))]
        for each in planned.topics:
            if each not in topics:
                raw = asset_key(Layer.RAW, each.topic)
                said = graph.get(raw).metadata.get("contract_problem") if graph.has(raw) else None
                ticked.failed[each.topic] = str(said or "it is not in the asset graph; `leanops topics` says why.")
        if topics:
            yield replace(planned, topics=topics)


def _run(instance: dg.DagsterInstance, planned: PlannedRun) -> dict[str, Any]:
    return {
        "instance": instance,
        "partition_key": planned.day.isoformat(),
        "asset_selection": selection(planned.topics),
        "raise_on_error": False,
        "run_config": dict(QUIET),
        "tags": {RUN: planned.kind.value},
    }


def _note(run: dg.ExecuteInProcessResult, day: date, ticked: Ticked) -> None:
    """Read from a run's events what became of each topic."""
    for each in outcomes(run.all_events, day.isoformat()):
        match each.outcome:
            case "failed":
                ticked.failed[each.topic] = str(each.reason)
            case "skipped":
                ticked.skipped[each.topic] = str(each.reason)
            case _:
                ticked.built[each.topic, each.layer] = each.metadata
    if not run.success and not ticked.failed:
        ticked.failed[f"the run {run.run_id}"] = "see it under Runs in the UI."
