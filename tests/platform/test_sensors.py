"""What starts work by itself."""

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import dagster as dg
import psutil
import pytest
from dagster._core.events import EngineEventData
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteJobOrigin, RemoteRepositoryOrigin

from leanops.contracts.manifest import Manifest, Topic
from leanops.contracts.model import Contract
from leanops.contracts.reading import read_contract
from leanops.home import Home
from leanops.names import Layer, table
from leanops.pending import Pending, pending
from leanops.raw.landing import land_file
from leanops_assets import packing
from leanops_assets.definitions import defs
from leanops_assets.lost_runs import end_lost_runs
from leanops_assets.packing import PlannedRun, RunKind, planned_runs
from leanops_assets.partitions import publish_days
from leanops_assets.specs import asset_key
from leanops_assets.under_way import topics_under_way
from leanops_resources import sql_catalog
from leanops_resources.catalog import LocalCatalog
from leanops_resources.dagster_resources import CatalogResource, StateStoreResource
from leanops_resources.schema_store import LocalSchemaStore, Stage
from leanops_resources.state.sqlite import SqliteStateStore
from tests.conftest import EXAMPLES, PROJECT, Said, use_home
from tests.platform.test_tick import run, tick

Leanops = Callable[..., Said]
FIRST_DAY = date(2025, 1, 1)
ORIGIN = RemoteJobOrigin(RemoteRepositoryOrigin(RegisteredCodeLocationOrigin("leanops"), "leanops"), "tick")
"""Dagster takes nothing into its queue without."""


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as made:
        yield made


@pytest.fixture(scope="module")
def built_once(shared_home: Home, spark_home: Home) -> Home:
    """A home in which the samples of two topics are built."""
    with pytest.MonkeyPatch.context() as patch:
        use_home(patch, shared_home, spark_home)
        for topic in ("payments", "user_profiles"):
            land_file(LocalCatalog(shared_home).load(), topic, EXAMPLES / f"{topic}.ndjson", FIRST_DAY)
        tick(shared_home, "2026-01-15", "payments", "user_profiles")
    return shared_home


@pytest.fixture
def built_home(built_once: Home, spark_home: Home, monkeypatch: pytest.MonkeyPatch) -> Home:
    """The same home, and the test's own process uses it."""
    return use_home(monkeypatch, built_once, spark_home)


def contract_of(topic: str) -> Contract:
    store = LocalSchemaStore(PROJECT / "schemas")
    return read_contract(store.read(topic, Stage.ACTIVE) or b"", topic, topic)


def evaluate(home: Home, instance: dg.DagsterInstance) -> list[dg.RunRequest] | dg.SkipReason:
    path = str(home.path)
    resources = {"iceberg": CatalogResource(home=path), "state": StateStoreResource(home=path)}
    context = dg.build_sensor_context(instance=instance, resources=resources)
    result = defs().resolve_sensor_def("tick")(context)
    assert isinstance(result, list | dg.SkipReason)
    return result


def test_nothing_pending_is_a_skip_with_its_reason_and_wakes_no_spark(
    home: Home, instance: dg.DagsterInstance, woken: list[Path]
) -> None:
    result = evaluate(home, instance)
    assert isinstance(result, dg.SkipReason)
    assert not woken
    assert result.skip_message == "Nothing new in RAW for any of 5 topics with a contract."


def test_each_topic_is_in_the_run_of_its_newest_day_that_has_anything_new(
    home: Home, leanops: Leanops, instance: dg.DagsterInstance, tmp_path: Path, woken: list[Path]
) -> None:
    late = tmp_path / "late.ndjson"
    late.write_text('{"message_id": "late", "publish_time": "2025-12-24T18:00:00Z", "payload": {}}')
    for topic in ("orders", "events", "support_chats"):
        leanops("land", topic, EXAMPLES / f"{topic}.ndjson")
    leanops("land", "payments", late)
    requests = evaluate(home, instance)
    assert isinstance(requests, list)
    assert woken == [home.path]
    wanted = {request.partition_key: {key.path[1] for key in request.asset_selection or ()} for request in requests}
    assert wanted == {"2025-12-24": {"payments"}, "2026-01-15": {"orders", "events"}}
    # All layers but RAW, which is drained at a rhythm of its own.
    assert sum(len(request.asset_selection or ()) for request in requests) == 3 * (len(Layer) - 1)


