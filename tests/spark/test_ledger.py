"""The ledger closes over what the builds have made, and names every row that somebody has damaged since."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import date, timedelta
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession

from leanops.batch.isolation import Jobs
from leanops.batch.topics import TopicTables, built_or_raised
from leanops.contracts.manifest import Manifest, Topic
from leanops.home import Home
from leanops.ledger.account import Account
from leanops.ledger.draw_up import Accounts, LedgerRequest, draw_up
from leanops.ledger.queries import findings_query, shared_keys_query
from leanops.names import SOURCE, Layer, spark_table, table
from leanops.slices import Slice
from leanops.tables import find_table
from leanops_assets import topic_ledgers
from leanops_assets.checks import DaysToCheck, check_days
from leanops_resources.catalog import LocalCatalog
from leanops_resources.state.lease import leases
from leanops_resources.state.sqlite import SqliteStateStore
from tests.accounting import accounts_of, accounts_of_topics
from tests.records import CONTRACT, FIRST, SECOND, THIRD, Records, build_all, message

MESSAGES = [*FIRST, *SECOND, *THIRD, message("f1", 2, key="f", amount=1), message("g1", 2, key="g", amount=2)]
FLEET = ("lost", "double", "file_gone", "moved", "sound_1", "sound_2")
WAYS = {"small topics": 2**24, "large topics": -1}
"""The ways to read a topic's rows, each with the bytes up to which it is small."""


@pytest.fixture(scope="module")
def records(shared_home: Home, shared_spark: SparkSession) -> Callable[[str], Records]:
    """Topics of all the messages, built together."""
    catalog = LocalCatalog(shared_home).load()
    names = ("calm_ledger", "twice", *FLEET, *(damage.topic for damage in DAMAGES.values()))
    topics = {name: Records(name, shared_home, catalog, shared_spark) for name in names}
    for topic in topics.values():
        topic.land(MESSAGES)
    build_all([*topics.values()])
    return topics.__getitem__


def accounts(topic: Records, layer: Layer, part: Slice | None = None) -> dict[date, Account]:
    drawn = accounts_of(topic.spark, topic.catalog, topic.name, CONTRACT, layer, part)
    return {account.day: account for account in drawn}


def named(found: dict[date, Account]) -> Iterator[tuple[int, str, str]]:
    """The rows without exactly one fate, each with its day of the month."""
    for day, account in found.items():
        for finding in sorted(account.findings.first, key=lambda each: each.message_id):
            yield day.day, finding.message_id, finding.problem.partition(":")[0].partition(",")[0]


@pytest.fixture(scope="module")
def calm(records: Callable[[str], Records]) -> Records:
    return records("calm_ledger")


@pytest.mark.parametrize("small", WAYS.values(), ids=WAYS)
def test_every_row_of_an_undisturbed_topic_has_one_fate(
    calm: Records, monkeypatch: pytest.MonkeyPatch, small: int
) -> None:
    monkeypatch.setattr("leanops.batch.topics.LARGE_BYTES", small)
    standardized, curated = accounts(calm, Layer.STANDARDIZED), accounts(calm, Layer.CURATED)
    assert all(account.closes and account.accounted == 100 for account in (*standardized.values(), *curated.values()))
    assert {day.day: (account.came_in, dict(account.fates)) for day, account in standardized.items()} == {
        1: (3, {"standardized": 0, "parse_errors": 0, "duplicates": 0, "superseded": 3}),
        2: (4, {"standardized": 2, "parse_errors": 0, "duplicates": 0, "superseded": 2}),
        3: (5, {"standardized": 3, "parse_errors": 1, "duplicates": 1, "superseded": 0}),
        4: (2, {"standardized": 1, "parse_errors": 0, "duplicates": 1, "superseded": 0}),
    }
    assert {day.day: (account.came_in, dict(account.fates)) for day, account in curated.items()} == {
        2: (2, {"curated": 2, "open_errors": 0}),
        3: (3, {"curated": 2, "open_errors": 1}),
        4: (1, {"curated": 1, "open_errors": 0}),
    }
    assert sum(account.came_in for account in standardized.values()) == len(MESSAGES)


