"""After any life of a contract, every table equals that of a fresh topic with the same RAW and the last contract."""

import json
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.expressions import AlwaysTrue, EqualTo
from pyspark.sql import SparkSession

from leanops.batch.topics import TopicBuild, TopicTables
from leanops.contracts.model import Contract
from leanops.contracts.reading import read_contract
from leanops.home import Home
from leanops.names import Layer, table
from leanops.raw.landing import land_file
from leanops_resources.catalog import LocalCatalog
from tests.accounting import accounts_of_topics
from tests.building import build_topics
from tests.large import have_own_jobs
from tests.platform.test_activation import take_all, taker

Spec = Mapping[str, Any]

KEYS = {"by id": ["_metadata.key"], "by other": ["other"], "by message": []}
COLUMNS: Mapping[str, Spec] = {
    "INT": {"type": "INT"},
    "BIGINT": {"type": "BIGINT"},
    "STRING": {"type": "STRING"},
    "CDE": {"type": "INT", "cde": True},
    "default": {"type": "INT", "default": "7"},
    "key": {"type": "STRING", "source": "_metadata.key"},
    "n again": {"type": "STRING", "source": "n"},
}
LIVES: Mapping[str, Sequence[tuple[str, Mapping[str, str]]]] = {
    "the same, with another version": [("by id", {"n": "CDE"}), ("by id", {"n": "CDE"})],
    "another key": [("by id", {"n": "CDE"}), ("by other", {"n": "CDE"})],
    "another key, and back": [("by id", {"n": "CDE"}), ("by other", {"n": "INT"}), ("by id", {"n": "CDE"})],
    "no key, then one": [("by message", {"n": "INT"}), ("by id", {"n": "INT", "m": "CDE"})],
    "columns that come and go": [
        ("by id", {"n": "INT"}),
        ("by id", {"n": "INT", "m": "CDE"}),
        ("by id", {"m": "default"}),
        ("by id", {"m": "STRING", "n": "CDE"}),
    ],
    "a field that is used twice, and no longer": [
        ("by id", {"n": "INT"}),
        ("by id", {"n": "INT", "record": "key", "text": "n again"}),
        ("by id", {"n": "INT", "text": "n again"}),
    ],
    "types that widen, and change": [
        ("by id", {"n": "INT"}),
        ("by id", {"n": "BIGINT"}),
        ("by other", {"n": "STRING"}),
        ("by other", {"n": "INT", "m": "INT"}),
    ],
}
TIMES = ("first_seen", "topic_name")


def contract(topic: str, version: int, key: str, columns: Mapping[str, str]) -> dict[str, Any]:
    return {
        "table_name": topic,
        "version": version,
        "envelope_columns": [{"name": "idempotency_key", "source": source} for source in KEYS[key]],
        "payload_columns": [{"name": name, **COLUMNS[kind]} for name, kind in columns.items()],
    }


VALUES = ("1", "x", str(2**40), "", None, " ", "3.0")


def messages(part: int) -> list[dict[str, Any]]:
    """Messages about a few records, by either key, with values that some contracts take and others do not."""
    found = []
    for number in range(part * 20, part * 20 + 20):
        payload = {
            "_metadata": {"key": f"k{number % 7}"},
            "other": f"o{number % 11}" if number % 5 else None,
            "n": VALUES[number % len(VALUES)],
            "m": VALUES[(number * 3 + part) % len(VALUES)],
        }
        text: object = payload if number % 9 else "{"
        found.append(
            {
                "message_id": f"m{number if number % 8 else number - 1}",
                "publish_time": f"2026-01-{1 + number * 5 % 4:02}T08:{number % 60:02}:00Z",
                "ingestion_ts": 1,
                "payload": text,
            }
        )
    return found


class Topics:
    """Topics whose contracts are taken in like anybody's, and that are built together after each."""

    def __init__(self, home: Home, schemas: Path, spark: SparkSession) -> None:
        self._home, self._schemas, self._spark = home, schemas, spark
        self._catalog = LocalCatalog(home).load()
        self._contracts: dict[str, Contract] = {}

    def land(self, topic: str, lines: Sequence[Mapping[str, Any]]) -> None:
        file = self._home.path / "messages.ndjson"
        file.write_text("\n".join(map(json.dumps, lines)))
        land_file(self._catalog, topic, file, date(2025, 1, 1))

    def take_in(self, contracts: Sequence[dict[str, Any]]) -> None:
        """Activate contracts, and build their topics."""
        for each in contracts:
            document, topic = json.dumps(each).encode(), each["table_name"]
            place = self._schemas / topic / "pending" / "schema.json"
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(document)
            self._contracts[topic] = read_contract(document, topic, "here")
        taken = take_all(taker(lambda: self._spark))
        assert len(taken) == len(contracts)
        assert not [each for each in taken if each is None or isinstance(each, Exception)]
        builds = [
            TopicBuild(TopicTables(self._catalog, topic), self._contracts[topic])
            for topic in (each["table_name"] for each in contracts)
        ]
        build_topics(self._spark, self._catalog, builds)

    def tables(self, topic: str) -> dict[Layer, Any]:
        """Columns and rows of all tables, but for times and the topic's name; of the errors those that are open."""
        return {layer: self._rows(topic, layer) for layer in Layer if layer is not Layer.RAW}

    def _rows(self, topic: str, layer: Layer) -> tuple[list[str], list[dict[str, Any]]]:
        is_shared = layer in (Layer.PARSE_ERRORS, Layer.ERRORS)
        held = self._catalog.load_table(table(layer, topic))
        own = EqualTo(term="topic_name", value=topic) if is_shared else AlwaysTrue()
        rows = sorted(held.scan(row_filter=own).to_arrow().to_pylist(), key=lambda row: row["landing_seq"])
        shown = [
            {name: value for name, value in row.items() if name not in TIMES} for row in rows if not row.get("closed")
        ]
        return sorted(held.schema().column_names), shown

    def not_closed(self) -> list[str]:
        """The topics whose ledger says nothing, or does not close."""
        found = accounts_of_topics(self._spark, self._catalog, self._contracts)
        return [
            topic
            for topic, accounts in found.items()
            if not accounts or not all(each.closes and each.is_clean for each in accounts)
        ]


@pytest.fixture
def topics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warm_home: Home, spark: SparkSession) -> Topics:
    schemas = tmp_path / "schemas"
    schemas.mkdir()
    monkeypatch.setenv("LEANOPS_SCHEMAS", str(schemas))
    return Topics(warm_home, schemas, spark)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("way", ["small", pytest.param("large", marks=pytest.mark.long)])
def test_a_topic_that_lived_through_contracts_equals_a_fresh_one_with_the_last(
    way: str, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    have_own_jobs(monkeypatch, way == "large")
    old, fresh = ({life: f"{age}_{number}" for number, life in enumerate(LIVES)} for age in ("old", "fresh"))
    for part in range(max(map(len, LIVES.values()))):
        living = [life for life, contracts in LIVES.items() if part < len(contracts)]
        for life in living:
            topics.land(old[life], messages(part))
            topics.land(fresh[life], messages(part))
        topics.take_in([contract(old[life], part + 1, *LIVES[life][part]) for life in living])
    topics.take_in([contract(fresh[life], len(contracts), *contracts[-1]) for life, contracts in LIVES.items()])
    assert topics.not_closed() == []
    for life in LIVES:
        lived, expected = topics.tables(old[life]), topics.tables(fresh[life])
        for layer in expected:
            assert lived[layer] == expected[layer], (life, layer)
        assert expected[Layer.ERRORS][1], life