def test_a_topic_that_is_held_back_is_named_with_the_reason(
    home: Home, leanops: Leanops, instance: dg.DagsterInstance
) -> None:
    for topic in ("orders", "support_chats"):
        leanops("land", topic, EXAMPLES / f"{topic}.ndjson")
    assert leanops("pause", "orders", "--reason", "the shop is moving").exit_code == 0
    result = evaluate(home, instance)
    assert isinstance(result, dg.SkipReason)
    assert result.skip_message == (
        "Nothing new in RAW for any of 5 topics with a contract. Held back: orders: orders is paused: the shop is "
        "moving. What lands is kept in RAW until it is resumed. support_chats: no active contract: 6 messages are kept "
        "in RAW until there is one."
    )
    leanops("resume", "orders")
    assert isinstance(evaluate(home, instance), list)


def add_run(instance: dg.DagsterInstance, status: str, *topics: str, job: str = "tick") -> dg.DagsterRun:
    """A run over some topics, or over everything."""
    selected = frozenset(asset_key(Layer.CURATED, topic) for topic in topics) or None
    state = dg.DagsterRunStatus(status)
    return instance.add_run(dg.DagsterRun(job, status=state, asset_selection=selected, remote_job_origin=ORIGIN))


@pytest.mark.parametrize("status", ["QUEUED", "NOT_STARTED", "STARTING", "STARTED", "CANCELING"])
def test_a_topic_that_is_in_a_run_which_is_not_finished_is_not_asked_for_again(
    home: Home, leanops: Leanops, instance: dg.DagsterInstance, status: str
) -> None:
    for topic in ("orders", "events"):
        leanops("land", topic, EXAMPLES / f"{topic}.ndjson")
    add_run(instance, status, "orders", "payments")
    requests = evaluate(home, instance)
    assert isinstance(requests, list)
    assert {key.path[1] for request in requests for key in request.asset_selection or ()} == {"events"}
    add_run(instance, status, "events")
    skipped = evaluate(home, instance)
    assert isinstance(skipped, dg.SkipReason)
    assert skipped.skip_message == "All that is new is in runs that are queued or under way: events, orders."


def test_runs_that_are_finished_and_runs_of_other_jobs_keep_nothing_from_being_asked_for(
    home: Home, leanops: Leanops, instance: dg.DagsterInstance
) -> None:
    leanops("land", "orders", EXAMPLES / "orders.ndjson")
    for status in ("SUCCESS", "FAILURE", "CANCELED"):
        add_run(instance, status, "orders")
    add_run(instance, "STARTED", job="ledger")
    assert isinstance(evaluate(home, instance), list)


def test_a_run_of_everything_has_every_topic_in_it(home: Home, instance: dg.DagsterInstance) -> None:
    manifest = Manifest(topics=(Topic(name="a"), Topic(name="b")))
    assert topics_under_way(instance, manifest) == set()
    add_run(instance, "STARTED")
    assert topics_under_way(instance, manifest) == {"a", "b"}