def test_a_day_or_the_newest_rows_can_be_looked_at_alone(calm: Records) -> None:
    whole, upto = accounts(calm, Layer.STANDARDIZED), len(MESSAGES)
    third = date(2026, 1, 3)
    assert accounts(calm, Layer.STANDARDIZED, Slice(upto, upto, frozenset([third]))) == {third: whole[third]}
    newest = accounts(calm, Layer.STANDARDIZED, Slice(upto - 3, upto))
    assert {day.day: account.came_in for day, account in newest.items()} == {2: 2, 4: 1}
    assert all(account.closes and account.is_of_new_rows for account in newest.values())


class Damage(NamedTuple):
    """A statement behind the platform's back, and the layer whose ledger must name what it did."""

    layer: Layer
    statement: str
    named: list[tuple[int, str, str]]

    @property
    def topic(self) -> str:
        """The topic that is damaged so."""
        return f"damaged_{[*DAMAGES.values()].index(self)}"


DAMAGES = {
    "a row deleted from Standardized": Damage(
        Layer.STANDARDIZED, "DELETE FROM {standardized} WHERE message_id = 'f1'", [(2, "f1", "no fate")]
    ),
    "the latest version deleted, of a record with earlier ones": Damage(
        Layer.STANDARDIZED,
        "DELETE FROM {standardized} WHERE message_id = 'a2'",
        [(1, "a1", "no fate"), (3, "a2", "no fate")],
    ),
    "a row doubled in Standardized": Damage(
        Layer.STANDARDIZED,
        "INSERT INTO {standardized} SELECT * FROM {standardized} WHERE message_id = 'f1'",
        [(2, "f1", "2 fates")],
    ),
    "a row moved to another day": Damage(
        Layer.STANDARDIZED,
        "UPDATE {standardized} SET publish_time = publish_time + INTERVAL 1 DAY WHERE message_id = 'f1'",
        [(2, "f1", "no fate"), (3, "f1", "in standardized")],
    ),
    "a row that never landed": Damage(
        Layer.STANDARDIZED,
        "INSERT INTO {standardized} (message_id, idempotency_key, publish_time, landing_seq) "
        "VALUES ('ghost', 'ghost', TIMESTAMP '2026-01-02 00:00:00Z', NULL)",
        [(2, "ghost", "in standardized")],
    ),
    "a parse error removed": Damage(
        Layer.STANDARDIZED,
        "DELETE FROM {parse_errors} WHERE topic_name = '{topic}' AND message_id = 'd1'",
        [(3, "d1", "no fate")],
    ),
    "an error row removed": Damage(
        Layer.CURATED, "DELETE FROM {errors} WHERE topic_name = '{topic}' AND message_id = 'c2'", [(3, "c2", "no fate")]
    ),
    "an error row closed by hand": Damage(
        Layer.CURATED,
        "UPDATE {errors} SET closed = current_timestamp() WHERE topic_name = '{topic}' AND message_id = 'c2'",
        [(3, "c2", "no fate")],
    ),
    "a Curated row deleted": Damage(
        Layer.CURATED, "DELETE FROM {curated} WHERE message_id = 'g1'", [(2, "g1", "no fate")]
    ),
    "a Curated row whose source is gone": Damage(
        Layer.CURATED,
        "UPDATE {curated} SET message_id = 'h1', landing_seq = 3 WHERE message_id = 'g1'",
        [(2, "g1", "no fate"), (2, "h1", "in curated")],
    ),
    "a row that is kept and an error as well": Damage(
        Layer.CURATED,
        "INSERT INTO {curated} (message_id, idempotency_key, publish_time, ingestion_ts, landing_seq) "
        "SELECT message_id, idempotency_key, publish_time, ingestion_ts, landing_seq FROM {errors} "
        "WHERE topic_name = '{topic}' AND message_id = 'c2'",
        [(3, "c2", "2 fates")],
    ),
}


def test_damage_is_found_and_named(records: Callable[[str], Records], monkeypatch: pytest.MonkeyPatch) -> None:
    topics = {what: records(damage.topic) for what, damage in DAMAGES.items()}
    for what, damage in DAMAGES.items():
        tables = {layer.value: spark_table(layer, damage.topic) for layer in Layer}
        topics[what].spark.sql(damage.statement.format(topic=damage.topic, **tables))
    spark, catalog = topics[what].spark, topics[what].catalog

    @cache
    def listed(query: str) -> set[str]:
        return {row.message_id for row in spark.sql(query).collect()}

    for way, small in WAYS.items():
        monkeypatch.setattr("leanops.batch.topics.LARGE_BYTES", small)
        requests = [LedgerRequest(TopicTables(catalog, each.topic), CONTRACT, each.layer) for each in DAMAGES.values()]
        found = draw_up(Jobs(lambda: spark), catalog, requests)
        for what, damage in DAMAGES.items():
            drawn = {account.day: account for account in built_or_raised(found[damage.topic, damage.layer])}
            assert list(named(drawn)) == damage.named, (what, way)
            days = {date(2026, 1, day) for day, _, _ in damage.named}
            ids = {each for day in days for each in listed(findings_query(drawn[day], CONTRACT))}
            assert ids == {message_id for _, message_id, _ in damage.named}, (what, way)
            assert not all(account.closes for account in drawn.values()), (what, way)


