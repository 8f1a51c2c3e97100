"""What a tick has to do, and doing it once: the sensor requests these runs, `leanops tick` runs them at once."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import TYPE_CHECKING, Any

import dagster as dg

from leanops.contracts.manifest import Manifest
from leanops.home import Home
from leanops.names import Layer
from leanops.progress import Advance, unseen
from leanops.settings import Settings
from leanops_assets.instance import dagster_instance
from leanops_assets.layer_step import closed_gate
from leanops_assets.manifests import planned_manifest
from leanops_assets.run_job import QUIET
from leanops_assets.run_log import log_finished, outcomes
from leanops_assets.specs import asset_key
from leanops_resources.state.store import StateStore

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from leanops.pending import Pending


@dataclass(frozen=True)
class Work:
    """What is pending, and why topics with something new are left out."""

    pending: "list[Pending]" = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    damaged: dict[str, str] = field(default_factory=dict)


def find_work(catalog: "Catalog", store: StateStore, manifest: Manifest, topics: Collection[str] | None = None) -> Work:
    """Ask the tables' metadata of every topic, or of those named. What is wrong with one leaves the others alone."""
    from leanops.pending import buffered, pending

    work = Work()
    for topic in manifest.topics:
        if topics is not None and topic.name not in topics:
            continue
        try:
            if topic.contract is None:
                if rows := buffered(catalog, topic.name):
                    why = "its contract cannot be used" if topic.contract_problem else "no active contract"
                    work.skipped[topic.name] = f"{why}: {rows:,} messages are kept in RAW until there is one."
            elif found := pending(catalog, topic.name, topic.contract):
                if reason := closed_gate(store, topic.name):
                    work.skipped[topic.name] = reason
                else:
                    work.pending.append(found)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with one topic, the others go on
            work.damaged[topic.name] = f"{type(error).__name__}: {error}"
    return work


def runs_by_day(found: "Iterable[Pending]", first_day: date) -> "dict[date, list[Pending]]":
    """One run for each day, over the topics of which it is the newest pending one: a build takes in all their days."""
    by_day: dict[date, list[Pending]] = defaultdict(list)
    for each in found:
        by_day[max(*each.days, first_day)].append(each)
    return dict(sorted(by_day.items()))


def selection(topics: "Iterable[Pending]") -> list[dg.AssetKey]:
    """All layers of these topics but RAW, which is drained at a rhythm of its own."""
    layers = [layer for layer in Layer if layer is not Layer.RAW]
    return [asset_key(layer, each.topic) for each in topics for layer in layers]


@dataclass
class Ticked:
    """What a tick has done: what was built of each topic and layer, what was skipped and why, and what failed."""

    built: dict[tuple[str, Layer], Mapping[str, Any]] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


def tick_once(settings: Settings, topics: Collection[str] | None = None, advance: Advance = unseen) -> Ticked:
    """Do at once, in this process, what the sensor would request."""
    from leanops_resources.catalog import LocalCatalog
    from leanops_resources.state.stores import state_store

    home = Home(settings.home).prepare()
    manifest = planned_manifest(settings)
    catalog = LocalCatalog(home).load()
    work = find_work(catalog, state_store(settings), manifest, topics)
    ticked = Ticked(skipped=dict(work.skipped), failed=dict(work.damaged))
    runs = runs_by_day(work.pending, settings.first_day)
    if runs:
        from leanops_assets.definitions import defs

        job = defs().resolve_job_def("tick")
        with dagster_instance(home) as instance:
            finished = []
            for day, found in runs.items():
                run = job.execute_in_process(**_run(instance, day, found))
                finished.append(run.dagster_run)
                _note(run, day, ticked)
                advance(len(found))
            log_finished(catalog, instance, finished)
    return ticked


def _run(instance: dg.DagsterInstance, day: date, found: "list[Pending]") -> dict[str, Any]:
    return {
        "instance": instance,
        "partition_key": day.isoformat(),
        "asset_selection": selection(found),
        "raise_on_error": False,
        "run_config": dict(QUIET),
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
