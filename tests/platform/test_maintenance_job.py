"""Maintenance through Dagster and the command line: over all tables, whatever is wrong with one of them."""

import json
import os
import socket
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from leanops import maintenance
from leanops.home import Home
from leanops.names import Layer, table
from leanops_assets.definitions import defs
from leanops_assets.ops import maintenance as job
from leanops_resources import sql_catalog
from leanops_resources.catalog import LocalCatalog
from leanops_resources.state.sqlite import SqliteStateStore
from tests.conftest import EXAMPLES, Said

Leanops = Callable[..., Said]


@pytest.fixture
def built(warm_home: Home, leanops: Leanops, monkeypatch: pytest.MonkeyPatch) -> Home:
    """Two topics, built, with more snapshots than are kept from now on."""
    for _ in range(2):
        for topic in ("orders", "payments"):
            leanops("land", topic, EXAMPLES / f"{topic}.ndjson")
        assert leanops("tick").exit_code == 0
    monkeypatch.setattr(maintenance, "SNAPSHOTS", 1)
    monkeypatch.setattr(maintenance, "YOUNG", timedelta(0))
    monkeypatch.setattr(maintenance, "MANY_FILES", 2)
    return warm_home


def told(said: Said) -> dict[str, dict[str, Any]]:
    rows = [json.loads(line) for line in said.out.splitlines()]
    return {row["table"]: row for row in rows}


def test_every_table_is_maintained_once_and_the_ledger_still_closes(built: Home, leanops: Leanops) -> None:
    done = told(leanops("maintain", "--json"))
    for topic in ("orders", "payments"):
        assert done[f"iceberg_raw_db.{topic}_staging"]["files_compacted"] >= 2
    assert done["iceberg_curated_db.orders"]["snapshots_expired"] > 0
    assert not any(row["failed"] or row["said"] for row in done.values())
    again = leanops("maintain")
    # What was compacted a moment ago may be expired now.
    assert "files_compacted" not in again.out
    assert leanops("ledger").exit_code == 0
    assert leanops("tick").exit_code == 0


def test_a_topic_that_somebody_works_on_and_a_table_that_is_damaged_leave_the_others_alone(
    built: Home, leanops: Leanops, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "PATIENCE", timedelta(0))
    held = LocalCatalog(built).load().load_table(table(Layer.CURATED, "payments"))
    Path(held.metadata_location.removeprefix("file://")).unlink()
    sql_catalog._kept.clear()
    store = SqliteStateStore(built.state)
    lock = store.acquire("build/orders", f"{socket.gethostname()}/{os.getpid()}/run 7")
    assert lock
    said = leanops("maintain", "--json")
    store.release(lock)
    assert said.exit_code == 1
    done = told(said)
    for name in ("iceberg_standardized_db.orders", "iceberg_curated_db.orders"):
        assert done[name]["said"] == "run 7 is at work on build/orders and has been for a while."
        assert not done[name]["failed"]
    # What must stay of Standardized is told by Curated.
    damaged = ["iceberg_curated_db.payments", "iceberg_standardized_db.payments"]
    assert sorted(name for name, row in done.items() if row["failed"]) == damaged
    assert all("FileNotFoundError" in done[name]["said"] for name in damaged)
    for name in ("iceberg_raw_db.orders_staging", "iceberg_raw_db.payments_staging"):
        assert done[name]["files_compacted"] >= 2


def test_only_the_tables_of_topics_that_are_named_are_maintained(built: Home, leanops: Leanops) -> None:
    assert set(told(leanops("maintain", "--topic", "orders", "--json"))) <= {
        ".".join(table(layer, "orders")) for layer in (Layer.RAW, Layer.STANDARDIZED, Layer.CURATED)
    }
    said = leanops("maintain", "--topic", "ordres")
    assert (said.exit_code, "Did you mean orders?" in said.err) == (1, True)


def test_what_the_schedules_ask_for_is_what_the_job_takes(home: Home) -> None:
    definitions = defs()
    schedules = [each for each in definitions.schedules or () if isinstance(each, dg.ScheduleDefinition)]
    asked = {}
    for each in schedules:
        data = each.evaluate_tick(dg.build_schedule_context())
        (request,) = data.run_requests or ()
        dg.validate_run_config(definitions.resolve_job_def(each.job_name), dict(request.run_config))
        asked[each.name] = request.run_config
    assert asked["maintenance_nightly"] == {}
    assert asked["maintenance_weekly"] == {"ops": {"maintain": {"config": {"weekly": True}}}}
