"""What starts work by itself."""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest

from leanops.contracts.model import Contract
from leanops.contracts.reading import read_contract
from leanops.home import Home
from leanops.names import Layer, table
from leanops.pending import Pending, pending
from leanops.raw.landing import land_file
from leanops_assets.definitions import defs
from leanops_assets.partitions import publish_days
from leanops_assets.sensors import run_requests
from leanops_assets.tick import runs_by_day
from leanops_resources.catalog import LocalCatalog
from leanops_resources.dagster_resources import CatalogResource, StateStoreResource
from leanops_resources.schema_store import LocalSchemaStore, Stage
from tests.conftest import EXAMPLES, PROJECT, Said, use_home
from tests.platform.test_tick import tick

Leanops = Callable[..., Said]
FIRST_DAY = date(2025, 1, 1)
NOON = datetime(2026, 1, 20, 12, tzinfo=UTC)


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


def test_nothing_pending_is_a_skip_with_its_reason(home: Home, instance: dg.DagsterInstance) -> None:
    result = evaluate(home, instance)
    assert isinstance(result, dg.SkipReason)
    assert result.skip_message == "Nothing new in RAW for any of 5 topics with a contract."


def test_each_topic_is_in_the_run_of_its_newest_day_that_has_anything_new(
    home: Home, leanops: Leanops, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    late = tmp_path / "late.ndjson"
    late.write_text('{"message_id": "late", "publish_time": "2025-12-24T18:00:00Z", "payload": {}}')
    for topic in ("orders", "events", "support_chats"):
        leanops("land", topic, EXAMPLES / f"{topic}.ndjson")
    leanops("land", "payments", late)
    requests = evaluate(home, instance)
    assert isinstance(requests, list)
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


def test_the_same_work_is_asked_for_once_an_hour() -> None:
    def key(upto: int, moment: datetime) -> str | None:
        work = [Pending("orders", frozenset([date(2026, 1, 14)]), upto)]
        return run_requests(runs_by_day(work, FIRST_DAY), moment)[0].run_key

    assert key(1, NOON) == key(1, NOON.replace(minute=59)) != key(1, NOON.replace(hour=13))
    assert key(1, NOON) != key(2, NOON)


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
    work = [Pending("orders", frozenset([date(2024, 12, 31)]), 1)]
    assert list(runs_by_day(work, FIRST_DAY)) == [FIRST_DAY]


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
    requests = evaluate(home, instance)
    assert isinstance(requests, list)
    assert {key.path[1] for request in requests for key in request.asset_selection or ()} == {"events"}
    said = leanops("topics")
    assert said.exit_code == 0
    assert "damaged" in said.out
