"""The ledger closes over what the builds have made, and names every row that somebody has damaged since."""

from collections.abc import Callable, Iterator
from datetime import date
from typing import NamedTuple

import pytest
from pyspark.sql import SparkSession

from leanops.home import Home
from leanops.ledger.account import Account
from leanops.ledger.draw_up import draw_up
from leanops.ledger.queries import findings_query, shared_keys_query
from leanops.names import Layer, spark_table, table
from leanops.slices import Slice
from leanops_resources.catalog import LocalCatalog
from tests.records import CONTRACT, FIRST, SECOND, THIRD, Records, message

MESSAGES = [*FIRST, *SECOND, *THIRD, message("f1", 2, key="f", amount=1), message("g1", 2, key="g", amount=2)]
WAYS = {"few rows": 5000, "many rows": 0}
"""The ways to draw up an account, each with the number of rows up to which there are few."""


@pytest.fixture(scope="module")
def records(shared_home: Home, shared_spark: SparkSession) -> Callable[[str], Records]:
    """A topic of all the messages, built."""

    def build(name: str) -> Records:
        topic = Records(name, shared_home, LocalCatalog(shared_home).load(), shared_spark)
        topic.land(MESSAGES)
        topic.build()
        return topic

    return build


def accounts(topic: Records, layer: Layer, part: Slice | None = None) -> dict[date, Account]:
    drawn = draw_up(lambda: topic.spark, topic.catalog, topic.name, CONTRACT, layer, part)
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
    monkeypatch.setattr("leanops.ledger.draw_up.SMALL", small)
    monkeypatch.setattr("leanops.ledger.draw_up.LOCAL_ROWS", small)
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
    topic = records("damaged")
    tables = {layer.value: spark_table(layer, topic.name) for layer in Layer}
    undamaged = snapshots(topic)
    for what, damage in DAMAGES.items():
        for layer, snapshot in undamaged.items() - snapshots(topic).items():
            name = tables[layer].replace("`", "")
            topic.spark.sql(f"CALL leanops.system.set_current_snapshot('{name}', {snapshot})")
        topic.spark.sql(damage.statement.format(topic=topic.name, **tables))
        for way, small in WAYS.items():
            monkeypatch.setattr("leanops.ledger.draw_up.SMALL", small)
            monkeypatch.setattr("leanops.ledger.draw_up.LOCAL_ROWS", small)
            drawn = accounts(topic, damage.layer)
            assert list(named(drawn)) == damage.named, (what, way)
            days = {date(2026, 1, day) for day, _, _ in damage.named}
            queries = [findings_query(drawn[day], CONTRACT) for day in days]
            listed = {row.message_id for query in queries for row in topic.spark.sql(query).collect()}
            assert listed == {message_id for _, message_id, _ in damage.named}, (what, way)
            assert not all(account.closes for account in drawn.values()), (what, way)


def snapshots(topic: Records) -> dict[Layer, int]:
    """What the tables of a topic hold now."""
    held = {layer: topic.catalog.load_table(table(layer, topic.name)).current_snapshot() for layer in Layer}
    return {layer: snapshot.snapshot_id for layer, snapshot in held.items() if snapshot}


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
    monkeypatch.setattr("leanops.ledger.draw_up.SMALL", small)
    monkeypatch.setattr("leanops.ledger.draw_up.LOCAL_ROWS", small)
    account = accounts(twice, Layer.CURATED)[date(2026, 1, 2)]
    assert sorted(finding.message_id for finding in account.shared.first) == ["f1", "x"]
    part = accounts(twice, Layer.CURATED, Slice(len(MESSAGES), len(MESSAGES), frozenset([date(2026, 1, 2)])))
    assert part[date(2026, 1, 2)].shared.count == 2
    assert [row.message_ids for row in twice.spark.sql(shared_keys_query(account)).collect()] == [["f1", "x"]]
