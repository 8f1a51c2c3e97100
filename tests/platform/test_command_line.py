"""`leanops` as a person uses it. What needs Spark is tested beside Spark."""

import json
from collections.abc import Callable
from pathlib import Path

import dagster as dg
import pytest

from leanops.home import Home
from leanops_assets.instance import dagster_instance
from tests.conftest import EXAMPLES, Said

Leanops = Callable[..., Said]
GOOD = '{"message_id": "m-1", "publish_time": "2026-01-14T08:00:00Z", "payload": {}}'


def envelopes(tmp_path: Path, *lines: str) -> Path:
    file = tmp_path / "envelopes.ndjson"
    file.write_text("\n".join(lines))
    return file


def test_help_teaches(leanops: Leanops) -> None:
    assert "every row accounted for" in leanops("--help").out
    for command in ("land", "sql", "topics", "dev", "demo", "spark"):
        said = leanops(command, "--help")
        assert said.exit_code == 0
        assert "Usage: leanops" in said.out


def test_what_landed_is_in_dagster_day_by_day(home: Home, leanops: Leanops) -> None:
    said = leanops("land", "orders", EXAMPLES / "orders.ndjson")
    assert said.out == "6 messages of orders landed in RAW, on 2 days.\n"
    with dagster_instance(home) as instance:
        days = instance.get_materialized_partitions(dg.AssetKey(["raw", "orders"]))
    assert days == {"2026-01-14", "2026-01-15"}


def test_every_bad_line_is_reported_by_number_and_nothing_lands(home: Home, leanops: Leanops, tmp_path: Path) -> None:
    file = envelopes(tmp_path, GOOD, '{"publish_time": "2026-01-14T08:00:00Z", "payload": {}}', "", "nonsense")
    said = leanops("land", "orders", file)
    assert said.exit_code == 1
    assert "line 2: there is no message_id" in said.err
    assert "line 4: " in said.err
    assert "--skip-bad" in said.err
    assert json.loads(leanops("topics", "--json").out.splitlines()[2])["raw_rows"] == 0


def test_the_good_lines_land_if_that_is_asked_for(home: Home, leanops: Leanops, tmp_path: Path) -> None:
    said = leanops("land", "orders", envelopes(tmp_path, GOOD, "nonsense"), "--skip-bad")
    assert said.exit_code == 0
    assert "1 message of orders landed" in said.out
    assert "skipped line 2: " in said.err


def test_a_misspelt_topic_does_not_become_one(home: Home, leanops: Leanops, tmp_path: Path) -> None:
    said = leanops("land", "ordres", envelopes(tmp_path, GOOD))
    assert said.exit_code == 1
    assert "Did you mean orders?" in said.err
    assert leanops("land", "brand_new", envelopes(tmp_path, GOOD), "--new").exit_code == 0
    topics = [json.loads(line) for line in leanops("topics", "--json").out.splitlines()]
    assert next(each for each in topics if each["topic"] == "brand_new")["gate"] == "BUFFERING"


@pytest.mark.parametrize("name", ["../x", "Orders", "a b", "", "x" * 65, "errors"])
def test_an_unsafe_topic_name_is_refused(home: Home, leanops: Leanops, tmp_path: Path, name: str) -> None:
    said = leanops("land", name, envelopes(tmp_path, GOOD), "--new")
    assert said.exit_code == 1
    assert repr(name) in said.err


def test_topics_lists_every_topic(home: Home, leanops: Leanops) -> None:
    said = leanops("topics")
    assert said.exit_code == 0
    for topic in ("device_telemetry", "events", "orders", "payments", "support_chats", "user_profiles"):
        assert topic in said.out


def test_a_broken_contract_is_told_and_fails_the_listing(
    home: Home, leanops: Leanops, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "contracts" / "orders" / "active" / "schema.json"
    broken.parent.mkdir(parents=True)
    broken.write_text('{"table_name": "orders", "versoin": 1, "envelope_columns": [], "payload_columns": []}')
    (tmp_path / "contracts" / "No-Topic").mkdir()
    monkeypatch.setenv("LEANOPS_SCHEMAS", str(tmp_path / "contracts"))
    said = leanops("topics")
    assert said.exit_code == 1
    assert "$.versoin: unknown key. Did you mean 'version'?" in said.err
    assert "No-Topic is no topic" in said.err


def test_a_wrong_setting_is_told_before_anything_happens(
    home: Home, leanops: Leanops, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEANOPS_HOEM", "/elsewhere")
    monkeypatch.setenv("LEANOPS_PORT", "many")
    said = leanops("topics")
    assert said.exit_code == 1
    assert "LEANOPS_HOEM: there is no such setting. Did you mean LEANOPS_HOME?" in said.err
    assert "LEANOPS_PORT: " in said.err
