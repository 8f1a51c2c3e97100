"""Draining through Dagster: the job, its sensor, the asset of one topic, and what the UI is told."""

import json
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from leanops.home import Home
from leanops.ingestion.breaker import Breaker, Circuit
from leanops.names import Layer, table
from leanops.tables import find_table
from leanops_assets.definitions import defs
from leanops_assets.instance import dagster_instance
from leanops_assets.raw.queue_ledger import QueueBooks
from leanops_assets.specs import asset_key
from leanops_resources import sql_catalog
from leanops_resources.dagster_resources import IntakeResource, StateStoreResource
from tests.conftest import EXAMPLES, Said
from tests.draining import Landing, envelope

Leanops = Callable[..., Said]
BAD = b'{"message_id": "b1", "publish_time": "never", "payload": {}}'


@pytest.fixture
def landing(home: Home) -> Landing:
    return Landing(home)


@pytest.fixture
def instance(home: Home) -> Iterator[dg.DagsterInstance]:
    with dagster_instance(home) as made:
        yield made


def drop_example(landing: Landing, topic: str) -> int:
    lines = (EXAMPLES / f"{topic}.ndjson").read_bytes().splitlines()
    landing.drop(topic, lines)
    return len(lines)


def evaluated(instance: dg.DagsterInstance, topic: str, check: str) -> dict[str | None, tuple[bool, dict[str, object]]]:
    """The last evaluations of a check of RAW, by day: whether it passed, and what it shows."""
    key = dg.AssetCheckKey(asset_key(Layer.RAW, topic), check)
    found: dict[str | None, tuple[bool, dict[str, object]]] = {}
    for record in instance.event_log_storage.get_asset_check_execution_history(key, limit=100):
        event = record.event.dagster_event if record.event else None
        if event:
            said = event.asset_check_evaluation_data
            values = {name: value.value for name, value in said.metadata.items()}
            found.setdefault(said.partition, (said.passed, values))
    return found


def materialised(instance: dg.DagsterInstance, topic: str) -> set[str]:
    return instance.get_materialized_partitions(asset_key(Layer.RAW, topic))


def test_a_drain_lands_what_waits_and_tells_of_every_topic_and_day(
    landing: Landing, leanops: Leanops, instance: dg.DagsterInstance
) -> None:
    count = drop_example(landing, "orders")
    landing.drop("brand_new", [envelope("n1", date(2026, 1, 1)), BAD])
    said = leanops("drain", "--json")
    assert (said.exit_code, said.err) == (0, "")
    rows = {row["topic"]: row for row in map(json.loads, said.out.splitlines())}
    assert (rows["orders"]["landed"], rows["orders"]["days"], rows["orders"]["dead_letters"]) == (count, 2, 0)
    assert (rows["brand_new"]["landed"], rows["brand_new"]["dead_letters"]) == (1, 1)

    assert materialised(instance, "orders") == {"2026-01-14", "2026-01-15"}
    assert materialised(instance, "brand_new") == {"2026-01-01"}
    for passed, numbers in evaluated(instance, "orders", "queue_closed").values():
        assert passed
        assert numbers == {
            "received": 3,
            "raw": 3,
            "dead_letters": 0,
            "in_flight": 0,
            "accounted_percent": 100.0,
            "closed": True,
        }
    closed = evaluated(instance, "brand_new", "queue_closed")
    assert sorted(numbers["dead_letters"] for _, numbers in closed.values()) == [0, 1]
    assert all(passed for passed, _ in closed.values())
    assert list(evaluated(instance, "brand_new", "circuit_closed").values()) == [
        (True, {"circuit": "CLOSED", "good_in_window": 1, "failed_in_window": 1})
    ] * len(closed)
    assert leanops("drain").out == "Nothing waits.\n"


def test_a_topic_that_cannot_be_drained_fails_the_run_after_the_others_are_done(
    landing: Landing, leanops: Leanops
) -> None:
    drop_example(landing, "orders")
    landing.drop("payments", [envelope("p1")])
    raw = landing.catalog.load_table(table(Layer.RAW, "orders")) if landing.drain() else None
    assert raw
    # Its metadata is damaged behind the platform's back.
    Path(raw.metadata_location.removeprefix("file://")).write_text("not JSON")
    sql_catalog._kept.clear()
    drop_example(landing, "orders")
    landing.drop("payments", [envelope("p2")])
    said = leanops("drain", "--json")
    assert said.exit_code == 1
    rows = {row["topic"]: row for row in map(json.loads, said.out.splitlines())}
    assert rows["orders"]["failed"]
    assert rows["orders"]["said"]
    assert (rows["payments"]["failed"], rows["payments"]["landed"]) == (False, 1)
    assert landing.left() == ["orders/messages.ndjson"]