def test_a_run_whose_process_is_gone_is_ended_and_no_other(instance: dg.DagsterInstance) -> None:
    def says_that_it_is(process: psutil.Process | subprocess.Popen[bytes], *topics: str) -> dg.DagsterRun:
        run = add_run(instance, "STARTED", *topics)
        instance.report_engine_event("Executing steps in process", run, EngineEventData.in_process(process.pid))
        return run

    manifest = Manifest(topics=tuple(Topic(name=name) for name in "abcd"))
    with subprocess.Popen(["sleep", "600"]) as killed:
        lost = says_that_it_is(killed, "a")
        says_that_it_is(psutil.Process(), "b")
        add_run(instance, "STARTED", "c")
        add_run(instance, "QUEUED", "d")
        assert end_lost_runs(instance) == []
        killed.kill()
    assert end_lost_runs(instance) == [lost.run_id]
    ended = instance.get_run_by_id(lost.run_id)
    assert ended is not None
    assert ended.status is dg.DagsterRunStatus.FAILURE
    assert topics_under_way(instance, manifest) == {"b", "c", "d"}


def test_a_process_that_began_after_the_run_had_said_its_id_is_another(instance: dg.DagsterInstance) -> None:
    lost = add_run(instance, "STARTED", "a")
    with subprocess.Popen(["sleep", "600"]) as later:
        said = EngineEventData.in_process(later.pid)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(time, "time", lambda: psutil.Process(later.pid).create_time() - 60)
            instance.report_engine_event("Executing steps in process", lost, said)
        assert end_lost_runs(instance) == [lost.run_id]
        later.kill()


def test_a_topic_that_has_failed_is_left_alone_for_a_while_unless_it_is_named(
    home: Home, leanops: Leanops, instance: dg.DagsterInstance, no_spark: None
) -> None:
    store = SqliteStateStore(home.state)
    leanops("land", "orders", EXAMPLES / "orders.ndjson")
    assert leanops("tick").exit_code == 1
    failed = store.failures()["orders"]
    assert failed.count == 1
    due = failed.last + timedelta(minutes=30)
    reason = f"it failed once, and is tried again by the first tick after {due:%Y-%m-%d %H:%M} UTC."

    skipped = evaluate(home, instance)
    assert isinstance(skipped, dg.SkipReason)
    assert str(skipped.skip_message).endswith(f"Held back: orders: {reason}")
    said = leanops("tick")
    assert (said.exit_code, said.out) == (0, f"Nothing to build.\nskipped orders: {reason}\n")

    assert leanops("tick", "--topic", "orders").exit_code == 1
    assert store.failures()["orders"].count == 2
    assert "it failed 2 times in a row" in leanops("tick").out


def test_a_topic_that_has_failed_is_asked_for_when_its_time_has_come(
    home: Home, leanops: Leanops, instance: dg.DagsterInstance
) -> None:
    leanops("land", "orders", EXAMPLES / "orders.ndjson")
    ago = datetime.now(UTC) - timedelta(minutes=31)
    SqliteStateStore(home.state, lambda: ago).note_failure("orders")
    leanops("land", "events", EXAMPLES / "events.ndjson")
    requests = evaluate(home, instance)
    assert isinstance(requests, list)
    # Who hangs again does not keep the others waiting again.
    kinds = {request.tags["leanops/run"]: (request.asset_selection or [])[0].path[1] for request in requests}
    assert kinds == {"shared": "events", "failed": "orders"}
    leanops("pause", "events")
    SqliteStateStore(home.state, lambda: ago).note_failure("orders")
    assert isinstance(evaluate(home, instance), dg.SkipReason)


def test_only_a_build_of_the_last_layer_makes_a_topics_failures_forgotten(home: Home, leanops: Leanops) -> None:
    store = SqliteStateStore(home.state)
    store.note_failure("orders")
    run(home, "2026-01-15", [asset_key(Layer.STANDARDIZED, "orders")])
    assert set(store.failures()) == {"orders"}
    leanops("pause", "orders")
    tick(home, "2026-01-15", "orders")
    assert set(store.failures()) == {"orders"}
    leanops("resume", "orders")
    tick(home, "2026-01-15", "orders")
    assert store.failures() == {}


