"""The main job on real Spark and Iceberg, through a real Dagster instance."""

import json
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pyiceberg.catalog import Catalog

from leanops.batch.topics import TopicTables
from leanops.contracts.model import Contract
from leanops.curated.table import ensure_curated_table
from leanops.errors import ContractBreaking
from leanops.home import Home
from leanops.names import Layer, table
from leanops_assets.definitions import defs
from leanops_assets.instance import dagster_instance
from leanops_assets.specs import asset_key
from leanops_resources.catalog import LocalCatalog
from tests.conftest import EXAMPLES, PROJECT, Said

Leanops = Callable[..., Said]
Run = dg.ExecuteInProcessResult
QUIET = {"loggers": {"console": {"config": {"log_level": "ERROR"}}}}


def run(
    home: Home, day: str, assets: Collection[dg.AssetKey], config: Mapping[str, Any] = QUIET, **options: Any
) -> Run:
    """The main job over some assets of a day."""
    with dagster_instance(home) as instance:
        job = defs().resolve_job_def("tick")
        return job.execute_in_process(
            instance=instance, partition_key=day, asset_selection=list(assets), run_config=dict(config), **options
        )


def tick(home: Home, day: str, *topics: str) -> Run:
    known = defs().resolve_asset_graph().get_all_asset_keys()
    return run(home, day, {asset_key(layer, topic) for layer in Layer for topic in topics} & known)


def metadata(run: Run, layer: Layer, topic: str) -> Mapping[str, Any]:
    key = asset_key(layer, topic)
    materialised = [event for event in run.get_asset_materialization_events() if event.asset_key == key]
    # The day that was asked for comes last, after the others that have changed.
    return {name: value.value for name, value in materialised[-1].materialization.metadata.items()}


def rows(catalog: Catalog, layer: Layer, topic: str) -> list[dict[str, Any]]:
    found = catalog.load_table(table(layer, topic)).scan().to_arrow().to_pylist()
    return sorted((row for row in found if row.get("topic_name", topic) == topic), key=lambda row: row["message_id"])


def test_the_samples_become_exactly_what_they_should(warm_home: Home, leanops: Leanops) -> None:
    for topic in ("events", "orders", "payments", "user_profiles"):
        leanops("land", topic, EXAMPLES / f"{topic}.ndjson")
    built = tick(warm_home, "2026-01-15", "events", "orders", "payments", "user_profiles")
    catalog = LocalCatalog(warm_home).load()

    events = {row["message_id"]: row for row in rows(catalog, Layer.STANDARDIZED, "events")}
    assert set(events) == {f"evt-{number:04}" for number in range(7)}
    assert events["evt-0001"]["idempotency_key"] == "event/1"
    assert events["evt-0001"]["correlation_id"] == "c-0"
    assert events["evt-0001"]["event_userid"] == "u-100"
    assert events["evt-0001"]["event_metadata_ipaddress"] == "203.0.113.2"
    assert events["evt-0006"]["event_metadata_screen_width"] == "390"
    assert "_metadata_idempotencykeyresource" not in events["evt-0001"]
    (refused,) = rows(catalog, Layer.PARSE_ERRORS, "events")
    assert refused["message_id"] == "evt-0007"
    assert refused["error_kind"] == "truncated"
    assert refused["json_payload"] == '{"sessionId": "s-4", "event": {'

    orders = {row["idempotency_key"]: row for row in rows(catalog, Layer.CURATED, "orders")}
    assert set(orders) == {"order/1", "order/2", "order/3", "order/5"}
    assert orders["order/1"]["status"] == "shipped"
    assert str(orders["order/1"]["amount"]) == "129.90"
    assert str(orders["order/1"]["placed_on"]) == "2026-01-15"
    (order_error,) = rows(catalog, Layer.ERRORS, "orders")
    assert order_error["broken_rules"] == [{"column": "amount", "rule": "type", "value": "12abc"}]
    assert order_error["closed"] is None
    assert order_error["contract_version"] == 3

    payments = {row["message_id"]: row for row in rows(catalog, Layer.CURATED, "payments")}
    assert str(payments["pay-0003"]["amount"]) == "1234567890123456.7891"
    broken = {row["message_id"]: row["broken_rules"] for row in rows(catalog, Layer.ERRORS, "payments")}
    assert broken == {
        "pay-0004": [{"column": "amount", "rule": "cde", "value": None}],
        "pay-0005": [{"column": "amount", "rule": "type", "value": "49.99999"}],
    }

    profiles = {row["idempotency_key"]: row for row in rows(catalog, Layer.CURATED, "user_profiles")}
    assert profiles["user/100"]["display_name"] == "Ada"
    assert profiles["user/101"]["email"] == "user101@example.com"
    assert profiles["user/102"]["locale"] == "en"

    shown = metadata(built, Layer.STANDARDIZED, "events")
    counts = ("rows_read", "rows_written", "rows_updated", "duplicates", "parse_errors", "superseded")
    assert [shown[name] for name in counts] == [9, 7, 0, 1, 1, 0]
    assert {"event_userid", "event_metadata_ipaddress"} <= set(shown["new_columns"])
    assert shown["dagster/partition_row_count"] == 4
    assert shown["dagster/row_count"] == 7
    assert "SELECT * FROM iceberg_standardized_db.events WHERE to_date(publish_time) = DATE" in shown["query"]
    assert metadata(built, Layer.CURATED, "orders")["errors_by_rule"] == {"amount: type": 1}
    failed = {
        (each.asset_key.path[1], each.check_name) for each in built.get_asset_check_evaluations() if not each.passed
    }
    assert failed == {("payments", "cde_counts"), ("events", "cde_counts")}


