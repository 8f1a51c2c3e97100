"""One pass heals: the days that the ledger names are rebuilt, in whatever order, and it closes."""

from collections.abc import Callable, Iterator, Sequence
from datetime import date
from functools import cache
from itertools import permutations
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession

from leanops.home import Home
from leanops.ledger.account import Account
from leanops.names import Layer, spark_table, table
from leanops_resources.catalog import LocalCatalog
from tests.accounting import all_accounts_of
from tests.building import curate, standardize
from tests.large import have_own_jobs, leave_deletions_to_spark
from tests.records import CONTRACT, FIRST, SECOND, THIRD, Records, message

MESSAGES = [
    *FIRST,
    *SECOND,
    *THIRD,
    message("f1", 2, key="f", amount=1),
    message("g0", 1, key="g", amount=3),
    message("g1", 2, key="g", amount=2),
    message("h1", 2, key="h", amount="no number"),
    {**message("i1", 2), "payload": "["},
]
LATE = message("f0", 1, key="f", amount=8)
"""It is superseded by f1, wherever that stands."""

IDS = "message_id, idempotency_key, publish_time, ingestion_ts, landing_seq"


class Damage(NamedTuple):
    """Statements behind the platform's back, and whether builds go on before anybody looks at the ledger."""

    statements: Sequence[str]
    goes_on: bool = False


def move(layer: str, message_id: str, days: int) -> str:
    return (
        f"UPDATE {{{layer}}} SET publish_time = publish_time + INTERVAL {days} DAY "
        f"WHERE message_id = '{message_id}' AND {{own_{layer}}}"
    )


def double(layer: str, message_id: str) -> str:
    return f"INSERT INTO {{{layer}}} SELECT * FROM {{{layer}}} WHERE message_id = '{message_id}' AND {{own_{layer}}}"


def delete(layer: str, message_id: str) -> str:
    return f"DELETE FROM {{{layer}}} WHERE message_id = '{message_id}' AND {{own_{layer}}}"


def invent(layer: str, key: str, day: int, landing_seq: str) -> str:
    names = IDS + (", topic_name" if "errors" in layer else "")
    values = f"'ghost', '{key}', TIMESTAMP '2026-01-{day:02} 23:00:00Z', 1, {landing_seq}"
    return f"INSERT INTO {{{layer}}} ({names}) VALUES ({values}{', {topic!r}' if 'errors' in layer else ''})"


DAMAGES = {
    "nothing": Damage([]),
    "a row moved to a later day in Standardized": Damage([move("standardized", "f1", 1)]),
    "a row moved to an earlier day in Standardized": Damage([move("standardized", "f1", -1)]),
    "a row moved to a later day before a version of its record landed": Damage([move("standardized", "f1", 1)], True),
    "a row moved to a day that the topic has not": Damage([move("standardized", "f1", 7)]),
    "a row without a day": Damage(["UPDATE {standardized} SET publish_time = NULL WHERE message_id = 'f1'"]),
    "a row moved in both layers": Damage([move("standardized", "f1", 1), move("curated", "f1", 2)]),
    "a row moved to a later day in Curated": Damage([move("curated", "f1", 1)]),
    "a row moved to an earlier day in Curated": Damage([move("curated", "f1", -1)]),
    "a Curated row without a day": Damage(["UPDATE {curated} SET publish_time = NULL WHERE message_id = 'f1'"]),
    "an open error moved": Damage([move("errors", "h1", 1)]),
    "a parse error moved": Damage([move("parse_errors", "i1", 1)]),
    "an open error that stands twice": Damage([double("errors", "h1")]),
    "an open error that stands three times, on two days": Damage(
        [double("errors", "h1"), move("errors", "h1", 1), double("errors", "c2"), delete("curated", "f1")]
    ),
    "a parse error that stands twice": Damage([double("parse_errors", "i1")]),
    "a row that stands twice in Standardized": Damage([double("standardized", "f1")]),
    "a row that stands twice in Standardized before a version landed": Damage([double("standardized", "f1")], True),
    "a row that stands twice in Curated": Damage([double("curated", "f1")]),
    "a row deleted from Standardized": Damage([delete("standardized", "g1")]),
    "a row deleted from Standardized before a version landed": Damage([delete("standardized", "f1")], True),
    "a row deleted from Curated": Damage([delete("curated", "g1")]),
    "an open error deleted": Damage([delete("errors", "h1")]),
    "a parse error deleted": Damage([delete("parse_errors", "i1")]),
    "a row invented": Damage([invent("standardized", "ghost", 2, "NULL")]),
    "a row invented of a record that there is": Damage([invent("standardized", "f", 3, "NULL")]),
    "a row invented with another row's number": Damage([invent("standardized", "f", 1, "6")]),
    "a row invented, by which a message was superseded": Damage([invent("standardized", "f", 4, "2")], True),
    "a row invented without a number, by which a message was superseded": Damage(
        [invent("standardized", "f", 4, "NULL")], True
    ),
    "a row given to another record": Damage(
        ["UPDATE {standardized} SET idempotency_key = 'e' WHERE message_id = 'b2'"]
    ),
    "a Curated row invented": Damage([invent("curated", "f", 3, "NULL"), invent("curated", "other", 2, "99")]),
    "an error invented": Damage([invent("errors", "f", 3, "NULL"), invent("errors", "other", 2, "99")]),
    "a parse error invented": Damage([invent("parse_errors", "f", 3, "NULL"), invent("parse_errors", "g", 2, "99")]),
}
WAYS = ("small", "small of large tables", "large")
USUAL = {
    "small": (
        "a row moved to a later day in Standardized",
        "a row moved to a later day before a version of its record landed",
        "a row without a day",
        "a row moved in both layers",
        "a row moved to a later day in Curated",
        "an open error that stands three times, on two days",
        "a parse error that stands twice",
        "a row that stands twice in Standardized before a version landed",
        "a row deleted from Standardized",
        "a row invented, by which a message was superseded",
        "a row given to another record",
        "an error invented",
    ),
    "small of large tables": ("a row moved in both layers",),
    "large": ("a row moved to a later day in Standardized",),
}
"""What the usual run tries: each takes seconds. The long one tries all."""


