"""Proposing a contract from what has landed, on real Spark."""

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from leanops.batch.isolation import Jobs
from leanops.batch.topics import TopicBuild, TopicTables, built_or_raised
from leanops.contracts.model import Contract
from leanops.contracts.proposal import forms_to_count, propose
from leanops.contracts.reading import read_contract
from leanops.curated.binding import bound_columns
from leanops.curated.rehearsal import BROKEN, validated_rows
from leanops.curated.validation import Binding
from leanops.home import Home
from leanops.names import Layer, table
from leanops.raw.landing import land_file
from leanops.raw.profile import SAMPLE, profile_raw
from leanops.slices import Slice
from leanops.standardized.build import build_standardized
from leanops.standardized.table import flat_columns
from leanops_resources.catalog import LocalCatalog
from tests.building import standardize
from tests.cases.casts import CASES
from tests.conftest import EXAMPLES, PROJECT, Said, use_home
from tests.unit.test_proposal import profiled

Leanops = Callable[..., Said]
Propose = Callable[..., tuple[Contract, str]]
SAMPLES = sorted(path.stem for path in EXAMPLES.glob("*.ndjson"))


@pytest.fixture
def used_home(shared_home: Home, spark_home: Home, monkeypatch: pytest.MonkeyPatch) -> Home:
    """The home of all tests here, and this process uses it."""
    return use_home(monkeypatch, shared_home, spark_home)


@pytest.fixture(scope="module")
def catalog(shared_home: Home) -> Catalog:
    return LocalCatalog(shared_home).load()


