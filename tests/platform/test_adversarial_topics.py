"""Contracts and payloads that were accepted and then failed or lost values, through the command line in one run."""

import json
from pathlib import Path
from typing import Any

import pytest

from leanops.home import Home
from leanops.landing_file import write_into_place
from leanops.names import Layer, table
from leanops_resources.catalog import LocalCatalog
from tests.platform.test_asking_for_ledgers import Leanops

KEY = {"name": "idempotency_key", "source": "order_id"}
CONTRACTS: dict[str, dict[str, list[dict[str, Any]]]] = {
    "wide": {"envelope_columns": [], "payload_columns": [{"name": f"c{i}", "type": "INT"} for i in range(60)]},
    "twice": {
        "envelope_columns": [KEY, {"name": "order_no", "source": "order_id"}],
        "payload_columns": [{"name": "order_id", "type": "STRING", "cde": True}],
    },
    "shapes": {
        "envelope_columns": [],
        "payload_columns": [
            {"name": "status", "type": "STRING", "default": "new"},
            {"name": "n", "type": "INT"},
            {"name": "user_id", "type": "INT"},
            {"name": "ratio", "type": "DOUBLE"},
            {"name": "due", "type": "DATE", "format": "d MMM yyyy"},
        ],
    },
}
PAYLOADS: dict[str, list[dict[str, Any]]] = {
    "wide": [{f"c{i}": i for i in range(60)}, {f"c{i}": "x" for i in range(60)}],
    "twice": [{"order_id": "a"}, {"order_id": "a"}, {"order_id": "\u3000"}, {"order_id": "\t"}],
    "shapes": [
        {**{f"k{i}": i for i in range(3000)}, "publish_time_day": 1, "publish": {"Time": {"day": 2}}},
        {"user_id": 1, "due": "31 Jan 2026"},
        {"user": {"id": 2}, "Status": "done", "N": 8},
        {"status": {"code": "done"}, "n": {}},
        {"user_id": 1, "user": {"id": 2}},
        {"ratio": "9.007199254740993e15", "due": "31 jan 2026"},
    ],
    "nobody_knows": [{"a": 1}],
}
REFUSED = {
    "overflow_json": {"name": "overflow_json", "type": "STRING"},
    "publish_time_day": {"name": "publish_time_day", "type": "STRING"},
    "two-digit years": {"name": "a", "type": "DATE", "format": "dd.MM.yy"},
    "no year": {"name": "a", "type": "DATE", "format": "dd.MM."},
    "quarters": {"name": "a", "type": "DATE", "format": "yyyy-QQQ"},
}


@pytest.fixture
def schemas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warm_home: Home) -> Path:
    assert warm_home.path.is_dir()
    folder = tmp_path / "schemas"
    folder.mkdir()
    monkeypatch.setenv("LEANOPS_SCHEMAS", str(folder))
    return folder


def rows(home: Home, layer: Layer, topic: str) -> dict[str, dict[str, Any]]:
    held = LocalCatalog(home).load().load_table(table(layer, topic)).scan().to_arrow().to_pylist()
    return {row["message_id"]: row for row in held if row.get("topic_name", topic) == topic}


def rules(home: Home, topic: str) -> dict[str, list[tuple[str, str]]]:
    found = rows(home, Layer.ERRORS, topic)
    return {name: [(each["column"], each["rule"]) for each in row["broken_rules"]] for name, row in found.items()}


def test_what_is_accepted_is_built_and_nothing_is_lost_on_the_way(
    schemas: Path, tmp_path: Path, warm_home: Home, leanops: Leanops
) -> None:
    for column in REFUSED.values():
        file = tmp_path / "refused.json"
        file.write_text(json.dumps({"table_name": "t", "envelope_columns": [], "payload_columns": [column]}))
        said = leanops("schema", "lint", file)
        assert (said.exit_code, "1 problem in 1 of them" in said.out) == (1, True), (column, said)
    for topic, document in CONTRACTS.items():
        file = tmp_path / f"{topic}.json"
        file.write_text(json.dumps({"table_name": topic, **document}))
        assert leanops("schema", "submit", file).exit_code == 0
    assert leanops("schema", "activate").exit_code == 0

    for topic, payloads in PAYLOADS.items():
        lines = (
            {"message_id": f"m{i}", "publish_time": f"2026-01-14T08:00:0{i}Z", "payload": payload}
            for i, payload in enumerate(payloads)
        )
        folder = warm_home.landing / topic
        folder.mkdir()
        write_into_place(folder / "messages.ndjson", "".join(json.dumps(line) + "\n" for line in lines).encode())
    stray = warm_home.landing / ("a" * 64) / "messages.ndjson"
    stray.parent.mkdir()
    stray.write_text("{}\n")
    assert leanops("drain").exit_code == 0
    assert "cannot be a topic's name" in leanops("topics").err

    # What has landed and is not built is pending, and no topic is closed.
    said = leanops("ledger", "--json")
    lines = [json.loads(line) for line in said.out.splitlines()]
    assert said.exit_code == 0
    assert {line["topic"]: line["closed"] for line in lines} == dict.fromkeys(PAYLOADS, False)
    assert leanops("ledger", "--strict").exit_code == 1
    said = leanops("tick")
    assert said.exit_code == 0, said

    assert rows(warm_home, Layer.CURATED, "wide")["m0"]["c59"] == 59
    assert rules(warm_home, "wide") == {"m1": [(f"c{i}", "type") for i in range(60)]}
    twice = rows(warm_home, Layer.CURATED, "twice")
    assert {name: (row["idempotency_key"], row["order_no"], row["order_id"]) for name, row in twice.items()} == {
        "m1": ("a", "a", "a")
    }
    assert rules(warm_home, "twice") == {"m2": [("order_id", "cde")], "m3": [("order_id", "cde")]}
    shapes = rows(warm_home, Layer.CURATED, "shapes")
    assert {name: (row["status"], row["n"], row["user_id"]) for name, row in shapes.items()} == {
        "m0": ("new", None, None),
        "m1": ("new", None, 1),
        "m2": ("done", 8, 2),
    }
    assert rules(warm_home, "shapes") == {
        "m3": [("status", "type"), ("n", "type")],
        "m4": [("user_id", "ambiguous")],
        "m5": [("ratio", "type"), ("due", "type")],
    }
    said = leanops("ledger", "--strict", "--json")
    closed = {line["topic"]: line["closed"] for line in map(json.loads, said.out.splitlines())}
    assert (said.exit_code, closed) == (1, {**dict.fromkeys(CONTRACTS, True), "nobody_knows": False})
    assert leanops("ledger", *(f"--topic={topic}" for topic in CONTRACTS), "--strict").exit_code == 0
    assert "said more than once" in leanops("trace", "m4", "--topic", "shapes").out
