"""What is removed of old runs, and what the UI goes on showing."""

import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest
import sqlalchemy as db
from dagster._core.code_pointer import CodePointer
from dagster._core.definitions.reconstruct import initialize_repository_def_from_pointer
from dagster._core.execution.api import create_execution_plan
from dagster._core.storage.event_log.schema import SqlEventLogStorageTable
from dagster._core.storage.event_log.sql_event_log import SqlEventLogStorage
from dagster._core.storage.event_log.sqlite.sqlite_event_log import SqliteEventLogStorage
from dagster._core.storage.runs.schema import RunTagsTable, SnapshotsTable
from dagster._core.storage.runs.sql_run_storage import SqlRunStorage

from leanops.contracts.manifest import Manifest, Topic
from leanops.home import Home
from leanops_assets.definitions import defs
from leanops_assets.instance import dagster_instance
from leanops_assets.ops import retention
from leanops_assets.ops.retention import forget_manifests, forget_runs, forget_verdicts
from tests.platform.test_tick import QUIET

DAYS = dg.StaticPartitionsDefinition(["monday", "tuesday"])
KEY = dg.AssetKey("shop")
CHECK = dg.AssetCheckKey(KEY, "open")
SOON = timedelta(minutes=1)


@dg.asset(key=KEY, partitions_def=DAYS, check_specs=[dg.AssetCheckSpec("open", asset=KEY, partitions_def=DAYS)])
def shop(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult[None] | dg.AssetCheckResult]:
    yield dg.MaterializeResult(metadata={"run": context.run.run_id})
    yield dg.AssetCheckResult(passed=True, check_name="open")


@pytest.fixture
def instance(home: Home) -> Iterator[dg.DagsterInstance]:
    with dagster_instance(home) as made:
        yield made


def build(instance: dg.DagsterInstance, day: str) -> str:
    built = dg.materialize([shop], instance=instance, partition_key=day, run_config=QUIET, tags={"by": "a test"})
    return built.run_id


def shown(instance: dg.DagsterInstance) -> dict[str, list[str]]:
    """The runs whose materialisations the asset's page shows, by day, the latest first."""
    days: dict[str, list[str]] = {}
    for record in instance.fetch_materializations(KEY, limit=100).records:
        assert record.asset_materialization
        run = str(record.asset_materialization.metadata["run"].value)
        days.setdefault(str(record.partition_key), []).append(run)
    return days


def run_files(instance: dg.DagsterInstance, home: Home, run_id: str) -> list[bool]:
    storage = instance.event_log_storage
    assert isinstance(storage, SqliteEventLogStorage)
    return [Path(storage.path_for_shard(run_id)).exists(), (home.dagster / "storage" / run_id).exists()]


def test_of_old_runs_only_the_latest_materialisation_of_each_day_is_left(
    instance: dg.DagsterInstance, home: Home
) -> None:
    runs = [build(instance, day) for day in ("monday", "tuesday", "monday", "monday")]
    assert [run_files(instance, home, run) for run in runs] == [[True, True]] * 4
    assert forget_runs(instance, home, datetime.now(UTC) + SOON) == 4
    assert instance.get_runs() == []
    assert shown(instance) == {"monday": [runs[3]], "tuesday": [runs[1]]}
    assert instance.get_materialized_partitions(KEY) == {"monday", "tuesday"}
    latest = instance.get_latest_materialization_event(KEY)
    assert latest
    assert latest.run_id == runs[3]
    assert [run_files(instance, home, run) for run in runs] == [[False, False]] * 4

    events, storage = instance.event_log_storage, instance.run_storage
    assert isinstance(events, SqlEventLogStorage)
    assert isinstance(storage, SqlRunStorage)
    with events.index_connection() as connection:
        left = connection.execute(db.select(SqlEventLogStorageTable.c.dagster_event_type)).scalars().all()
    assert left == ["ASSET_MATERIALIZATION"] * 2
    with storage.connect() as connection:
        assert connection.execute(db.select(db.func.count()).select_from(RunTagsTable)).scalar() == 0


