"""What a rehearsal says a contract would do is what a build with that contract does; and it leaves no trace."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession

from leanops.batch.topics import TopicBuild, TopicTables
from leanops.contracts.model import Contract
from leanops.curated.rehearsal import BrokenRule, FailingRow, Failure, Sample, rehearse
from leanops.errors import RehearsalImpossible
from leanops.home import Home
from leanops.names import Layer, table
from leanops.standardized.table import ensure_standardized_table
from leanops_resources.catalog import LocalCatalog
from tests.building import build_topics
from tests.records import Records, message

AMOUNT = {"name": "amount", "type": "BIGINT", "cde": True}
PRICE = {"name": "price", "type": "DECIMAL(6,2)"}
NOTE = {"name": "note", "type": "STRING"}
KEY = {"name": "idempotency_key", "source": "key"}

MESSAGES = [
    message("a1", 1, key="a", amount=1),
    message("b1", 2, key="b", amount=1, price=1.5, note="fine"),
    message("c1", 2, key="c", amount=3_000_000_000),
    message("d1", 3, key="d", amount="x" * 300, note="d"),
    message("e1", 3, key="e", amount=5, price="1234567.89", note=" "),
    message("f1", 5, key="f", amount=7, price=2),
    message("g1", 5, key="g", amount=8, note=""),
    message("h1", 5, key="h", price="much", note="h"),
    # Nothing is left of the first day, and there never was a fourth.
    message("a2", 6, key="a", amount=4_000_000_000, note="corrected"),
    message("i1", 6, key="i", amount=5_000_000_000),
    message("j1", 6, key="j", amount=6_000_000_000, price=0.01, note="j"),
]
LEFT = len(MESSAGES) - 1


def contract(*columns: dict[str, Any], version: int = 4, envelope: tuple[dict[str, str], ...] = (KEY,)) -> Contract:
    return Contract.model_validate(
        {"table_name": "records", "version": version, "envelope_columns": envelope, "payload_columns": columns}
    )


ACTIVE = contract(AMOUNT, PRICE, NOTE, version=3)


class Case(NamedTuple):
    """A contract, and how many rows would pass, pass newly and fail newly."""

    contract: Contract
    passing: int
    newly_passing: int
    newly_failing: int
    unknown: tuple[str, ...] = ()


CASES = {
    "nothing_new": Case(ACTIVE, 7, 0, 0),
    "a_new_cde": Case(contract(AMOUNT, PRICE, {**NOTE, "cde": True}), 3, 0, 4),
    "a_narrowed_type": Case(contract({**AMOUNT, "type": "INT"}, PRICE, NOTE), 3, 0, 4),
    "a_widened_type": Case(contract(AMOUNT, {**PRICE, "type": "DECIMAL(9,2)"}, NOTE), 8, 1, 0),
    "another_type": Case(contract(AMOUNT, {**PRICE, "type": "STRING"}, {**NOTE, "type": "INT"}), 3, 0, 4),
    "a_column_removed": Case(contract(PRICE, NOTE), 8, 1, 0),
    "a_column_nobody_sent": Case(contract(AMOUNT, PRICE, {"name": "rank", "type": "INT"}), 7, 0, 0, ("rank",)),
    "a_cde_nobody_sent": Case(
        contract(AMOUNT, {"name": "rank", "type": "INT", "cde": True}, PRICE), 0, 0, 7, ("rank",)
    ),
}


@pytest.fixture(scope="module")
def catalog(shared_home: Home) -> Catalog:
    return LocalCatalog(shared_home).load()


@pytest.fixture(scope="module")
def really(shared_home: Home, shared_spark: SparkSession, catalog: Catalog) -> "dict[str, Built]":
    """The messages built with each contract, all at once."""
    contracts = {"records": ACTIVE, **{name: case.contract for name, case in CASES.items()}}
    for name in contracts:
        Records(name, shared_home, catalog, shared_spark).land(MESSAGES)
    builds = [TopicBuild(TopicTables(catalog, name), contract) for name, contract in contracts.items()]
    build_topics(shared_spark, catalog, builds)
    return {name: Built.of(name, catalog) for name in contracts}


@pytest.fixture(scope="module")
def built(really: "dict[str, Built]") -> "Built":
    return really["records"]


class Built(NamedTuple):
    """What a real build with a contract makes of the messages: of each row its day, number and broken rules."""

    rows: dict[str, tuple[int, int, list[BrokenRule]]]

    @classmethod
    def of(cls, topic: str, catalog: Catalog) -> "Built":
        tables = (catalog.load_table(table(layer, topic)) for layer in (Layer.CURATED, Layer.ERRORS))
        held = [row for each in tables for row in each.scan().to_arrow().to_pylist()]
        return cls(
            {
                row["message_id"]: (row["publish_time"].day, row["landing_seq"], _rules(row))
                for row in held
                if row.get("topic_name", topic) == topic
            }
        )

    def broken(self, days: set[int]) -> dict[str, list[BrokenRule]]:
        """The rows of some days that are broken, the newest first."""
        newest_first = sorted(self.rows.items(), key=lambda row: -row[1][1])
        return {message_id: rules for message_id, (day, _, rules) in newest_first if day in days and rules}

    def failures(self, days: set[int]) -> Iterator[Failure]:
        samples: dict[tuple[str, str], list[Sample]] = defaultdict(list)
        for message_id, rules in self.broken(days).items():
            for rule in rules:
                samples[rule.column, rule.rule].append(Sample(message_id, rule.value))
        for (column, rule), found in sorted(samples.items(), key=lambda item: (-len(item[1]), item[0])):
            yield Failure(column, rule, len(found), tuple(found[:3]))


def _rules(row: dict[str, Any]) -> list[BrokenRule]:
    return [
        BrokenRule(rule["column"], rule["rule"], rule["value"] and rule["value"][:200])
        for rule in row.get("broken_rules", ())
    ]


def metadata_files(catalog: Catalog) -> dict[tuple[str, ...], str]:
    """Every table, and the file that says what it is: any commit, of rows, columns or branches, writes another."""
    tables = [name for namespace in catalog.list_namespaces() for name in catalog.list_tables(namespace)]
    return {name: catalog.load_table(name).metadata_location for name in tables}


def test_it_says_what_a_build_would_do_and_changes_nothing(
    built: Built, really: dict[str, Built], shared_spark: SparkSession, catalog: Catalog
) -> None:
    before = metadata_files(catalog)
    said = {name: rehearse(shared_spark, catalog, "records", case.contract, ACTIVE, 7) for name, case in CASES.items()}
    assert metadata_files(catalog) == before

    days = {2, 3, 5, 6}
    today = built.broken(days)
    for name, case in CASES.items():
        rehearsal = said[name]
        numbers = (rehearsal.rows, rehearsal.passing, rehearsal.newly_passing, rehearsal.newly_failing)
        assert numbers == (LEFT, case.passing, case.newly_passing, case.newly_failing), name
        assert {day.day for day in rehearsal.days} == days
        assert rehearsal.unknown_columns == case.unknown

        broken = really[name].broken(days)
        assert rehearsal.failing == len(broken), name
        assert rehearsal.failures == tuple(really[name].failures(days)), name
        assert rehearsal.newly_passing == len(set(today) - set(broken)), name
        newly = [FailingRow(each, tuple(rules)) for each, rules in broken.items() if each not in today]
        assert rehearsal.newly_failing == len(newly), name
        assert rehearsal.newly_failing_samples == tuple(newly[:3]), name


def test_it_says_the_same_in_the_way_of_many_rows(
    built: Built, shared_spark: SparkSession, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES["another_type"]
    few = rehearse(shared_spark, catalog, "records", case.contract, ACTIVE, 7)
    assert few.newly_failing == case.newly_failing
    monkeypatch.setattr("leanops.slices.SMALL", 0)
    assert rehearse(shared_spark, catalog, "records", case.contract, ACTIVE, 7) == few


def test_only_the_last_days_that_hold_rows_are_looked_at(
    built: Built, shared_spark: SparkSession, catalog: Catalog
) -> None:
    narrowed = CASES["a_narrowed_type"].contract
    for count, days in ((1, {6}), (2, {5, 6}), (3, {3, 5, 6}), (9, {2, 3, 5, 6})):
        rehearsal = rehearse(shared_spark, catalog, "records", narrowed, ACTIVE, count)
        assert {day.day for day in rehearsal.days} == days
        assert rehearsal.rows == sum(day in days for day, _, _ in built.rows.values())


def test_it_says_in_words_what_would_happen(built: Built, shared_spark: SparkSession, catalog: Catalog) -> None:
    envelope = ({**KEY, "source": "id"}, {"name": "producer", "source": "by"})
    changed = contract({**AMOUNT, "type": "INT"}, {"name": "rank", "type": "INT"}, envelope=envelope)
    rehearsal = rehearse(shared_spark, catalog, "records", changed, ACTIVE, 7)
    assert rehearsal.envelope_changes == ("idempotency_key", "producer")
    assert list(rehearsal.sentences) == [
        "Version 4 of the contract, on 10 rows of records in Standardized (4 days, 2026-01-02 to 2026-01-06).",
        "4 would pass (40.00 %), 6 would fail (60.00 %).",
        "By version 3, which is active, 7 pass today, of which 4 would fail; 3 fail, of which 1 would pass.",
        "rank: no message has had this field.",
        "Not rehearsed is what comes before Standardized: idempotency_key, producer would change.",
        "The record keys would change, and with them which messages are versions of one record.",
    ]


def test_without_an_active_contract_nothing_is_compared(
    built: Built, shared_spark: SparkSession, catalog: Catalog
) -> None:
    rehearsal = rehearse(shared_spark, catalog, "records", CASES["a_narrowed_type"].contract, None, 1)
    assert (rehearsal.passing, rehearsal.failing) == (0, 3)
    assert (rehearsal.newly_passing, rehearsal.newly_failing, rehearsal.newly_failing_samples) == (0, 0, ())
    assert list(rehearsal.sentences) == [
        "Version 4 of the contract, on 3 rows of records in Standardized (2026-01-06).",
        "0 would pass (0.00 %), 3 would fail (100.00 %).",
        "No contract is active: there is nothing to compare with.",
    ]


def test_a_topic_of_which_nothing_was_built_is_told_so(warm_home: Home, spark: SparkSession) -> None:
    catalog = LocalCatalog(warm_home).load()
    with pytest.raises(RehearsalImpossible, match="nothing was built yet"):
        rehearse(spark, catalog, "records", ACTIVE, None, 7)
    assert not metadata_files(catalog)
    ensure_standardized_table(TopicTables(catalog, "records"), ACTIVE)
    with pytest.raises(RehearsalImpossible, match="nothing was built yet"):
        rehearse(spark, catalog, "records", ACTIVE, None, 7)