def test_what_lands_while_topics_are_told_of_is_no_finding(
    landing: Landing, leanops: Leanops, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = QueueBooks.of.__func__  # type: ignore[attr-defined]  # a class method, as a function

    def read_and_land_more(*arguments: Any) -> QueueBooks:
        books: QueueBooks = read(QueueBooks, *arguments)
        if not landing.raw("orders")["a2"]:
            landing.drop("orders", [envelope("a2")])
            landing.drain()
        return books

    monkeypatch.setattr(QueueBooks, "of", read_and_land_more)
    landing.drop("orders", [envelope("a1")])
    landing.drop("payments", [envelope("p1")])
    assert leanops("drain").exit_code == 0
    for topic, rows in (("orders", 2), ("payments", 1)):
        ((passed, numbers),) = evaluated(instance, topic, "queue_closed").values()
        assert passed
        assert (numbers["received"], numbers["raw"]) == (rows, rows)


def test_a_row_that_is_missing_is_told_of_among_many_topics(
    landing: Landing, leanops: Leanops, instance: dg.DagsterInstance
) -> None:
    for number in (1, 2):
        for topic in ("orders", "payments"):
            landing.drop(topic, [envelope(f"{topic}-{number}")])
        if number == 1:
            landing.drain()
            landing.catalog.load_table(table(Layer.RAW, "orders")).delete("message_id = 'orders-1'")
    assert leanops("drain").exit_code == 0
    ((passed, numbers),) = evaluated(instance, "orders", "queue_closed").values()
    assert (passed, numbers["received"], numbers["raw"]) == (False, 2, 1)
    ((passed, numbers),) = evaluated(instance, "payments", "queue_closed").values()
    assert (passed, numbers["received"], numbers["raw"]) == (True, 2, 2)


def test_materialising_raw_drains_its_topic_and_no_other(landing: Landing, instance: dg.DagsterInstance) -> None:
    drop_example(landing, "orders")
    drop_example(landing, "payments")
    run = (
        defs()
        .resolve_job_def("tick")
        .execute_in_process(
            instance=instance, partition_key="2026-01-14", asset_selection=[asset_key(Layer.RAW, "orders")]
        )
    )
    assert run.success
    assert materialised(instance, "orders") == {"2026-01-14", "2026-01-15"}
    assert set(evaluated(instance, "orders", "queue_closed")) == {"2026-01-14", "2026-01-15"}
    assert set(evaluated(instance, "orders", "circuit_closed")) == {"2026-01-14", "2026-01-15"}
    assert landing.left() == ["payments/messages.ndjson"]
    assert find_table(landing.catalog, table(Layer.RAW, "payments")) is None


def test_the_sensor_asks_for_a_drain_when_anything_waits(landing: Landing, instance: dg.DagsterInstance) -> None:
    home = str(landing.home.path)

    def evaluate() -> dg.RunRequest | dg.SkipReason:
        resources = {"state": StateStoreResource(home=home), "intake": IntakeResource(home=home)}
        context = dg.build_sensor_context(instance=instance, resources=resources)
        result = defs().resolve_sensor_def("drain")(context)
        assert isinstance(result, dg.RunRequest | dg.SkipReason)
        return result

    skipped = evaluate()
    assert isinstance(skipped, dg.SkipReason)
    assert skipped.skip_message == f"Nothing waits in {landing.home.landing}."
    landing.drop("orders", [envelope("a1")])
    assert isinstance(evaluate(), dg.RunRequest)
    landing.store.save_breaker("orders", Breaker(Circuit.OPEN, opened=landing.now(), reason="Most of it failed."))
    skipped = evaluate()
    assert isinstance(skipped, dg.SkipReason)
    assert "Held back by their circuit: orders." in str(skipped.skip_message)
    landing.drop("payments", [envelope("p1")])
    assert isinstance(evaluate(), dg.RunRequest)
    instance.create_run_for_job(defs().resolve_job_def("drain"))
    skipped = evaluate()
    assert isinstance(skipped, dg.SkipReason)
    assert skipped.skip_message == "A drain is under way."
