"""Dagster's event log, with connections that are used again."""

import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import dagster as dg
import pytest
import sqlalchemy as db
from dagster import DagsterEventType as Kind
from dagster._core.definitions.asset_checks.asset_check_evaluation import (
    AssetCheckEvaluationPlanned,
    AssetCheckEvaluationTargetMaterializationData,
)
from dagster._core.definitions.asset_health.asset_health import AssetHealthStatus
from dagster._core.definitions.events import (
    AssetMaterializationFailure,
    AssetMaterializationFailureReason,
    AssetMaterializationFailureType,
)
from dagster._core.definitions.freshness import FreshnessState, FreshnessStateChange
from dagster._core.definitions.partitions.subset import DefaultPartitionsSubset
from dagster._core.events import (
    AssetFailedToMaterializeData,
    AssetHealthChangedData,
    AssetMaterializationPlannedData,
    AssetObservationData,
    AssetWipedData,
    DagsterEvent,
    DagsterEventBatchMetadata,
    StepMaterializationData,
)
from dagster._core.events.log import EventLogEntry
from dagster._core.execution.plan.objects import StepSuccessData
from dagster._core.execution.plan.outputs import StepOutputData, StepOutputHandle
from dagster._core.storage.event_log.sqlite.sqlite_event_log import SqliteEventLogStorage
from sqlalchemy.exc import OperationalError

from leanops.home import Home
from leanops_assets.instance import dagster_instance
from leanops_resources.event_log import SqliteEventLog


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    with dagster_instance(Home(tmp_path / 'a "home" & co')) as made:
        yield made


def test_it_is_the_log_of_every_home_and_where_dagsters_own_would_be(instance: dg.DagsterInstance) -> None:
    log = instance.event_log_storage
    assert isinstance(log, SqliteEventLog)
    assert Path(log.path_for_shard("index")) == Path(instance.root_directory) / "history" / "runs" / "index.db"


def test_what_is_logged_of_many_runs_is_read_by_another_instance(instance: dg.DagsterInstance) -> None:
    key = dg.AssetKey("a")
    runs = [instance.add_run(dg.DagsterRun("job", status=dg.DagsterRunStatus.STARTED)) for _ in range(9)]
    for number, run in enumerate([*runs, *runs]):
        instance.report_engine_event(f"said {number}", run)
    instance.report_runless_asset_event(dg.AssetMaterialization(key, partition="2026-01-15"))
    with dg.DagsterInstance.from_config(instance.root_directory) as other:
        for number, run in enumerate(runs):
            said = [entry.dagster_event.message for entry in other.all_logs(run.run_id) if entry.dagster_event]
            assert said == [f"said {number}", f"said {number + len(runs)}"]
        assert other.get_materialized_partitions(key) == {"2026-01-15"}


def test_what_is_known_of_an_asset_is_stored_once_and_of_an_op_with_its_result(instance: dg.DagsterInstance) -> None:
    @dg.multi_asset(specs=[dg.AssetSpec("a"), dg.AssetSpec("b")])
    def both() -> Iterator[dg.MaterializeResult[None]]:
        for name in ("a", "b"):
            yield dg.MaterializeResult(asset_key=name, metadata={"rows": 7})

    @dg.op
    def drain(context: dg.OpExecutionContext) -> None:
        context.add_output_metadata({"rows": 7})

    @dg.job
    def drains() -> None:
        drain()

    stored = []
    for run in (dg.materialize([both], instance=instance), drains.execute_in_process(instance=instance)):
        events = [entry.dagster_event for entry in instance.all_logs(run.run_id) if entry.dagster_event]
        stored += [
            (event.event_type_value, set(event.step_output_data.metadata))
            if event.is_successful_output
            else (event.event_type_value, set(event.step_materialization_data.materialization.metadata))
            for event in events
            if event.is_successful_output or event.is_step_materialization
        ]
    assert stored == [("STEP_OUTPUT", set()), ("ASSET_MATERIALIZATION", {"rows"})] * 2 + [("STEP_OUTPUT", {"rows"})]