@pytest.fixture
def schemas(used_home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of contracts with none in it yet."""
    folder = tmp_path / "contracts"
    folder.mkdir()
    monkeypatch.setenv("LEANOPS_SCHEMAS", str(folder))
    return folder


@pytest.fixture
def land(used_home: Home, leanops: Leanops, tmp_path: Path) -> Callable[..., None]:
    """Land payloads, one or more a day from the first of January on."""

    def call(topic: str, payloads: Iterable[Any], a_day: int = 1) -> None:
        file = tmp_path / "payloads.ndjson"
        lines = (
            {"message_id": f"m{i}", "publish_time": f"2026-01-{1 + i // a_day:02}T08:00:00Z", "payload": payload}
            for i, payload in enumerate(payloads)
        )
        file.write_text("\n".join(map(json.dumps, lines)))
        said = leanops("land", "--new", topic, file)
        assert said.exit_code == 0, said

    return call


@pytest.fixture
def proposed(leanops: Leanops) -> Propose:
    """The contract that the command line proposes, which passes the linter, and its notes."""

    def call(topic: str, *options: object) -> tuple[Contract, str]:
        said = leanops("schema", "propose", topic, *options)
        assert said.exit_code == 0, said
        return read_contract(said.out.encode(), topic, "the proposal"), said.err

    return call


def misfits(spark: SparkSession, catalog: Catalog, contracts: Mapping[str, Contract]) -> list[tuple[str, str, str]]:
    """The values of topics' Standardized, built by their contracts, that do not fit the contracts' types."""
    builds = [TopicBuild(TopicTables(catalog, topic), contract) for topic, contract in contracts.items()]
    for outcome in build_standardized(Jobs(lambda: spark), catalog, builds).values():
        built_or_raised(outcome)
    found: list[tuple[str, str, str]] = []
    for topic, contract in contracts.items():
        held = standardized(catalog, topic)
        binding = Binding(contract, bound_columns(contract, flat_columns(held.schema())))
        rules = validated_rows(spark, topic, held, Slice(0, 2**62), binding).select(F.inline(BROKEN))
        found += [(topic, row["column"], row["value"]) for row in rules.where("rule = 'type'").collect()]
    return found


def standardized(catalog: Catalog, topic: str) -> Table:
    return catalog.load_table(table(Layer.STANDARDIZED, topic))


def types(contract: Contract) -> dict[str, str]:
    return {column.name: str(column.type) for column in contract.payload_columns}


def test_every_value_of_the_samples_fits_what_is_proposed_with_and_without_an_active_contract(
    shared_spark: SparkSession, catalog: Catalog
) -> None:
    active: dict[str, Contract | None] = {}
    for topic in SAMPLES:
        land_file(catalog, topic, EXAMPLES / f"{topic}.ndjson", date(2025, 1, 1))
        shipped = PROJECT / "schemas" / topic / "active" / "schema.json"
        active[topic] = read_contract(shipped.read_bytes(), topic, str(shipped)) if shipped.exists() else None
    assert any(active.values())
    for known in (dict.fromkeys(SAMPLES), {topic: contract for topic, contract in active.items() if contract}):
        contracts = {}
        for topic, before in known.items():
            proposal = propose(topic, profile_raw(shared_spark, catalog, topic, forms_to_count(before)), before)
            contracts[topic] = contract = read_contract(proposal.text.encode(), topic, "the proposal")
            assert contract.version == (before.version + 1 if before else 1), topic
            assert set(before.column_names if before else ()) <= set(contract.column_names), topic
        assert misfits(shared_spark, catalog, contracts) == []


def test_what_the_samples_of_orders_propose(
    leanops: Leanops, schemas: Path, warm_home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    # In a home of its own: the same samples have landed in the shared one.
    monkeypatch.setenv("LEANOPS_SCHEMAS", str(schemas))
    assert leanops("land", "--new", "orders", EXAMPLES / "orders.ndjson").exit_code == 0
    said = leanops("schema", "propose", "orders")
    document = json.loads(said.out)
    columns = {column["name"]: column for column in document["payload_columns"]}
    assert list(document) == ["table_name", "version", "envelope_columns", "payload_columns"]
    assert document["envelope_columns"] == [
        {"name": "idempotency_key", "source": "_metadata.idempotencyKeyResource"},
        {"name": "correlation_id", "source": "_metadata.correlationId"},
        {"name": "producer", "source": "_metadata.producer"},
    ]
    assert {name: column["type"] for name, column in columns.items()} == {
        "event_timestamp": "TIMESTAMP",
        "order_id": "STRING",
        "customer_id": "STRING",
        "status": "STRING",
        "amount": "STRING",
        "currency": "STRING",
        "item_count": "INT",
        "shipping_country": "STRING",
        "placed_on": "DATE",
        "is_gift": "BOOLEAN",
        "items": "STRING",
        "coupon": "STRING",
    }
    assert columns["amount"]["description"] == (
        "Proposed: missing in 0 of 6 messages (0.0%); since 2026-01-14; such as “129.9”, “12abc”, “1999.0”; "
        "5 of 6 values would fit DECIMAL(18,2); a candidate for cde."
    )
    assert said.err == ""


def test_spark_counts_what_the_types_themselves_say_of_every_text(
    shared_spark: SparkSession, catalog: Catalog, land: Callable[..., None]
) -> None:
    texts = sorted(
        {text for _, _, text, _ in CASES} | {"1e-38", "1e37", "123e-2", "0.10e+1", "-12.340", "00", "9" * 401}
    )
    land("casts", [{f"f{i}": text for i, text in enumerate(texts)}])
    found = profile_raw(shared_spark, catalog, "casts", forms_to_count(None)).fields
    for text, field in zip(texts, found, strict=True):
        expected = profiled(field.path, [text])
        facts = ("values", "blanks", "fitting", "decimals", "whole_digits", "scale")
        assert {name: getattr(field, name) for name in facts} == {name: getattr(expected, name) for name in facts}, text


CORPUS = [
    {
        "_metadata": {"idempotencyKeyResource": "r/1"},
        "small": 1,
        "large": 2147483648,
        "huge": 123456789012345678901234567890,
        "fine": 0.1234567890123456789012345,
        "price": 12,
        "mixed": 1,
        "day": "2026-01-01",
        "moment": "2026-01-01T08:00:00Z",
        "either": "2026-01-01",
        "is_it": True,
        "person": {"name": "Ada", "address": {"zip": "01067"}},
        "tags": ["a", "b"],
        "nothing": None,
        "sometimes": None,
        "power": 1e-60,
        "exponent": 1e25,
    },
    {
        "_metadata": {"idempotencyKeyResource": "r/2"},
        "small": -5,
        "large": 3,
        "huge": 1,
        "fine": 7,
        "price": 1234567.89,
        "mixed": "one",
        "day": "2026-02-28",
        "moment": "2026-01-02 08:00:00.5",
        "either": "2026-01-02T08:00:00Z",
        "is_it": False,
        "person": {"name": " ", "address": {"zip": "10115"}},
        "tags": [],
        "nothing": None,
        "sometimes": 1,
        "power": 2,
        "exponent": 5,
        "late": "y",
        "_hidden": 1,
    },
]


def test_a_corpus_of_everything_is_typed_as_narrowly_as_it_can_be(
    shared_spark: SparkSession, catalog: Catalog, schemas: Path, land: Callable[..., None], proposed: Propose
) -> None:
    # Python would write its own numbers.
    exact = [json.dumps(each).replace("0.12345678901234568", "0.1234567890123456789012345") for each in CORPUS]
    land("corpus", [*exact, "[1]", "{"])
    contract, notes = proposed("corpus")
    assert types(contract) == {
        "small": "INT",
        "large": "BIGINT",
        "huge": "DECIMAL(38,0)",
        "fine": "DECIMAL(38,26)",
        "price": "DECIMAL(18,2)",
        "mixed": "STRING",
        "day": "DATE",
        "moment": "TIMESTAMP",
        "either": "STRING",
        "is_it": "BOOLEAN",
        "person_name": "STRING",
        "person_address_zip": "STRING",
        "tags": "STRING",
        "power": "DOUBLE",
        "exponent": "DECIMAL(38,0)",
        "sometimes": "INT",
        "late": "STRING",
    }
    said = {column.name: column.description or "" for column in contract.payload_columns}
    assert said["late"] == "Proposed: missing in 1 of 2 messages (50.0%); since 2026-01-02; such as “y”."
    assert "blank in 1" in said["person_name"]
    assert "candidate" not in said["person_name"]
    assert "a candidate for cde" in said["person_address_zip"]
    assert not any(column.cde for column in contract.payload_columns)
    assert misfits(shared_spark, catalog, {"corpus": contract}) == []
    assert notes.splitlines() == [
        "note: 2 payloads are not one JSON object and were left out.",
        'note: Left out, because a contract cannot have these columns, by name, number or path: ["_hidden"] (_hidden).',
    ]


def test_the_formats_of_the_active_contract_are_asked_of_every_value(
    schemas: Path, land: Callable[..., None], proposed: Propose
) -> None:
    columns = [
        {"name": "day", "type": "DATE", "format": "dd.MM.yyyy", "cde": True},
        {"name": "moment", "type": "TIMESTAMP", "format": "epoch_seconds"},
        {"name": "other", "type": "DATE", "format": "yyyyMMdd", "default": "2026-01-01"},
    ]
    active = {"table_name": "formats", "version": 4, "envelope_columns": [], "payload_columns": columns}
    file = schemas / "formats" / "active" / "schema.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(active))
    payload = {"day": "31.01.2026", "moment": 1704103200, "other": "20260131", "new": 1}
    land("formats", [payload, {**payload, "other": "31"}])
    contract, notes = proposed("formats")
    said = [{**column, "description": None} for column in contract.model_dump(mode="json")["payload_columns"]]
    was = [{"source": None, "cde": False, "default": None, "description": None, **column} for column in columns]
    assert contract.version == 5
    assert said[:2] == was[:2]
    assert (said[2]["type"], said[2]["format"], said[2]["default"]) == ("INT", None, None)
    assert (said[3]["name"], said[3]["type"]) == ("new", "INT")
    assert "note: other: 1 of 2 values do not fit DATE as yyyyMMdd; it is INT now." in notes


def test_only_the_last_days_are_looked_at_and_the_drift_log_tells_of_the_days_before(
    shared_spark: SparkSession,
    catalog: Catalog,
    schemas: Path,
    land: Callable[..., None],
    proposed: Propose,
) -> None:
    land("drifting", [{"a": "text", "old": 1}, {"a": 1}, {"a": 2.5}])
    assert types(proposed("drifting")[0]) == {"a": "STRING", "old": "INT"}
    assert types(proposed("drifting", "--days", 2)[0]) == {"a": "DECIMAL(18,2)"}
    assert types(proposed("drifting", "--days", 1000)[0]) == {"a": "STRING", "old": "INT"}

    standardize(shared_spark, catalog, "drifting", proposed("drifting")[0])
    recent, _ = proposed("drifting", "--days", 1)
    assert types(recent) == {"a": "DECIMAL(18,2)", "old": "STRING"}
    assert "missing in 1 of 1 messages (100.0%); since 2" in (recent.payload_columns[1].description or "")


def test_a_large_topic_is_read_in_parts_and_its_late_fields_are_found(
    shared_spark: SparkSession, catalog: Catalog, land: Callable[..., None]
) -> None:
    late = {SAMPLE + 10: {"b": 2}, SAMPLE + 20: {"c": "x"}}
    land("large", ({"a": i, **late.get(i, {})} for i in range(SAMPLE + 100)), a_day=1000)
    found = profile_raw(shared_spark, catalog, "large", forms_to_count(None))
    assert (found.messages, found.refused, found.overflowing) == (SAMPLE + 100, 0, 0)
    assert [(each.path, each.values, each.samples) for each in found.fields] == [
        (("a",), SAMPLE + 100, ("0", str(SAMPLE + 99))),
        (("b",), 1, ("2",)),
        (("c",), 1, ("x",)),
    ]
    assert [str(each.since) for each in found.fields] == ["2026-01-01", "2026-01-06", "2026-01-06"]


def test_fields_beyond_the_cap_are_told_of(schemas: Path, land: Callable[..., None], proposed: Propose) -> None:
    land("wide", [{f"f{i}": i for i in range(1100)}])
    contract, notes = proposed("wide")
    assert set(types(contract).values()) == {"INT"}
    assert len(contract.payload_columns) == 1000
    assert "1 messages have fields beyond the cap on columns" in notes


def test_a_file_is_written_once_and_never_over_another(
    schemas: Path, land: Callable[..., None], leanops: Leanops, tmp_path: Path
) -> None:
    land("tiny", [{"a": "Größe", "error_kind": 1}])
    file = tmp_path / "schema.json"
    said = leanops("schema", "propose", "tiny", "--output", file)
    assert (said.exit_code, said.out) == (0, "")
    content = file.read_bytes()
    assert types(read_contract(content, "tiny", "the file")) == {"a": "STRING", "error_kind": "INT"}
    again = leanops("schema", "propose", "tiny", "--output", file)
    assert again.exit_code == 1
    assert "it is there already" in again.err
    assert file.read_bytes() == content
    nowhere = leanops("schema", "propose", "tiny", "--output", tmp_path / "nowhere" / "schema.json")
    assert "cannot be written: No such file or directory." in nowhere.err


def test_a_topic_of_which_nothing_can_be_said_is_answered_with_what_to_do(
    schemas: Path, land: Callable[..., None], leanops: Leanops
) -> None:
    (schemas / "expected" / "pending").mkdir(parents=True)
    assert "Land some messages first: leanops land expected FILE." in leanops("schema", "propose", "expected").err
    assert "There is no topic 'unheard_of'" in leanops("schema", "propose", "unheard_of").err
    land("garbage", ["{", "[]"])
    said = leanops("schema", "propose", "garbage")
    assert said.exit_code == 1
    assert "No payload of garbage has a field that could be a column (2 are not one JSON object)." in said.err