def test_topics_share_runs_by_the_setting_and_a_huge_one_is_marked(
    home: Home, leanops: Leanops, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEANOPS_TOPICS_PER_RUN", "2")
    for topic in ("orders", "events", "payments"):
        leanops("land", topic, EXAMPLES / f"{topic}.ndjson")
    requests = evaluate(home, instance)
    assert isinstance(requests, list)
    assert [request.partition_key for request in requests] == ["2026-01-15"] * 2
    assert [request.tags for request in requests] == [{"leanops/run": "shared"}] * 2
    monkeypatch.setattr(packing, "HUGE_BYTES", 1)
    requests = evaluate(home, instance)
    assert isinstance(requests, list)
    assert [request.tags for request in requests] == [{"leanops/run": "huge"}] * 3


def test_what_is_built_is_pending_no_more_and_a_late_arrival_is_pending_on_its_own_day(
    built_home: Home, leanops: Leanops, tmp_path_factory: pytest.TempPathFactory
) -> None:
    catalog = LocalCatalog(built_home).load()
    assert pending(catalog, "user_profiles", contract_of("user_profiles")) is None

    late = tmp_path_factory.mktemp("late") / "late.ndjson"
    late.write_text('{"message_id": "late", "publish_time": "2025-12-24T18:00:00Z", "payload": {}}')
    leanops("land", "user_profiles", late)
    found = pending(catalog, "user_profiles", contract_of("user_profiles"))
    assert found is not None
    assert found.days == {date(2025, 12, 24)}


def test_a_topic_whose_curated_lags_behind_is_pending(built_home: Home) -> None:
    catalog = LocalCatalog(built_home).load()
    catalog.drop_table(table(Layer.CURATED, "payments"))
    found = pending(catalog, "payments", contract_of("payments"))
    assert found is not None
    assert found.days == {date(2026, 1, 15)}
    tick(built_home, "2026-01-15", "payments")
    assert pending(catalog, "payments", contract_of("payments")) is None


def test_a_contract_that_has_changed_is_pending_without_new_messages(built_home: Home) -> None:
    catalog = LocalCatalog(built_home).load()
    contract = contract_of("payments")
    assert pending(catalog, "payments", contract) is None
    document = contract.model_dump(mode="json")
    changed = Contract.model_validate({**document, "payload_columns": document["payload_columns"][:-1]})
    assert changed.version == contract.version
    assert pending(catalog, "payments", changed) is not None


def test_a_day_before_the_first_is_built_with_the_first() -> None:
    work = [Pending("orders", frozenset([date(2024, 12, 31)]), 1, 1)]
    assert planned_runs(work, FIRST_DAY, 40) == [PlannedRun(FIRST_DAY, RunKind.SHARED, work)]


def test_a_message_dated_tomorrow_has_a_partition(
    home: Home, leanops: Leanops, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    ahead = datetime.now(UTC) + timedelta(hours=23)
    line = {"message_id": "ahead", "publish_time": ahead.isoformat(), "payload": {}}
    (tmp_path / "ahead.ndjson").write_text(json.dumps(line))
    assert leanops("land", "orders", tmp_path / "ahead.ndjson").exit_code == 0
    requests = evaluate(home, instance)
    assert isinstance(requests, list)
    days = publish_days(FIRST_DAY)
    assert [days.has_partition_key(str(request.partition_key)) for request in requests] == [True]


def test_a_topic_whose_table_is_damaged_is_left_out_alone(
    home: Home, leanops: Leanops, instance: dg.DagsterInstance
) -> None:
    for topic in ("orders", "events"):
        leanops("land", topic, EXAMPLES / f"{topic}.ndjson")
    for file in (home.warehouse / "iceberg_raw_db" / "orders_staging" / "metadata").glob("*.json"):
        file.unlink()
    sql_catalog._kept.clear()
    requests = evaluate(home, instance)
    assert isinstance(requests, list)
    assert {key.path[1] for request in requests for key in request.asset_selection or ()} == {"events"}
    said = leanops("topics")
    assert said.exit_code == 0
    assert "damaged" in said.out
