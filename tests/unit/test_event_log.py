"""Dagster's event log, with connections that are used again."""

import errno
import sqlite3
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from unittest.mock import Mock

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
from dagster_shared.serdes.errors import SerializationError
from sqlalchemy.exc import OperationalError

from leanops.errors import DiskFull
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


def test_events_that_wait_leave_what_dagster_leaves(tmp_path: Path) -> None:
    of_two_runs = [event._replace(run_id=run_id) for event in of_a_run()[-9:] for run_id in ("run-0", "run-1")]
    log = SqliteEventLog(str(tmp_path / "ours"))
    for event in [*of_a_run(), *of_two_runs]:
        log.store_event(event)
    assert tables(tmp_path / "ours") == stored_by_dagster(tmp_path / "dagster", [*of_a_run(), *of_two_runs])


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


@pytest.fixture
def log(tmp_path: Path) -> Iterator[SqliteEventLog]:
    made = SqliteEventLog(str(tmp_path / "log"))
    yield made
    made.dispose()


def in_the_file(log: SqliteEventLog, run_id: str = "run-1") -> int:
    """How many events of a run another process finds."""
    with closing(sqlite3.connect(log.path_for_shard(run_id))) as connection:
        return int(connection.execute("SELECT count(*) FROM event_logs").fetchone()[0])


START, LINE = logged(Kind.STEP_START), logged(None, text="a line")


@pytest.fixture
def waiting_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leanops_resources.event_log._LONGEST_WAIT", 600)


@pytest.mark.usefixtures("waiting_long")
def test_events_of_a_step_wait_for_one_that_may_not(log: SqliteEventLog) -> None:
    log.store_event(LINE)
    for event in (START, materialised("a"), evaluated("fits")):
        log.store_event(event)
    assert in_the_file(log) == 1
    log.store_event(LINE)
    assert in_the_file(log) == 5
    assert [event.dagster_event_type for event in log.get_logs_for_run("run-1")] == [
        None,
        Kind.STEP_START,
        Kind.ASSET_MATERIALIZATION,
        Kind.ASSET_CHECK_EVALUATION,
        None,
    ]


@pytest.mark.usefixtures("waiting_long")
def test_no_more_than_some_events_wait(log: SqliteEventLog) -> None:
    log.store_event(LINE)
    for _ in range(450):
        log.store_event(START)
    assert in_the_file(log) == 401


@pytest.mark.usefixtures("waiting_long")
def test_whoever_reads_sees_what_was_stored_before(log: SqliteEventLog) -> None:
    log.store_event(materialised("a", "2026-01-15"))
    assert log.get_materialized_partitions(A) == {"2026-01-15"}
    log.store_event(START)
    assert len(log.get_logs_for_run("run-1")) == 2


@pytest.mark.usefixtures("waiting_long")
def test_what_is_reported_without_a_step_does_not_wait(instance: dg.DagsterInstance) -> None:
    log = instance.event_log_storage
    assert isinstance(log, SqliteEventLog)
    instance.report_runless_asset_event(dg.AssetMaterialization(A))
    assert in_the_file(log, "") == 1


@pytest.mark.usefixtures("waiting_long")
def test_what_waits_is_stored_when_the_log_is_disposed_of(log: SqliteEventLog) -> None:
    log.store_event(START)
    log.dispose()
    assert in_the_file(log) == 1


def eventually(found: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 20
    while not found() and time.monotonic() < deadline:
        time.sleep(0.02)
    return found()


def test_a_long_step_is_seen_to_begin(log: SqliteEventLog) -> None:
    log.store_event(LINE)
    log.store_event(START)
    assert eventually(lambda: in_the_file(log) == 2)


def test_threads_may_store_and_read_at_once(log: SqliteEventLog) -> None:
    def store(number: int) -> None:
        for each in range(40):
            log.store_event(START._replace(user_message=f"{number}/{each}"))
            if each % 10 == 0:
                log.get_logs_for_run("run-1")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(store, range(4)))
    said = [event.user_message for event in log.get_logs_for_run("run-1")]
    assert len(said) == 160
    for number in range(4):
        assert [each for each in said if each.startswith(f"{number}/")] == [f"{number}/{each}" for each in range(40)]


def test_at_its_end_a_process_stores_what_waits_in_it_but_not_what_waited_when_it_was_forked(tmp_path: Path) -> None:
    code = """
import os, sys
from leanops_resources import event_log
from tests.unit.test_event_log import START
event_log._LONGEST_WAIT = 600
log = event_log.SqliteEventLog(sys.argv[1])
log.store_event(START)
if child := os.fork():
    os.waitpid(child, 0)
else:
    log.store_event(START._replace(run_id="run-2"))
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    log = SqliteEventLog(str(tmp_path))
    assert (in_the_file(log), in_the_file(log, "run-2")) == (1, 1)


def unfit() -> EventLogEntry:
    return START._replace(user_message=object())  # type: ignore[arg-type]


@pytest.mark.usefixtures("waiting_long")
def test_an_event_that_cannot_be_stored_is_told_and_the_others_are_stored(log: SqliteEventLog) -> None:
    log.store_event(START)
    log.store_event(unfit())
    with pytest.raises(SerializationError):
        log.store_event(LINE)
    assert len(log.get_logs_for_run("run-1")) == 2


@pytest.mark.parametrize(
    "use", [lambda log: log.store_event(START), lambda log: log.get_maximum_record_id()], ids=["stores", "reads"]
)
def test_a_fault_that_nobody_waited_for_is_told_to_the_next(
    log: SqliteEventLog, use: Callable[[SqliteEventLog], None]
) -> None:
    log.store_event(unfit())
    assert eventually(lambda: log._fault is not None)
    with pytest.raises(SerializationError):
        use(log)
    log.store_event(LINE)


@pytest.mark.usefixtures("waiting_long")
def test_what_finds_no_room_goes_on_waiting(log: SqliteEventLog, monkeypatch: pytest.MonkeyPatch) -> None:
    log.store_event(START)
    with monkeypatch.context() as full:
        full.setattr(log, "_mirror", Mock(side_effect=OSError(errno.ENOSPC, "No space left on device")))
        with pytest.raises(DiskFull):
            log.store_event(logged(Kind.RUN_START))
    assert [event.dagster_event_type for event in log.get_logs_for_run("run-1")] == [Kind.STEP_START, Kind.RUN_START]


def test_a_check_that_was_planned_twice_is_a_fault_as_it_is_to_dagster(log: SqliteEventLog, tmp_path: Path) -> None:
    theirs = SqliteEventLogStorage(str(tmp_path / "dagster"))
    for each in (log, theirs):
        for event in (check_planned("fits"), check_planned("fits"), START):
            each.store_event(event)
    with pytest.raises(dg.DagsterInvariantViolationError):
        theirs.store_event(evaluated("fits"))
    log.store_event(evaluated("fits"))
    with pytest.raises(dg.DagsterInvariantViolationError):
        log.flush()
    assert tables(tmp_path / "log") == tables(tmp_path / "dagster")


def test_a_run_is_watched_while_another_logs_it(log: SqliteEventLog, tmp_path: Path) -> None:
    log.store_event(LINE)
    seen: list[str] = []
    log.watch("run-1", None, lambda event, _: seen.append(event.user_message))
    SqliteEventLog(str(tmp_path / "log")).store_event(LINE._replace(user_message="said elsewhere"))
    assert eventually(lambda: seen == ["a line", "said elsewhere"])
