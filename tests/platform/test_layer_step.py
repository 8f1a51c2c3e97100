"""A step of a layer, as Dagster runs it: gate, lock, days that it was not asked for, rebuilds."""

import json
import threading
from collections.abc import Callable, Collection
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from leanops.home import Home
from leanops.names import Layer, spark_table
from leanops.raw.landing import land_file
from leanops_assets import run_batch
from leanops_assets.instance import dagster_instance
from leanops_assets.specs import asset_key
from leanops_resources.catalog import LocalCatalog
from leanops_resources.state.lease import lease
from leanops_resources.state.sqlite import SqliteStateStore
from leanops_resources.state.store import LOCK_TTL, Lock
from tests.conftest import EXAMPLES, Said, use_home
from tests.platform.test_tick import QUIET, Run, metadata, rows, run, tick

Leanops = Callable[..., Said]


@pytest.fixture
def profile(tmp_path: Path, leanops: Leanops) -> Callable[..., None]:
    """Land one version of a user profile."""

    def land(message_id: str, moment: str, key: str = "user/1", **fields: object) -> None:
        (tmp_path / "one.ndjson").write_text(profile_line(message_id, moment, key, **fields))
        assert leanops("land", "user_profiles", tmp_path / "one.ndjson").exit_code == 0

    return land


def profile_line(message_id: str, moment: str, key: str = "user/1", **fields: object) -> str:
    payload = {"_metadata": {"idempotencyKeyResource": key}, "user_id": key, **fields}
    return json.dumps({"message_id": message_id, "publish_time": moment, "payload": payload})