def test_landing_the_same_messages_again_changes_no_table_after_raw(warm_home: Home, leanops: Leanops) -> None:
    catalog = LocalCatalog(warm_home).load()
    leanops("land", "device_telemetry", EXAMPLES / "device_telemetry.ndjson")
    tick(warm_home, "2026-01-14", "device_telemetry")
    before = [rows(catalog, layer, "device_telemetry") for layer in (Layer.STANDARDIZED, Layer.CURATED, Layer.ERRORS)]
    leanops("land", "device_telemetry", EXAMPLES / "device_telemetry.ndjson")
    built = tick(warm_home, "2026-01-14", "device_telemetry")
    assert metadata(built, Layer.CURATED, "device_telemetry")["rows_read"] == 0
    after = [rows(catalog, layer, "device_telemetry") for layer in (Layer.STANDARDIZED, Layer.CURATED, Layer.ERRORS)]
    assert after == before
    assert metadata(built, Layer.STANDARDIZED, "device_telemetry")["duplicates"] == 13


def test_a_tick_with_nothing_new_does_not_wake_spark(home: Home, no_spark: None) -> None:
    built = tick(home, "2026-01-14", "orders")
    assert built.success
    assert metadata(built, Layer.STANDARDIZED, "orders")["anything_new"] is False


def test_a_topic_without_a_contract_buffers_in_raw(home: Home, leanops: Leanops, no_spark: None) -> None:
    leanops("land", "support_chats", EXAMPLES / "support_chats.ndjson")
    built = tick(home, "2026-01-14", "support_chats")
    assert [event.asset_key for event in built.get_asset_materialization_events()] == [
        dg.AssetKey(["raw", "support_chats"])
    ]
    assert metadata(built, Layer.RAW, "support_chats")["dagster/partition_row_count"] == 3


