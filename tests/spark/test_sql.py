import json
from collections.abc import Callable
from pathlib import Path

import pytest

from leanops.home import Home
from tests.conftest import EXAMPLES, Said

Leanops = Callable[..., Said]


def test_spark_sees_at_once_what_has_just_landed(warm_home: Home, leanops: Leanops) -> None:
    count = "SELECT count(*) AS n FROM iceberg_raw_db.sql_landed_staging"
    for expected in (6, 12):
        assert leanops("land", "sql_landed", EXAMPLES / "orders.ndjson", "--new").exit_code == 0
        assert json.loads(leanops("sql", count, "--json").out) == {"n": expected}


def test_payload_text_is_the_same_through_spark(warm_home: Home, leanops: Leanops, tmp_path: Path) -> None:
    payload = '{"n": 123456789012345678901234567890, "x": 1.10, "s": "Zoë 林 📦"}'
    line = json.dumps({"message_id": "m", "publish_time": "2026-01-14T00:00:00Z", "payload": payload})
    (tmp_path / "one.ndjson").write_text(line)
    leanops("land", "sql_exact", tmp_path / "one.ndjson", "--new")
    said = leanops("sql", "SELECT json_payload FROM iceberg_raw_db.sql_exact_staging", "--json")
    assert json.loads(said.out)["json_payload"] == payload


def test_a_result_is_a_table_for_people(warm_home: Home, leanops: Leanops) -> None:
    said = leanops("sql", "SELECT 1 AS one, CAST(NULL AS STRING) AS nothing, '[red]' AS text")
    assert said.exit_code == 0
    assert "one" in said.out
    assert "[red]" in said.out


def test_a_statement_that_spark_refuses_is_told_in_one_sentence(warm_home: Home, leanops: Leanops) -> None:
    for statement in ("SELEC 1", "SELECT * FROM nowhere", "SELECT 1 / 0", "SELECT CAST('x' AS INT)"):
        said = leanops("sql", statement)
        assert said.exit_code == 1
        assert said.err.startswith("error: Spark could not do this: [")
        assert "stacktrace" not in said.err.lower()
        assert len(said.err.splitlines()) == 1


def test_the_server_can_be_looked_at(spark_home: Home, leanops: Leanops, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEANOPS_HOME", str(spark_home.path))
    said = leanops("spark", "status")
    assert said.exit_code == 0
    assert said.out.startswith("Up for ")


def test_a_home_without_a_server_says_so(home: Home, leanops: Leanops) -> None:
    said = leanops("spark", "status")
    assert said.exit_code == 1
    assert "No Spark server is up" in said.out
    assert leanops("spark", "stop").exit_code == 0