@pytest.fixture(scope="module")
def built_once(shared_home: Home, spark_home: Home, tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A home in which one user profile is built."""
    file = tmp_path_factory.mktemp("profile") / "one.ndjson"
    file.write_text(profile_line("m1", "2026-01-11T08:00:00Z"))
    land_file(LocalCatalog(shared_home).load(), "user_profiles", file, date(2025, 1, 1))
    with pytest.MonkeyPatch.context() as patch:
        tick(use_home(patch, shared_home, spark_home), "2026-01-11", "user_profiles")
    return shared_home


def materialised_days(home: Home, layer: Layer, topic: str) -> dict[str, int]:
    """Each materialised day with the row count that the UI shows for it last."""
    with dagster_instance(home) as instance:
        records = instance.fetch_materializations(asset_key(layer, topic), limit=100).records
    return {
        str(record.partition_key): int(str(record.asset_materialization.metadata["dagster/partition_row_count"].value))
        for record in reversed(records)
        if record.asset_materialization
    }


def test_a_paused_topic_is_skipped_with_the_reason_and_is_built_when_it_is_resumed(
    warm_home: Home, leanops: Leanops
) -> None:
    leanops("land", "payments", EXAMPLES / "payments.ndjson")
    leanops("pause", "payments", "--reason", "audit")
    built = tick(warm_home, "2026-01-15", "payments")
    assert built.success
    assert [event.asset_key for event in built.get_asset_materialization_events()] == [asset_key(Layer.RAW, "payments")]
    told = {
        event.asset_key: str(event.asset_observation_data.asset_observation.metadata["skipped"].value)
        for event in built.all_events
        if event.event_type is dg.DagsterEventType.ASSET_OBSERVATION
    }
    reason = "payments is paused: audit. What lands is kept in RAW until it is resumed."
    assert told == {asset_key(layer, "payments"): reason for layer in Layer if layer is not Layer.RAW}
    leanops("resume", "payments")
    assert metadata(tick(warm_home, "2026-01-15", "payments"), Layer.CURATED, "payments")["rows_written"] == 3


def test_a_day_that_was_built_is_shown_as_built_when_its_checks_cannot_be_drawn_up(
    warm_home: Home, leanops: Leanops, monkeypatch: pytest.MonkeyPatch
) -> None:
    leanops("land", "payments", EXAMPLES / "payments.ndjson")

    def fail(*_: object) -> None:
        raise ConnectionError("the server went away")

    monkeypatch.setattr(run_batch, "check_days", fail)
    failed = run(warm_home, "2026-01-15", [asset_key(Layer.STANDARDIZED, "payments")], raise_on_error=False)
    assert not failed.success
    assert metadata(failed, Layer.STANDARDIZED, "payments")["rows_written"] == 5


def test_a_step_waits_for_the_run_that_builds_the_same_topic_and_skips_when_it_takes_too_long(
    warm_home: Home, leanops: Leanops, monkeypatch: pytest.MonkeyPatch
) -> None:
    leanops("land", "payments", EXAMPLES / "payments.ndjson")
    store = SqliteStateStore(warm_home.state)
    monkeypatch.setattr(run_batch, "WAIT", timedelta(seconds=0.5))
    with lease(store, "build/payments", "another run", timedelta()):
        skipped = tick(warm_home, "2026-01-15", "payments")
    assert skipped.success
    assert asset_key(Layer.CURATED, "payments") not in {e.asset_key for e in skipped.get_asset_materialization_events()}

    monkeypatch.setattr(run_batch, "WAIT", timedelta(minutes=1))
    is_held, was_asked_for = threading.Event(), threading.Event()

    def hold() -> None:
        with lease(store, "build/payments", "another run", timedelta()):
            is_held.set()
            was_asked_for.wait()

    other = threading.Thread(target=hold)
    other.start()
    is_held.wait()
    acquire = SqliteStateStore.acquire_many

    def ask(asked: SqliteStateStore, names: Collection[str], owner: str, ttl: timedelta = LOCK_TTL) -> dict[str, Lock]:
        got = acquire(asked, names, owner, ttl)
        if not got:
            was_asked_for.set()
        return got

    monkeypatch.setattr(SqliteStateStore, "acquire_many", ask)
    built = tick(warm_home, "2026-01-15", "payments")
    other.join()
    assert was_asked_for.is_set()
    assert metadata(built, Layer.CURATED, "payments")["rows_written"] == 3


def test_every_day_that_a_build_changed_shows_what_it_holds_now(warm_home: Home, profile: Callable[..., None]) -> None:
    profile("m1", "2026-01-10T08:00:00Z", display_name="Ada")
    profile("m2", "2026-01-10T09:00:00Z", key="user/2")
    tick(warm_home, "2026-01-10", "user_profiles")
    profile("m3", "2026-01-12T08:00:00Z", display_name="Ada L.")
    profile("m4", "2025-12-24T08:00:00Z", key="user/3")
    built = tick(warm_home, "2026-01-12", "user_profiles")
    assert metadata(built, Layer.STANDARDIZED, "user_profiles")["rows_updated"] == 1
    expected = {"2025-12-24": 1, "2026-01-10": 1, "2026-01-12": 1}
    assert materialised_days(warm_home, Layer.STANDARDIZED, "user_profiles") == expected


def test_a_rebuild_makes_a_damaged_day_what_raw_says_it_is_and_curated_follows(
    warm_home: Home, profile: Callable[..., None], spark: SparkSession
) -> None:
    for number in (1, 2, 3):
        profile(f"m{number}", f"2026-01-1{number}T08:00:00Z", key=f"user/{number}", display_name=f"n{number}")
    tick(warm_home, "2026-01-13", "user_profiles")
    catalog = LocalCatalog(warm_home).load()
    layers = (Layer.STANDARDIZED, Layer.CURATED)
    before = [rows(catalog, layer, "user_profiles") for layer in layers]

    table = spark_table(Layer.STANDARDIZED, "user_profiles")
    spark.sql(f"DELETE FROM {table} WHERE message_id = 'm2'")
    spark.sql(f"UPDATE {table} SET display_name = 'spoilt' WHERE message_id = 'm1'")
    built = tick(warm_home, "2026-01-13", "user_profiles")
    assert metadata(built, Layer.STANDARDIZED, "user_profiles")["anything_new"] is False

    for day in ("2026-01-11", "2026-01-12"):
        built = rebuild(warm_home, day)
        assert metadata(built, Layer.STANDARDIZED, "user_profiles")["rows_read"] == 1
        assert metadata(built, Layer.CURATED, "user_profiles")["rows_read"] == 1
    assert [rows(catalog, layer, "user_profiles") for layer in layers] == before


def rebuild(home: Home, day: str) -> Run:
    layers = [asset_key(layer, "user_profiles") for layer in (Layer.STANDARDIZED, Layer.CURATED)]
    return run(home, day, layers, {**QUIET, "resources": {"builds": {"config": {"rebuild": True}}}})


def test_a_run_of_a_backfill_makes_its_day_anew(
    built_once: Home, spark_home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_home(monkeypatch, built_once, spark_home)
    layer = asset_key(Layer.STANDARDIZED, "user_profiles")
    filled = run(built_once, "2026-01-11", [layer], tags={"dagster/backfill": "b1"})
    assert metadata(filled, Layer.STANDARDIZED, "user_profiles")["rows_read"] == 1


def test_what_a_topic_has_consumed_can_be_asked_of_the_state_store(built_once: Home) -> None:
    found = SqliteStateStore(built_once.state).checkpoint("standardized/user_profiles", "raw")
    raw = LocalCatalog(built_once).load().load_table(("iceberg_raw_db", "user_profiles_staging")).current_snapshot()
    assert found is not None
    assert raw is not None
    assert found.last_snapshot == raw.snapshot_id
    assert found.last_ingestion_ts is not None
    assert abs(found.last_ingestion_ts - datetime.now(UTC).timestamp()) < 600


def test_leanops_tick_builds_what_is_pending_and_says_what_became_of_it(warm_home: Home, leanops: Leanops) -> None:
    for topic in ("orders", "support_chats"):
        leanops("land", topic, EXAMPLES / f"{topic}.ndjson")
    said = leanops("tick")
    assert said.exit_code == 0, said.err
    lines = {tuple(line.split()[:2]): line.split()[2:] for line in said.out.splitlines() if line.startswith("orders")}
    assert lines["orders", "standardized"][:5] == ["6", "5", "0", "0", "1"]
    assert lines["orders", "curated"][:3] == ["5", "4", "0"]
    assert "skipped support_chats: no active contract: 6 messages are kept in RAW until there is one." in said.out
    again = leanops("tick", "--topic", "orders")
    assert (again.exit_code, again.out) == (0, "Nothing to build.\n")
    unknown = leanops("tick", "--topic", "ordes")
    assert unknown.exit_code == 1
    assert "Did you mean orders?" in unknown.err


def test_a_topic_that_fails_is_named_and_the_others_are_built(warm_home: Home, leanops: Leanops) -> None:
    catalog = LocalCatalog(warm_home).load()
    for topic in ("orders", "payments"):
        leanops("land", topic, EXAMPLES / f"{topic}.ndjson")
    for file in (warm_home.warehouse / "iceberg_raw_db" / "orders_staging").rglob("*.parquet"):
        file.unlink()
    said = leanops("tick")
    assert said.exit_code == 1
    assert "error: orders failed: " in said.err
    assert len(rows(catalog, Layer.CURATED, "payments")) == 3