def test_a_column_that_leaves_the_contract_stays_in_the_table_and_is_null(
    warm_home: Home, leanops: Leanops, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leanops("land", "orders", EXAMPLES / "orders.ndjson")
    tick(warm_home, "2026-01-15", "orders")
    contract = json.loads((PROJECT / "schemas" / "orders" / "active" / "schema.json").read_text())
    contract["version"] = 4
    contract["payload_columns"] = [each for each in contract["payload_columns"] if each["name"] != "currency"]
    contract["envelope_columns"] = contract["envelope_columns"][:1]
    file = tmp_path / "contracts" / "orders" / "active" / "schema.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(contract))
    monkeypatch.setenv("LEANOPS_SCHEMAS", str(tmp_path / "contracts"))

    tick(warm_home, "2026-01-15", "orders")
    catalog = LocalCatalog(warm_home).load()
    curated = rows(catalog, Layer.CURATED, "orders")
    assert len(curated) == 4
    assert {row["currency"] for row in curated} == {None}
    assert {row["producer"] for row in curated} == {None}
    assert {row["producer"] for row in rows(catalog, Layer.STANDARDIZED, "orders")} == {"shop"}


def test_a_correction_heals_a_broken_record_and_closes_its_error(
    warm_home: Home, leanops: Leanops, tmp_path: Path
) -> None:
    def order(message_id: str, day: int, amount: str) -> str:
        payload = {
            "_metadata": {"idempotencyKeyResource": "order/9"},
            "event_timestamp": f"2026-01-{day}T08:00:00Z",
            "order_id": "A-9",
            "customer_id": "k",
            "status": "placed",
            "amount": amount,
        }
        return json.dumps({"message_id": message_id, "publish_time": f"2026-01-{day}T08:00:00Z", "payload": payload})

    catalog = LocalCatalog(warm_home).load()
    seen = []
    for message_id, day, amount in (("good", 14, "1.00"), ("broken", 15, "1.001"), ("healed", 16, "1.10")):
        (tmp_path / "one.ndjson").write_text(order(message_id, day, amount))
        leanops("land", "orders", tmp_path / "one.ndjson")
        tick(warm_home, f"2026-01-{day}", "orders")
        errors = {row["message_id"]: row["closed"] is None for row in rows(catalog, Layer.ERRORS, "orders")}
        seen.append(([row["message_id"] for row in rows(catalog, Layer.CURATED, "orders")], errors))
    assert seen == [(["good"], {}), ([], {"broken": True}), (["healed"], {"broken": False})]


def test_one_asset_of_a_step_can_be_asked_for_alone(home: Home, no_spark: None) -> None:
    alone = run(home, "2026-01-14", [asset_key(Layer.PARSE_ERRORS, "orders")])
    assert [event.asset_key.path for event in alone.get_asset_materialization_events()] == [
        ["standardized", "orders", "parse_errors"]
    ]
    assert not alone.get_asset_check_evaluations()


def test_a_type_that_grows_is_widened_and_one_that_changes_is_refused_before_any_value_is(home: Home) -> None:
    def contract(item_count: str, amount: str) -> Contract:
        document = json.loads((PROJECT / "schemas" / "orders" / "active" / "schema.json").read_text())
        for column in document["payload_columns"]:
            column["type"] = {"item_count": item_count, "amount": amount}.get(column["name"], column["type"])
        return Contract.model_validate(document)

    catalog = LocalCatalog(home).load()
    ensure_curated_table(TopicTables(catalog, "orders"), contract("INT", "DECIMAL(18,2)"))
    ensure_curated_table(TopicTables(catalog, "orders"), contract("BIGINT", "DECIMAL(20,2)"))
    schema = catalog.load_table(table(Layer.CURATED, "orders")).schema()
    assert str(schema.find_type("item_count")) == "long"
    assert str(schema.find_type("amount")) == "decimal(20, 2)"
    for item_count, amount in (("DOUBLE", "DECIMAL(20,2)"), ("INT", "DECIMAL(20,2)"), ("BIGINT", "DECIMAL(22,4)")):
        with pytest.raises(ContractBreaking, match="Submit it as a new version"):
            ensure_curated_table(TopicTables(catalog, "orders"), contract(item_count, amount))
    assert catalog.load_table(table(Layer.CURATED, "orders")).schema() == schema
