"""What runs did, read from their events, and written to `ops_db`: all at once, and each run once."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

import dagster as dg
from dagster._core.storage.tags import PARTITION_NAME_TAG

from leanops.names import SOURCE, Layer

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

_KINDS = {
    dg.DagsterEventType.ASSET_MATERIALIZATION,
    dg.DagsterEventType.ASSET_OBSERVATION,
    dg.DagsterEventType.ASSET_CHECK_EVALUATION,
    dg.DagsterEventType.STEP_FAILURE,
}


@dataclass(frozen=True)
class Outcome:
    """What a run did with a layer of a topic: `built`, `nothing_new`, `skipped` or `failed`."""

    topic: str
    layer: Layer
    outcome: str
    reason: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


def outcomes(events: Iterable[dg.DagsterEvent], day: str) -> Iterator[Outcome]:
    """What became of each topic and layer in a run of one day. RAW is told of only where it failed."""
    for event in events:
        if event.is_step_failure and event.step_key:
            layer, _, topic = event.step_key.partition("__")
            yield Outcome(topic, Layer(layer), "failed", _cause(event.step_failure_data.error))
        elif place := _place(event):
            if event.is_step_materialization and event.partition == day:
                metadata = _values(event.step_materialization_data.materialization.metadata)
                yield Outcome(*place, "built" if metadata.get("anything_new") else "nothing_new", metadata=metadata)
            elif event.event_type is dg.DagsterEventType.ASSET_OBSERVATION:
                metadata = _values(event.asset_observation_data.asset_observation.metadata)
                yield Outcome(*place, "skipped", str(metadata["skipped"]))


def log_finished(catalog: "Catalog", instance: dg.DagsterInstance, runs: Collection[dg.DagsterRun]) -> int:
    """Write down what these runs did, those that are not written down yet; how many there were."""
    from leanops.ops.job_run_history import log_runs, logged_runs
    from leanops.ops.reconciliation_log import log_ledgers

    of_a_day = [run for run in runs if PARTITION_NAME_TAG in run.tags]
    known = logged_runs(catalog, [run.run_id for run in of_a_day])
    new = [run for run in of_a_day if run.run_id not in known]
    events = {run.run_id: _events(instance, run) for run in new}
    # The history comes last: a run that is not in it is written down again, and a ledger that is there twice is no lie.
    log_ledgers(catalog, (row for run in new for row in _ledgers(run, events[run.run_id])))
    log_runs(catalog, (row for run in new for row in _history(run, events[run.run_id])))
    return len(new)


def _events(instance: dg.DagsterInstance, run: dg.DagsterRun) -> list[dg.DagsterEvent]:
    logs = instance.all_logs(run.run_id, of_type=_KINDS)
    return [entry.dagster_event for entry in logs if entry.dagster_event]


def _ledgers(run: dg.DagsterRun, events: Iterable[dg.DagsterEvent]) -> Iterator[dict[str, Any]]:
    from leanops.ops.reconciliation_log import ledger_row

    for event in events:
        if event.event_type is dg.DagsterEventType.ASSET_CHECK_EVALUATION:
            found = event.asset_check_evaluation_data
            if found.check_name == "ledger_closed" and found.partition:
                layer, topic = found.asset_key.path
                day = date.fromisoformat(found.partition)
                yield ledger_row(topic, Layer(layer), day, run.run_id, _values(found.metadata))


def _history(run: dg.DagsterRun, events: Iterable[dg.DagsterEvent]) -> Iterator[dict[str, Any]]:
    from leanops.ops.job_run_history import HISTORY_SCHEMA

    day, now = run.tags[PARTITION_NAME_TAG], datetime.now(UTC)
    for each in outcomes(events, day):
        numbers = {name: each.metadata.get(name) for name in (field.name for field in HISTORY_SCHEMA.fields)}
        yield {
            **numbers,
            "run_id": run.run_id,
            "topic": each.topic,
            "layer": each.layer.value,
            "day": date.fromisoformat(day),
            "outcome": each.outcome,
            "reason": each.reason,
            "finished": now,
            "source_snapshot": each.metadata.get(f"{SOURCE.get(each.layer)}_snapshot"),
        }


def _place(event: dg.DagsterEvent) -> tuple[str, Layer] | None:
    """The topic and the layer that an event is about, if it is about a layer's own table."""
    match event.asset_key.path if event.asset_key else ():
        case [Layer.STANDARDIZED | Layer.CURATED as layer, topic]:
            return topic, Layer(layer)
    return None


def _values(metadata: Mapping[str, dg.MetadataValue]) -> dict[str, Any]:
    return {key: value.value for key, value in metadata.items()}


def _cause(error: Any) -> str:
    """The fault itself, without Dagster's words around it."""
    while error is not None and error.cause is not None:
        error = error.cause
    return str(error.message).strip() if error else "the run says no more."
