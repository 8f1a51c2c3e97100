"""The ledger, the story of a message and the grouped errors, as people and schedules ask for them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from leanops.home import Home
from leanops.names import Layer, spark_table
from leanops.ops.job_run_history import HISTORY
from leanops.ops.reconciliation_log import RECONCILIATION_LOG
from leanops_assets.definitions import defs
from leanops_assets.instance import dagster_instance
from leanops_assets.sensors import run_log
from leanops_assets.specs import asset_key
from leanops_resources.catalog import LocalCatalog
from leanops_resources.dagster_resources import CatalogResource
from tests.conftest import EXAMPLES, Said
from tests.platform.test_tick import QUIET

Leanops = Callable[..., Said]


def run_job(home: Home, name: str, config: dict[str, Any] | None = None) -> dg.ExecuteInProcessResult:
    with dagster_instance(home) as instance:
        job = defs().resolve_job_def(name)
        return job.execute_in_process(instance=instance, run_config={**QUIET, **(config or {})}, raise_on_error=False)


def logged(home: Home, table: tuple[str, str]) -> list[dict[str, Any]]:
    return LocalCatalog(home).load().load_table(table).scan().to_arrow().to_pylist()  # type: ignore[no-any-return]


@pytest.fixture
def built(warm_home: Home, leanops: Leanops) -> Home:
    """Two topics, landed and built by a tick."""
    for topic in ("orders", "payments"):
        assert leanops("land", topic, EXAMPLES / f"{topic}.ndjson").exit_code == 0
    assert leanops("tick").exit_code == 0
    return warm_home


def test_what_is_known_of_rows_and_what_is_found_when_one_is_taken_away(
    built: Home, leanops: Leanops, spark: SparkSession
) -> None:
    # A tick writes down what it did, once, for all its topics.
    history = logged(built, HISTORY)
    assert {(row["topic"], row["layer"], row["outcome"]) for row in history} == {
        (topic, layer, "built") for topic in ("orders", "payments") for layer in ("standardized", "curated")
    }
    assert {(row["topic"], row["rows_read"]) for row in history if row["layer"] == "standardized"} == {
        ("orders", 6),
        ("payments", 5),
    }
    assert len(logged(built, RECONCILIATION_LOG)) == 8
    assert all(row["closed"] and row["looked_at"] == "whole day" for row in logged(built, RECONCILIATION_LOG))
    with dagster_instance(built) as instance:
        skipped = run_log(
            dg.build_sensor_context(instance, resources={"iceberg": CatalogResource(home=str(built.path))})
        )
    assert isinstance(skipped, dg.SkipReason)
    assert skipped.skip_message == "No run has finished."
    assert len(logged(built, HISTORY)) == 4

    # All is well.
    said = leanops("ledger", "--json")
    assert said.exit_code == 0
    lines = [json.loads(line) for line in said.out.splitlines()]
    assert [(line["topic"], line["day"], line["raw"], line["closed"]) for line in lines] == [
        ("orders", "2026-01-14", 3, True),
        ("orders", "2026-01-15", 3, True),
        ("payments", "2026-01-14", 2, True),
        ("payments", "2026-01-15", 3, True),
    ]
    assert "100.00" in leanops("ledger", "--topic", "orders", "--day", "2026-01-15").out

    # The story of a broken row, of one that was corrected, and of a record.
    story = leanops("trace", "pay-0005").out
    assert "stands in Standardized" in story
    assert "broke contract version 2: amount is '49.99999'" in story
    assert "would be healed by a later version of payment/4, in which amount is a DECIMAL(20,4)" in story
    assert "is superseded by ord-0004" in leanops("trace", "ord-0001", "--topic", "orders").out
    of_record = [json.loads(line) for line in leanops("trace", "order/1", "--json").out.splitlines()]
    assert "ord-0004 is the version that counts" in of_record[0]["what"]
    told = run_job(built, "trace", {"ops": {"story": {"config": {"id": "pay-0005"}}}})
    assert told.success
    assert leanops("trace", "nobody").exit_code == 1

    # What is wrong, grouped.
    groups = [json.loads(line) for line in leanops("errors", "--json").out.splitlines()]
    assert [(group["topic"], group["rule"], group["column"], group["count"]) for group in groups] == [
        ("orders", "type", "amount", 1),
        ("payments", "cde", "amount", 1),
        ("payments", "type", "amount", 1),
    ]
    assert groups[0]["samples"] == [{"message_id": "ord-0005", "value": "12abc"}]
    assert groups[0]["owner"] == "team:commerce"
    assert groups[0]["by_day"] == [{"day": "2026-01-15", "count": 1}]
    drawn = run_job(built, "error_groups")
    [event] = drawn.get_asset_materialization_events()
    assert event.materialization.metadata["errors"].value == 3

    # A row is taken away behind the platform's back.
    spark.sql(f"DELETE FROM {spark_table(Layer.STANDARDIZED, 'orders')} WHERE message_id = 'ord-0006'")
    said = leanops("ledger", "--topic", "orders")
    assert said.exit_code == 1
    assert "orders 2026-01-15: ord-0006: no fate" in said.err
    # Every night again, until it is mended.
    nights = [run_job(built, "ledger") for _ in range(2)]
    verdicts = [night.get_asset_check_evaluations()[-1] for night in nights]
    assert [(verdict.passed, verdict.description) for verdict in verdicts] == [(False, "orders")] * 2
    check = dg.AssetCheckKey(asset_key(Layer.STANDARDIZED, "orders"), "ledger_closed")
    with dagster_instance(built) as instance:
        [record] = instance.event_log_storage.get_asset_check_execution_history(check, limit=1)
    assert record.event
    assert record.event.dagster_event
    found = record.event.dagster_event.asset_check_evaluation_data
    assert (found.passed, found.partition) == (False, "2026-01-15")
    assert "ord-0006" in str(found.description)
    assert "no fate" in str(found.metadata["first_of_them"].value)


def documents(leanops: Leanops, *options: str) -> list[tuple[Any, ...]]:
    """What the ledger says of each day as JSON: rows in RAW, in Standardized and in Curated, pending ones, closed."""
    said = leanops("ledger", "--json", *options)
    assert said.exit_code == 0, said.err
    lines = map(json.loads, said.out.splitlines())
    names = ("topic", "day", "raw", "standardized", "curated", "pending", "closed")
    return [tuple(line[name] for name in names) for line in lines]


def test_rows_that_are_not_built_yet_are_pending_and_the_topic_is_not_closed(
    warm_home: Home, leanops: Leanops, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nothing was ever built of one topic, and the other has no contract.
    assert leanops("land", "orders", EXAMPLES / "orders.ndjson").exit_code == 0
    line = {"message_id": "m1", "publish_time": "2026-01-15T08:00:00Z", "ingestion_ts": 1_768_464_000, "payload": {}}
    (tmp_path / "some.ndjson").write_text(json.dumps(line))
    assert leanops("land", "buffered", tmp_path / "some.ndjson", "--new").exit_code == 0
    assert documents(leanops) == [
        ("buffered", "2026-01-15", 1, 0, None, 1, False),
        ("orders", "2026-01-14", 3, 0, None, 3, False),
        ("orders", "2026-01-15", 3, 0, None, 3, False),
    ]
    said = leanops("ledger")
    assert said.exit_code == 0
    assert "buffered: 1 row is pending since 2026-01-15 08:00:00 UTC: it waits for a contract." in said.out
    assert "orders: 6 rows are pending since 20" in said.out
    strict = leanops("ledger", "--strict", "--topic", "orders", "--day", "2026-01-14")
    assert strict.exit_code == 1
    assert "error: orders: 3 rows are pending since 20" in strict.err
    assert "buffered" not in strict.out

    # Its builds fail: Standardized is there, and Curated is not.
    def fail(*_: Any) -> None:
        raise RuntimeError("it cannot be built")

    with monkeypatch.context() as failing:
        failing.setattr("leanops.curated.build.build_curated", fail)
        assert leanops("tick").exit_code == 1
    assert documents(leanops, "--topic", "orders") == [
        ("orders", "2026-01-14", 3, 2, 0, 2, False),
        ("orders", "2026-01-15", 3, 3, 0, 3, False),
    ]
    assert "orders: 5 rows are pending since 20" in (said := leanops("ledger")).out
    assert "its last build failed." in said.out
    # The night says so too, as a warning, on the days that wait; and the log has it.
    night = run_job(warm_home, "ledger")
    verdict = night.get_asset_check_evaluations()[-1]
    assert (verdict.passed, verdict.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert "buffered: 1 row is pending" in str(verdict.description)
    check = dg.AssetCheckKey(asset_key(Layer.CURATED, "orders"), "ledger_closed")
    with dagster_instance(warm_home) as instance:
        [record] = instance.event_log_storage.get_asset_check_execution_history(check, limit=1)
    assert record.event
    assert record.event.dagster_event
    assert "3 rows are pending" in str(record.event.dagster_event.asset_check_evaluation_data.description)
    log = [(row["topic"], row["layer"], row["pending"], row["closed"]) for row in logged(warm_home, RECONCILIATION_LOG)]
    assert ("buffered", "standardized", 1, False) in log
    assert ("orders", "curated", 3, False) in log

    # Then they are built.
    assert leanops("tick", "--topic", "orders").exit_code == 0
    assert [line[-2:] for line in documents(leanops, "--topic", "orders", "--strict")] == [(0, True), (0, True)]


def test_a_topic_that_went_silent_is_told_of(home: Home, leanops: Leanops) -> None:
    for _ in range(2):
        leanops("land", "orders", EXAMPLES / "orders.ndjson")
    verdicts = {each.asset_key.path[1]: each for each in run_job(home, "freshness").get_asset_check_evaluations()}
    assert all(each.passed for each in verdicts.values())
    assert verdicts["orders"].metadata["landings_known"].value == 2
    assert verdicts["payments"].metadata["landings_known"].value == 0