def test_a_fault_leaves_nothing_half_written_and_the_log_goes_on(instance: dg.DagsterInstance) -> None:
    run = instance.add_run(dg.DagsterRun("job", status=dg.DagsterRunStatus.STARTED))
    instance.report_engine_event("before", run)
    log = instance.event_log_storage
    assert isinstance(log, SqliteEventLog)
    with pytest.raises(OperationalError), log.run_connection(run.run_id) as connection:
        connection.exec_driver_sql("DELETE FROM event_logs") and connection.exec_driver_sql("DELETE FROM nothing")
    instance.report_engine_event("after", run)
    said = [entry.dagster_event.message for entry in instance.all_logs(run.run_id) if entry.dagster_event]
    assert said == ["before", "after"]


def stored_as(log: SqliteEventLog, table: str, column: str) -> list[str]:
    """The kinds of values that SQLite holds, whatever is made of them."""
    with log.index_connection() as connection:
        found = connection.exec_driver_sql(f"SELECT DISTINCT typeof({column}) FROM {table} WHERE {column} IS NOT NULL")
        return [str(kind) for (kind,) in found]


def test_events_and_verdicts_are_stored_compressed_and_those_of_old_are_read_too(instance: dg.DagsterInstance) -> None:
    key, log = dg.AssetKey("a"), instance.event_log_storage
    assert isinstance(log, SqliteEventLog)

    def report(day: str) -> None:
        instance.report_runless_asset_event(dg.AssetMaterialization(key, partition=day, metadata={"said": "ö" * 900}))
        verdict = dg.AssetCheckEvaluation(asset_key=key, check_name="fits", passed=True, metadata={"said": "ä" * 900})
        instance.report_runless_asset_event(verdict)

    report("2026-01-15")
    stored = {"event_logs": "event", "asset_check_executions": "evaluation_event"}
    assert [stored_as(log, *place) for place in stored.items()] == [["blob"], ["blob"]]
    for table, column in stored.items():
        with log.index_connection() as connection:
            ((id_, value),) = connection.exec_driver_sql(f"SELECT max(id), {column} FROM {table}").fetchall()
            assert len(value) < 900
            text = zlib.decompress(value).decode()
            connection.exec_driver_sql(f"UPDATE {table} SET {column} = ? WHERE id = ?", (text, id_))
    report("2026-01-16")

    records = instance.fetch_materializations(key, limit=9).records
    assert [record.partition_key for record in records] == ["2026-01-16", "2026-01-15"]
    assert {
        str(record.asset_materialization.metadata["said"].value) for record in records if record.asset_materialization
    } == {"ö" * 900}
    history = log.get_asset_check_execution_history(dg.AssetCheckKey(key, "fits"), limit=9)
    evaluations = [entry.event.asset_check_evaluation for entry in history if entry.event]
    assert [str(each.metadata["said"].value) for each in evaluations if each] == ["ä" * 900] * 2


def planned(run: dg.DagsterRun, count: int) -> list[EventLogEntry]:
    """Events of a run, as Dagster stores them when it plans the run; none of them is in the log."""
    return [
        EventLogEntry(
            error_info=None,
            level=10,
            user_message="",
            run_id=run.run_id,
            timestamp=1_790_000_000.0 + number,
            dagster_event=DagsterEvent.build_asset_materialization_planned_event(
                run.job_name, "step", AssetMaterializationPlannedData(dg.AssetKey(["a", str(number)]))
            ),
        )
        for number in range(count)
    ]


