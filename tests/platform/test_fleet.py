"""A fleet of 60 topics ticks, while one fails, hangs, crashes its worker, is paused or gets a new contract."""

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from leanops.home import Home
from leanops.landing_file import write_into_place
from leanops.names import Layer, table
from leanops.settings import Settings
from leanops.standardized import job
from leanops.standardized.flatten_plan import FlattenPlan
from leanops.standardized.transform import payload_reader
from leanops_assets.tick import Ticked, tick_once
from leanops_resources.catalog import LocalCatalog
from leanops_resources.state.sqlite import SqliteStateStore
from tests.conftest import Said

Leanops = Callable[..., Said]
TOPICS = [f"fleet_{number:02}" for number in range(60)]
FAILING, HANGING, PAUSED, CRASHING = "fleet_07", "fleet_21", "fleet_33", "fleet_48"
UNDISTURBED = set(TOPICS) - {FAILING, HANGING, PAUSED, CRASHING}
COLUMNS = [{"name": "sku", "type": "STRING", "cde": True}, {"name": "items", "type": "INT"}]


def contract(topic: str, version: int = 1, columns: Iterable[dict[str, Any]] = COLUMNS) -> str:
    envelope = [{"name": "idempotency_key", "source": "_metadata.key"}]
    document = {"table_name": topic, "envelope_columns": envelope, "payload_columns": list(columns)}
    return json.dumps({**document, "version": version})


def envelope(topic: str, number: int) -> str:
    """Of each topic's five messages one is a copy, one corrects another, and one breaks the contract."""
    key, items = {4: (1, "7")}.get(number, (number, "many" if number == 3 else str(number)))
    payload = {"_metadata": {"key": f"{topic}/{key}"}, "sku": "kettle", "items": items, "colour": "red"}
    moment = f"2026-01-15T08:{number:02}:00Z"
    return json.dumps({"message_id": f"{topic}-{number}", "publish_time": moment, "payload": payload})


@pytest.fixture
def fleet(warm_home: Home, leanops: Leanops, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """60 topics with a contract and five messages each, twenty to a run."""
    monkeypatch.setenv("LEANOPS_SCHEMAS", str(tmp_path / "contracts"))
    monkeypatch.setenv("LEANOPS_TOPICS_PER_RUN", "20")
    for topic in TOPICS:
        active = tmp_path / "contracts" / topic / "active" / "schema.json"
        active.parent.mkdir(parents=True)
        active.write_text(contract(topic))
        waiting = warm_home.landing / topic / "messages.ndjson"
        waiting.parent.mkdir()
        write_into_place(waiting, "\n".join(envelope(topic, number) for number in (1, 2, 3, 4, 2)).encode())
    assert leanops("drain").exit_code == 0
    return warm_home


def test_one_that_fails_hangs_crashes_is_paused_or_gets_a_new_contract_leaves_all_others_untouched(
    fleet: Home, leanops: Leanops, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog, store = LocalCatalog(fleet).load(), SqliteStateStore(fleet.state)
    leanops("pause", PAUSED, "--reason", "the shop moves")
    (lost,) = (fleet.warehouse / "iceberg_raw_db" / f"{FAILING}_staging" / "data").rglob("*.parquet")
    lost.rename(tmp_path / "lost.parquet")
    runs, changed = list[int](), list[str]()

    def change_a_contract(topics: int) -> None:
        """While the tick goes on, and before the run that the topic is in."""
        if not runs:
            changed.append(min(UNDISTURBED - built(catalog)))
            uploaded = tmp_path / "contracts" / changed[0] / "pending" / "schema.json"
            uploaded.parent.mkdir()
            uploaded.write_text(contract(changed[0], 2, [*COLUMNS, {"name": "colour", "type": "STRING"}]))
            assert leanops("schema", "activate").exit_code == 0
        runs.append(topics)

    with monkeypatch.context() as limited:
        limited.setattr("leanops.batch.blame.TOPIC_SECONDS", 5)
        limited.setattr(job, "payload_reader", reader_that_fails)
        ticked = tick_once(Settings.load(), advance=change_a_contract)

    assert sorted(runs) == [19, 20, 20]
    assert_that_is_told(ticked)
    assert {topic: failed.count for topic, failed in store.failures().items()} == dict.fromkeys(
        [FAILING, HANGING, CRASHING], 1
    )
    assert built(catalog) == UNDISTURBED

    # What was not built is still pending, each with its reason, and so is the topic whose contract is another now.
    again = leanops("tick")
    assert again.exit_code == 0, again.err
    assert {line.split()[0] for line in again.out.splitlines() if line.startswith("fleet_")} == {*changed}
    assert f"skipped {FAILING}: it failed once" in again.out
    assert f"skipped {HANGING}: it failed once" in again.out
    assert f"skipped {CRASHING}: it failed once" in again.out
    colours = catalog.load_table(table(Layer.CURATED, changed[0])).scan().to_arrow()["colour"].to_pylist()
    assert colours == ["red", "red"]

    (tmp_path / "lost.parquet").rename(lost)
    leanops("resume", PAUSED)
    healed = leanops("tick", *(word for topic in (FAILING, HANGING, PAUSED, CRASHING) for word in ("--topic", topic)))
    assert healed.exit_code == 0, healed.err
    assert built(catalog) == set(TOPICS)
    assert store.failures() == {}
    ledger = leanops("ledger")
    assert ledger.exit_code == 0, ledger.err


def reader_that_fails(plans: Mapping[str, FlattenPlan]) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """Spark's workers do not know this module: only a function inside of one is sent to them whole."""
    read, hanging, crashing = payload_reader(plans), HANGING, CRASHING

    def read_or_fail(messages: pa.RecordBatch) -> pa.RecordBatch:
        import os
        import time

        topic = messages["topic"][0].as_py()
        if topic == hanging:
            time.sleep(600)
        if topic == crashing:
            os._exit(1)
        return read(messages)

    return read_or_fail


def assert_that_is_told(ticked: Ticked) -> None:
    """Which topic it was, and why."""
    assert set(ticked.failed) == {FAILING, HANGING, CRASHING}
    assert "The rows of fleet_07 could not be worked on: FileNotFoundError" in ticked.failed[FAILING]
    assert "The rows of fleet_21 could not be worked on: TimeoutError: A worker took too long" in ticked.failed[HANGING]
    assert "worker" in ticked.failed[CRASHING]
    assert ticked.skipped == {PAUSED: ticked.skipped[PAUSED]}
    assert "the shop moves" in ticked.skipped[PAUSED]
    assert {topic for topic, _ in ticked.built} == UNDISTURBED


def built(catalog: Any) -> set[str]:
    """The topics whose tables hold exactly what they must: two rows of three records, and one error."""
    found = set()
    errors = (
        catalog.load_table(table(Layer.ERRORS, "any")) if catalog.table_exists(table(Layer.ERRORS, "any")) else None
    )
    broken = errors.scan(row_filter="closed IS NULL").to_arrow()["topic_name"].to_pylist() if errors else []
    for topic in TOPICS:
        if catalog.table_exists(table(Layer.CURATED, topic)):
            rows = catalog.load_table(table(Layer.CURATED, topic)).scan().to_arrow().to_pylist()
            items = {row["idempotency_key"]: row["items"] for row in rows}
            if items == {f"{topic}/1": 7, f"{topic}/2": 2} and broken.count(topic) == 1:
                found.add(topic)
    return found
