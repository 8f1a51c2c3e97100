"""What a tick has to do, and doing it once: the sensor requests these runs, `leanops tick` runs them at once."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import dagster as dg

from leanops.backoff import Failures
from leanops.contracts.manifest import Manifest
from leanops.home import Home
from leanops.names import Layer
from leanops.progress import Advance, unseen
from leanops.settings import Settings
from leanops_assets.instance import dagster_instance
from leanops_assets.layer_step import closed_gate
from leanops_assets.manifests import planned_manifest
from leanops_assets.packing import PlannedRun, planned_runs
from leanops_assets.run_job import QUIET
from leanops_assets.run_log import log_finished, outcomes
from leanops_assets.specs import asset_key
from leanops_resources.state.store import StateStore

if TYPE_CHECKING:
    from leanops.pending import Pending
    from leanops_resources.catalog import IcebergCatalog


@dataclass(frozen=True)
class Work:
    """What is pending, and why topics with something new are left out."""

    pending: "list[Pending]" = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    damaged: dict[str, str] = field(default_factory=dict)


def find_work(
    catalog: "IcebergCatalog",
    store: StateStore,
    manifest: Manifest,
    settings: Settings,
    topics: Collection[str] | None = None,
) -> Work:
    """Ask the tables' metadata of every topic, or of those named. What is wrong with one leaves the others alone.

    A topic that has failed is due when its time has come, or when it is named.
    """
    from leanops_resources.findings import findings

    work, gates = Work(), store.gates()
    failures = store.failures() if topics is None else {}
    with findings(Home(settings.home), catalog) as found_of:
        for topic in manifest.topics:
            if topics is not None and topic.name not in topics:
                continue
            try:
                found = found_of.of(topic)
            except Exception as error:  # noqa: BLE001 - whatever is wrong with one topic, the others go on
                work.damaged[topic.name] = f"{type(error).__name__}: {error}"
                continue
            if found.buffered:
                why = "its contract cannot be used" if topic.contract_problem else "no active contract"
                work.skipped[topic.name] = f"{why}: {found.buffered:,} messages are kept in RAW until there is one."
            elif found.pending:
                reason = closed_gate(topic.name, gates.get(topic.name)) or _not_due(
                    failures.get(topic.name), settings, datetime.now(UTC)
                )
                if reason:
                    work.skipped[topic.name] = reason
                else:
                    work.pending.append(found.pending)
    return work


def _not_due(failures: Failures | None, settings: Settings, now: datetime) -> str | None:
    """Why a topic that has failed is left alone for now."""
    due = failures.tried_again(timedelta(minutes=settings.tick_minutes)) if failures else now
    if failures is None or due <= now:
        return None
    times = "once" if failures.count == 1 else f"{failures.count} times in a row"
    return f"it failed {times}, and is tried again by the first tick after {due:%Y-%m-%d %H:%M} UTC."


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
    catalog = LocalCatalog(home)
    work = find_work(catalog, state_store(settings), manifest, settings, topics)
    ticked = Ticked(skipped=dict(work.skipped), failed=dict(work.damaged))
    runs = planned_runs(work.pending, settings.first_day, settings.topics_per_run)
    if runs:
        from leanops_assets.definitions import defs

        job = defs().resolve_job_def("tick")
        with dagster_instance(home) as instance:
            finished = []
            for planned in runs:
                run = job.execute_in_process(**_run(instance, planned))
                finished.append(run.dagster_run)
                _note(run, planned.day, ticked)
                advance(len(planned.topics))
            log_finished(catalog.load(), instance, finished)
    return ticked


def _run(instance: dg.DagsterInstance, planned: PlannedRun) -> dict[str, Any]:
    return {
        "instance": instance,
        "partition_key": planned.day.isoformat(),
        "asset_selection": selection(planned.topics),
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