def test_what_a_run_plans_is_stored_in_one_transaction_for_each_file(instance: dg.DagsterInstance) -> None:
    log, run = instance.event_log_storage, instance.add_run(dg.DagsterRun("job"))
    assert isinstance(log, SqliteEventLog)
    for shard in (run.run_id, "index"):
        with log._connect(shard):
            pass
    begun: list[object] = []
    for engine in log._engines.values():
        db.event.listen(engine, "begin", begun.append)
    for number, event in enumerate(events := planned(run, 20), start=1):
        metadata = DagsterEventBatchMetadata("batch", is_end=number == len(events))
        instance.handle_new_event(event, batch_metadata=metadata)
    assert len(begun) == 2
    assert len(instance.all_logs(run.run_id)) == 20
    assert len(instance.get_asset_keys()) == 20


def test_a_batch_of_events_is_stored_whole_or_not_at_all(instance: dg.DagsterInstance) -> None:
    log, run = instance.event_log_storage, instance.add_run(dg.DagsterRun("job"))
    assert isinstance(log, SqliteEventLog)
    events = planned(run, 3)
    with pytest.raises(AttributeError):
        log.store_event_batch([*events, None])  # type: ignore[list-item]
    assert not instance.all_logs(run.run_id)
    log.store_event_batch(events)
    assert len(instance.all_logs(run.run_id)) == 3


def logged(
    kind: dg.DagsterEventType | None, data: object = None, *, run_id: str = "run-1", at: float = 0.5, text: str = ""
) -> EventLogEntry:
    """An event, or without a kind a line, as it comes to be stored."""
    event = kind and DagsterEvent(Kind.STEP_START.value, "job", step_key="step")._replace(
        event_type_value=kind.value, event_specific_data=data
    )
    return EventLogEntry(None, 10, text, run_id, 1_790_000_000.0 + at, step_key="step", dagster_event=event)


def materialised(asset: str, day: str | None = None, run_id: str = "run-1", at: float = 1.5) -> EventLogEntry:
    tags = {"dagster/data_version": "v1", "mine": "not_indexed"} if day else None
    made = dg.AssetMaterialization(asset, partition=day, metadata={"said": "ö" * 99}, tags=tags)
    return logged(Kind.ASSET_MATERIALIZATION, StepMaterializationData(made), run_id=run_id, at=at)


def observed(asset: str, at: float) -> EventLogEntry:
    seen = dg.AssetObservation(asset, partition="2026-01-15", tags={"dagster/data_version": "v2"})
    return logged(Kind.ASSET_OBSERVATION, AssetObservationData(seen), at=at)


def evaluated(name: str, day: str | None = None, *, passed: bool = True, run_id: str = "run-1") -> EventLogEntry:
    target = AssetCheckEvaluationTargetMaterializationData(storage_id=7, run_id="run-0", timestamp=3.5) if day else None
    said = dg.AssetCheckEvaluation(
        asset_key=dg.AssetKey("a"), check_name=name, passed=passed, partition=day, target_materialization_data=target
    )
    return logged(Kind.ASSET_CHECK_EVALUATION, said, run_id=run_id, at=4.25)


def check_planned(name: str, *days: str) -> EventLogEntry:
    subset = DefaultPartitionsSubset(set(days)) if days else None
    said = AssetCheckEvaluationPlanned(asset_key=dg.AssetKey("a"), check_name=name, partitions_subset=subset)
    return logged(Kind.ASSET_CHECK_EVALUATION_PLANNED, said)


def output(name: str) -> EventLogEntry:
    return logged(Kind.STEP_OUTPUT, StepOutputData(StepOutputHandle("step", name)))


def of_a_run() -> list[EventLogEntry]:
    """Events in all ways that leave something else behind."""
    return [
        logged(Kind.RUN_ENQUEUED),
        *planned(dg.DagsterRun("job", run_id="run-1"), 3),
        check_planned("fits"),
        check_planned("by_day", "2026-01-15", "2026-01-16"),
        logged(Kind.RUN_START),
        logged(None, text="a line"),
        logged(Kind.STEP_START),
        evaluated("unplanned"),
        check_planned("late"),
        evaluated("unplanned", passed=False),
        evaluated("unplanned", "2026-01-15"),
        output("a"),
        materialised("b", at=9.125),
        materialised("a", "2026-01-15", at=2.5),
        materialised("a", "2026-01-16", at=1.5),
        observed("a", at=3.5),
        observed("only_observed", at=3.75),
        evaluated("fits"),
        evaluated("by_day", "2026-01-16", passed=False),
        logged(Kind.STEP_SUCCESS, StepSuccessData(12.5)),
        logged(Kind.RUN_SUCCESS),
    ]


