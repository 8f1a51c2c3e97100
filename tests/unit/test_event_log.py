"""Dagster's event log, with connections that are used again."""

import zlib
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
import sqlalchemy as db
from dagster._core.events import AssetMaterializationPlannedData, DagsterEvent, DagsterEventBatchMetadata
from dagster._core.events.log import EventLogEntry
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


def test_every_table_of_assets_has_the_columns_that_dagster_would_look_for(instance: dg.DagsterInstance) -> None:
    """Where Dagster calls this otherwise, or has tables without them, our answer is not asked for, or wrong."""
    log = instance.event_log_storage
    assert isinstance(log, SqliteEventLog)
    with log.index_connection() as connection:
        assert SqliteEventLogStorage._has_asset_key_index_cols_on_connection(log, connection)