def test_snapshots_go_with_the_last_run_that_was_planned_from_them(
    instance: dg.DagsterInstance, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "_RUNS_AT_A_TIME", 1)

    @dg.op
    def nothing() -> None: ...

    def run_of(name: str) -> dg.DagsterRun:
        return dg.JobDefinition(name=name, graph_def=graph(name)).execute_in_process(instance=instance).dagster_run

    def graph(name: str) -> dg.GraphDefinition:
        return dg.GraphDefinition(name=name, node_defs=[nothing])

    def are_there(run: dg.DagsterRun) -> list[bool]:
        storage = instance.run_storage
        assert run.job_snapshot_id
        assert run.execution_plan_snapshot_id
        assert isinstance(storage, SqlRunStorage)
        with storage.connect() as connection:
            there = set(connection.execute(db.select(SnapshotsTable.c.snapshot_id)).scalars())
        return [each in there for each in (run.job_snapshot_id, run.execution_plan_snapshot_id)]

    runs = [run_of(name) for name in ("often", "seldom", "seldom")]
    between = datetime.now(UTC)
    again = run_of("often")
    assert again.job_snapshot_id == runs[0].job_snapshot_id
    assert forget_runs(instance, home, between) == 3
    assert [are_there(run) for run in runs] == [[True, True], [False, False], [False, False]]
    assert forget_runs(instance, home, datetime.now(UTC) + SOON) == 1
    assert are_there(again) == [False, False]


def test_a_day_that_is_built_again_loses_what_was_kept_of_it_with_its_next_old_run(
    instance: dg.DagsterInstance, home: Home
) -> None:
    build(instance, "monday")
    forget_runs(instance, home, datetime.now(UTC) + SOON)
    second = build(instance, "monday")
    assert forget_runs(instance, home, datetime.now(UTC) + SOON) == 1
    assert shown(instance)["monday"][0] == second


def test_runs_that_are_young_or_unfinished_stay_as_they_are(instance: dg.DagsterInstance, home: Home) -> None:
    young = build(instance, "monday")
    unfinished = instance.add_run(dg.DagsterRun("tick", status=dg.DagsterRunStatus.STARTED))
    assert forget_runs(instance, home, datetime.now(UTC) - SOON) == 0
    assert run_files(instance, home, young) == [True, True]
    assert forget_runs(instance, home, datetime.now(UTC) + SOON) == 1
    assert [run.run_id for run in instance.get_runs()] == [unfinished.run_id]


def test_of_old_verdicts_only_the_latest_of_each_check_and_day_is_left(instance: dg.DagsterInstance) -> None:
    runs = [build(instance, day) for day in ("monday", "tuesday", "monday")]
    assert forget_verdicts(instance, datetime.now(UTC) - SOON) == 0
    assert forget_verdicts(instance, datetime.now(UTC) + SOON) == 1
    left = instance.event_log_storage.get_asset_check_execution_history(CHECK, limit=10)
    assert [verdict.run_id for verdict in left] == [runs[2], runs[1]]


def test_manifests_stay_as_long_as_the_graph_or_an_unfinished_run_is_built_from_them(
    instance: dg.DagsterInstance, home: Home
) -> None:
    location = CodePointer.from_module("leanops_assets.definitions", "defs", None)
    loaded = initialize_repository_def_from_pointer(location).repository_load_data
    pinned = Manifest.load(home.manifests, next(path.stem for path in home.manifests.glob("*.json")))
    current, old, young = (Manifest(topics=(Topic(name=name),)) for name in ("a", "b", "c"))
    for manifest in (current, pinned, old, young):
        manifest.save(home.manifests)
        if manifest is not young:
            os.utime(home.manifests / f"{manifest.version}.json", (0, 0))
    job = dg.define_asset_job("one", [shop]).resolve(asset_graph=dg.Definitions([shop]).resolve_asset_graph())
    plan = create_execution_plan(job, repository_load_data=loaded)
    run = instance.create_run_for_job(job, execution_plan=plan, status=dg.DagsterRunStatus.STARTED)

    def left() -> set[str]:
        return {path.stem for path in home.manifests.glob("*.json")}

    before = datetime.now(UTC) - SOON
    assert forget_manifests(instance, home, before, current) == 1
    assert left() == {current.version, pinned.version, young.version}
    instance.report_run_failed(run)
    assert forget_manifests(instance, home, before, current) == 1
    assert left() == {current.version, young.version}


def test_the_nightly_job_says_what_it_has_removed(instance: dg.DagsterInstance, home: Home) -> None:
    build(instance, "monday")
    done = defs().resolve_job_def("retention").execute_in_process(instance=instance, run_config=dict(QUIET))
    (output,) = [event for event in done.all_events if event.is_successful_output]
    said = {name: value.value for name, value in output.step_output_data.metadata.items()}
    assert said == {"runs": 0, "verdicts": 0, "manifests": 0}
