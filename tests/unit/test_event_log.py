"""Dagster's event log, with connections that are used again."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
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