@pytest.fixture(scope="module")
def twice(records: Callable[[str], Records]) -> Records:
    """A topic with a record that somebody has given a second row."""
    topic = records("twice")
    topic.spark.sql(
        f"INSERT INTO {spark_table(Layer.CURATED, 'twice')} SELECT 'x', idempotency_key, publish_time, ingestion_ts, "
        f"landing_seq, amount, note FROM {spark_table(Layer.CURATED, 'twice')} WHERE message_id = 'f1'"
    )
    return topic


@pytest.mark.parametrize("small", WAYS.values(), ids=WAYS)
def test_a_record_with_two_rows_is_named(twice: Records, monkeypatch: pytest.MonkeyPatch, small: int) -> None:
    monkeypatch.setattr("leanops.batch.topics.LARGE_BYTES", small)
    account = accounts(twice, Layer.CURATED)[date(2026, 1, 2)]
    assert sorted(finding.message_id for finding in account.shared.first) == ["f1", "x"]
    part = accounts(twice, Layer.CURATED, Slice(len(MESSAGES), len(MESSAGES), frozenset([date(2026, 1, 2)])))
    assert part[date(2026, 1, 2)].shared.count == 2
    assert [row.message_ids for row in twice.spark.sql(shared_keys_query(account)).collect()] == [["f1", "x"]]


BEHIND_OUR_BACK = {
    "lost": "DELETE FROM {standardized} WHERE message_id = 'f1'",
    "double": "INSERT INTO {curated} SELECT * FROM {curated} WHERE message_id = 'g1'",
    "moved": "UPDATE {standardized} SET publish_time = NULL, landing_seq = NULL WHERE message_id = 'f1'",
}


@pytest.fixture(scope="module")
def fleet(records: Callable[[str], Records], shared_spark: SparkSession) -> Catalog:
    """Six topics with the same messages, of which three were damaged; of a fourth a data file is gone."""
    catalog = records(FLEET[0]).catalog
    for name, statement in BEHIND_OUR_BACK.items():
        shared_spark.sql(statement.format(**{layer.value: spark_table(layer, name) for layer in Layer}))
    files = catalog.load_table(table(Layer.STANDARDIZED, "file_gone")).scan().plan_files()
    Path(next(iter(files)).file.file_path.removeprefix("file://")).unlink()
    return catalog


@pytest.mark.parametrize("small", WAYS.values(), ids=WAYS)
def test_of_many_topics_each_has_its_own_ledger_whatever_is_wrong_with_the_others(
    fleet: Catalog, shared_spark: SparkSession, monkeypatch: pytest.MonkeyPatch, small: int
) -> None:
    monkeypatch.setattr("leanops.batch.topics.LARGE_BYTES", small)
    tables = {name: TopicTables(fleet, name) for name in (*FLEET, "never_landed")}
    requests = [LedgerRequest(each, CONTRACT, layer) for each in tables.values() for layer in SOURCE]
    drawn = draw_up(Jobs(lambda: shared_spark), fleet, requests)
    assert {*drawn} == {(name, layer) for name in tables for layer in SOURCE}
    assert all(isinstance(drawn["file_gone", layer], Exception) for layer in SOURCE)
    found = {
        (topic, layer.value): list(named({each.day: each for each in built_or_raised(outcome)}))
        for (topic, layer), outcome in drawn.items()
        if topic != "file_gone"
    }
    assert {where: names for where, names in found.items() if names} == {
        ("lost", "standardized"): [(2, "f1", "no fate")],
        ("double", "curated"): [(2, "g1", "2 fates")],
        ("moved", "standardized"): [(1, "f1", "in standardized"), (2, "f1", "no fate")],
    }
    for topic in ("sound_1", "sound_2"):
        for layer in SOURCE:
            accounts = built_or_raised(drawn[topic, layer])
            assert accounts
            assert all(each.closes and each.is_clean for each in accounts)
            alone = accounts_of(shared_spark, fleet, topic, CONTRACT, layer)
            assert alone == accounts
    assert built_or_raised(drawn["never_landed", Layer.STANDARDIZED]) == []
    assert find_table(fleet, table(Layer.RAW, "never_landed")) is None
    doubled = {each.day.day: each.shared for each in built_or_raised(drawn["double", Layer.CURATED])}
    assert doubled[2].count == 2
    assert [finding.message_id for finding in doubled[2].first] == ["g1", "g1"]
    assert not doubled[3].count