class Sound(NamedTuple):
    """A topic, where its tables stood before anything was damaged, and what they must hold in the end."""

    topic: Records
    undamaged: dict[Layer, int]
    tables: dict[Layer, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def sound(shared_home: Home, shared_spark: SparkSession) -> Callable[[bool], Sound]:
    """Two such topics: of one, a message has landed that is not built where its tables are set back to."""

    @cache
    def build(goes_on: bool) -> Sound:
        name = "goes_on" if goes_on else "stands"
        topic = Records(name, shared_home, LocalCatalog(shared_home).load(), shared_spark)
        topic.land(MESSAGES)
        topic.build()
        undamaged = snapshots(topic)
        if goes_on:
            topic.land([LATE])
            topic.build()
        return Sound(topic, undamaged, topic.tables())

    return build


@pytest.fixture
def built_as(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """From now on, topics are built and looked at as small ones are, of small or large tables, or as large ones."""

    def choose(way: str) -> None:
        have_own_jobs(monkeypatch, way == "large")
        leave_deletions_to_spark(monkeypatch, way == "small of large tables")

    return choose


def accounts(topic: Records) -> list[Account]:
    return all_accounts_of(topic.spark, topic.catalog, topic.name, CONTRACT)


def named_days(topic: Records) -> list[date]:
    return sorted({account.day for account in accounts(topic) if not account.is_clean})


def snapshots(topic: Records) -> dict[Layer, int]:
    held = {layer: topic.catalog.load_table(table(layer, topic.name)).current_snapshot() for layer in Layer}
    return {layer: snapshot.snapshot_id for layer, snapshot in held.items() if snapshot}


def set_back(topic: Records, undamaged: dict[Layer, int]) -> None:
    for layer, snapshot in undamaged.items() - snapshots(topic).items():
        if layer is not Layer.RAW:
            name = spark_table(layer, topic.name).replace("`", "")
            topic.spark.sql(f"CALL leanops.system.set_current_snapshot('{name}', {snapshot})")


def inflict(topic: Records, damage: Damage) -> None:
    names: dict[str, Any] = {layer.value: spark_table(layer, topic.name) for layer in Layer}
    own = {f"own_{layer}": f"topic_name = '{topic.name}'" if "errors" in layer else "true" for layer in Layer}
    for statement in damage.statements:
        topic.spark.sql(statement.format(topic=topic.name, **names, **own))


def orders(days: Sequence[date], way: str) -> Iterator[tuple[date, ...]]:
    """Every order of a few days; of a way that takes long, that from the first to the last and back."""
    found = list(permutations(days))
    yield from found if way == "small" else dict.fromkeys((found[0], found[-1]))


def rebuild(topic: Records, day: date) -> None:
    standardize(topic.spark, topic.catalog, topic.name, CONTRACT, [day])
    curate(topic.spark, topic.catalog, topic.name, CONTRACT, [day])


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("way", "what"),
    [
        pytest.param(way, what, id=f"{way}: {what}", marks=[] if what in USUAL[way] else [pytest.mark.long])
        for way in WAYS
        for what in DAMAGES
    ],
)
def test_the_days_that_the_ledger_names_are_rebuilt_in_whatever_order_and_it_closes(
    way: str, what: str, sound: Callable[[bool], Sound], built_as: Callable[[str], None]
) -> None:
    damage = DAMAGES[what]
    topic, undamaged, expected = sound(damage.goes_on)
    built_as(way)
    set_back(topic, undamaged)
    inflict(topic, damage)
    if damage.goes_on:
        topic.build()
    days = named_days(topic)
    # A build may meet the damage before anybody has looked, and heals it then.
    assert days or topic.tables() == expected
    damaged = snapshots(topic)
    for order in orders(days, way):
        set_back(topic, damaged)
        for day in order:
            rebuild(topic, day)
        assert named_days(topic) == [], order
        assert topic.tables() == expected, order