def tables(folder: Path) -> dict[str, list[tuple[object, ...]]]:
    """All rows of all files, but for the time at which SQLite got them."""
    found = {}
    for file in folder.glob("*.db"):
        with closing(sqlite3.connect(file)) as connection:
            for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
                columns = [str(name) for _, name, *_ in connection.execute(f"PRAGMA table_info({table})")]
                kept = ", ".join(f'"{name}"' for name in columns if name not in _TIMES)
                found[f"{file.name}: {table}"] = connection.execute(f"SELECT {kept} FROM {table}").fetchall()
    return found


_TIMES = {"create_timestamp", "migration_completed"}


def stored_by_dagster(folder: Path, events: list[EventLogEntry]) -> dict[str, list[tuple[object, ...]]]:
    log = SqliteEventLogStorage(str(folder))
    for event in events:
        log.store_event(event)
    return tables(folder)


@pytest.mark.parametrize("size", [1, 5, 50])
def test_a_batch_leaves_what_dagster_leaves_that_stores_its_events_one_by_one(size: int, tmp_path: Path) -> None:
    earlier = [event._replace(run_id="run-0") for event in of_a_run()]
    runless = [evaluated("fits", run_id=""), materialised("c", run_id=""), evaluated("fits", run_id="")]
    log = SqliteEventLog(str(tmp_path / "ours"))
    for events in (earlier, runless, of_a_run()):
        for start in range(0, len(events), size):
            log.store_event_batch(events[start : start + size])
    expected = stored_by_dagster(tmp_path / "dagster", [*earlier, *runless, *of_a_run()])
    assert tables(tmp_path / "ours") == expected


A = dg.AssetKey("a")
DATA = {
    Kind.ASSET_MATERIALIZATION: StepMaterializationData(dg.AssetMaterialization(A)),
    Kind.ASSET_OBSERVATION: AssetObservationData(dg.AssetObservation(A)),
    Kind.ASSET_MATERIALIZATION_PLANNED: AssetMaterializationPlannedData(A),
    Kind.ASSET_FAILED_TO_MATERIALIZE: AssetFailedToMaterializeData(
        AssetMaterializationFailure(
            asset_key=A,
            failure_type=AssetMaterializationFailureType.FAILED,
            reason=AssetMaterializationFailureReason.FAILED_TO_MATERIALIZE,
        )
    ),
    Kind.ASSET_CHECK_EVALUATION: evaluated("fits").get_dagster_event().event_specific_data,
    Kind.ASSET_CHECK_EVALUATION_PLANNED: check_planned("fits").get_dagster_event().event_specific_data,
    Kind.ASSET_HEALTH_CHANGED: AssetHealthChangedData(
        asset_key=A, previous_health_state=AssetHealthStatus.HEALTHY, new_health_state=AssetHealthStatus.WARNING
    ),
    Kind.ASSET_WIPED: AssetWipedData(asset_key=A, partition_keys=None),
    Kind.FRESHNESS_STATE_CHANGE: FreshnessStateChange(
        key=A, new_state=FreshnessState.FAIL, previous_state=FreshnessState.PASS, state_change_timestamp=1.5
    ),
}


def test_every_kind_of_event_is_stored_as_dagster_stores_it(tmp_path: Path) -> None:
    """A kind that is new in Dagster comes here by itself."""
    events = [logged(kind, DATA.get(kind), at=at) for at, kind in enumerate(Kind)]
    log = SqliteEventLog(str(tmp_path / "ours"))
    for event in events:
        log.store_event_batch([event])
    assert tables(tmp_path / "ours") == stored_by_dagster(tmp_path / "dagster", events)