def test_of_many_topics_the_checks_of_days_are_asked_for_at_once(fleet: Catalog, shared_spark: SparkSession) -> None:
    days = frozenset(date(2026, 1, day) for day in (2, 3))
    to_check = [DaysToCheck(TopicTables(fleet, name), CONTRACT, layer, days) for name in FLEET for layer in SOURCE]
    found = check_days(Jobs(lambda: shared_spark), fleet, to_check)
    assert {*found} == {(name, layer) for name in FLEET for layer in SOURCE}
    assert {topic for (topic, _), each in found.items() if isinstance(each, Exception)} == {"file_gone"}
    verdicts = [each for outcome in found.values() if not isinstance(outcome, Exception) for each in outcome]
    assert {each.day for each in verdicts} == days
    wrong = {(each.topic, each.layer.value, each.check, each.day.day) for each in verdicts if not each.passed}
    assert wrong == {
        ("lost", "standardized", "ledger_closed", 2),
        ("double", "curated", "ledger_closed", 2),
        ("double", "curated", "one_row_per_key", 2),
        ("moved", "standardized", "ledger_closed", 2),
    }


@pytest.mark.parametrize("is_patient", [True, False])
def test_topics_that_somebody_builds_are_waited_for_after_the_others(
    fleet: Catalog, shared_spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_patient: bool
) -> None:
    store = SqliteStateStore(tmp_path / "state.db")
    manifest = Manifest(topics=[Topic(name=name, contract=CONTRACT) for name in ("sound_1", "lost", "file_gone")])
    monkeypatch.setattr(topic_ledgers, "WAIT", timedelta(minutes=1 if is_patient else 0))
    with ExitStack() as build:
        build.enter_context(leases(store, ["build/sound_1"], "a build", timedelta(0)))

        def draw_up_and_let_go(*asked: Any) -> Accounts:
            drawn = draw_up(*asked)
            if is_patient and "lost" in {topic for topic, _ in drawn}:
                build.close()
            return drawn

        monkeypatch.setattr("leanops.ledger.draw_up.draw_up", draw_up_and_let_go)
        found = [*topic_ledgers.topic_ledgers(lambda: shared_spark, fleet, store, manifest, "a test")]
    assert [ledger.topic for ledger in found] == ["sound_1", "lost", "file_gone"]
    sound, lost, gone = found
    # Nothing is said of the queue: these messages came from a file, and were never received.
    assert bool(sound.accounts) is is_patient
    assert all(each.closes for each in sound.accounts)
    assert sound.problem is None if is_patient else "a build is at work on build/sound_1" in (sound.problem or "")
    assert [each.message_id for account in lost.accounts for each in account.findings.first] == ["f1"]
    assert lost.problem is None
    assert gone.problem
    assert "\n" not in gone.problem


def test_missing_critical_elements_of_many_topics_are_counted_at_once(
    shared_home: Home, shared_spark: SparkSession
) -> None:
    catalog, days = LocalCatalog(shared_home).load(), {}
    topics = {name: Records(name, shared_home, catalog, shared_spark) for name in ("cde_1", "cde_2", "cde_0")}
    for (name, topic), missing in zip(topics.items(), (2, 1, 0), strict=True):
        topic.land([message(f"m{i}", 2 + i % 2, note="no amount") for i in range(missing)])
        topic.land([message("good", 2, amount=1), message("bad", 2, amount="x")])
        days |= {(name, date(2026, 1, 2 + i % 2)): {"amount": 1} for i in range(missing)}
    build_all([*topics.values()])
    found = accounts_of_topics(shared_spark, catalog, dict.fromkeys(topics, CONTRACT)).values()
    drawn = [account for accounts in found for account in accounts if account.layer is Layer.CURATED]
    assert {(each.topic, each.day): each.missing for each in drawn if each.missing} == days
