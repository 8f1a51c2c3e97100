"""One pass heals: the days that the ledger names are rebuilt, in whatever order, and it closes."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from functools import cache
from itertools import count, permutations, zip_longest
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession

from leanops.home import Home
from leanops.names import Layer, spark_table
from leanops_resources.catalog import LocalCatalog
from tests.accounting import accounts_of_topics
from tests.large import have_own_jobs
from tests.records import CONTRACT, FIRST, SECOND, THIRD, Records, build_all, message

Tables = dict[Layer, list[dict[str, Any]]]
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
WAYS = ("small", "large")
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
    "large": ("a row moved to a later day in Standardized",),
}
"""What the usual run tries. The long one tries all."""


class Rebuilt(NamedTuple):
    """The order in which the days were rebuilt, those that the ledger names after it, and what the tables hold."""

    order: tuple[date, ...]
    days: list[date]
    tables: Tables


@dataclass
class Case:
    """A damage, the days that the ledger names after it, what the tables hold then, and what rebuilds make of them."""

    way: str
    damage: Damage
    topic: Records
    days: list[date] = field(default_factory=list)
    damaged: Tables = field(default_factory=dict)
    rebuilt: list[Rebuilt] = field(default_factory=list)

    @property
    def orders(self) -> list[tuple[date, ...]]:
        """Every order of a few days; of a way that takes long, that from the first to the last and back."""
        found = list(permutations(self.days)) if self.days else []
        return found if self.way == "small" else [*dict.fromkeys((*found[:1], *found[-1:]))]


Cases = dict[tuple[str, str], Case]
SOUND = {False: Damage([]), True: Damage([], goes_on=True)}
"""What the tables must hold in the end: where nothing more has landed, and where something has."""


@pytest.fixture(scope="module")
def topics(shared_home: Home, shared_spark: SparkSession) -> Iterator[Records]:
    """New topics, without end."""
    catalog = LocalCatalog(shared_home).load()
    return (Records(f"topic{number}", shared_home, catalog, shared_spark) for number in count())


@pytest.fixture(scope="module")
def cases(topics: Iterator[Records]) -> Callable[[bool], tuple[Cases, dict[bool, Tables]]]:
    """All that the usual run looks at, or the others, and what the tables of topics hold that nobody has damaged."""

    @cache
    def played(is_usual: bool) -> tuple[Cases, dict[bool, Tables]]:
        keys = [(way, what) for way in WAYS for what in DAMAGES if (what in USUAL[way]) is is_usual]
        found = {(way, what): Case(way, DAMAGES[what], next(topics)) for way, what in keys}
        sound = {goes_on: Case("small", nothing, next(topics)) for goes_on, nothing in SOUND.items()}
        play([*found.values(), *sound.values()], topics)
        assert not [case for case in sound.values() if case.days]
        return found, {goes_on: case.damaged for goes_on, case in sound.items()}

    return played


def play(cases: Sequence[Case], topics: Iterator[Records]) -> None:
    """Damage topics, ask the ledger for days, and rebuild these in each order, each on a topic of its own."""
    land_and_build([case.topic for case in cases])
    for way in WAYS:
        own = [case for case in cases if case.way == way]
        with built_as(way):
            inflict([(case.topic, case.damage) for case in own])
            named = named_days([case.topic for case in own])
        for case in own:
            case.days, case.damaged = named[case.topic.name], case.topic.tables()
    trials = [
        (case, order, next(topics) if place else case.topic)
        for case in cases
        for place, order in enumerate(case.orders)
    ]
    others = [(case, topic) for case, _, topic in trials if topic is not case.topic]
    land_and_build([topic for _, topic in others])
    for way in WAYS:
        own_trials = [(case, order, topic) for case, order, topic in trials if case.way == way]
        with built_as(way):
            inflict([(topic, case.damage) for case, topic in others if case.way == way])
            for days in zip_longest(*(order for _, order, _ in own_trials)):
                now = [(topic, day) for (_, _, topic), day in zip(own_trials, days, strict=True) if day]
                build_all([topic for topic, _ in now], {topic.name: [day] for topic, day in now})
            named = named_days([topic for _, _, topic in own_trials])
        for case, order, topic in own_trials:
            case.rebuilt.append(Rebuilt(order, named[topic.name], topic.tables()))


@contextmanager
def built_as(way: str) -> Iterator[None]:
    """Topics are built and looked at as small ones are, or as large ones."""
    with pytest.MonkeyPatch.context() as patch:
        have_own_jobs(patch, way == "large")
        yield


def land_and_build(topics: Sequence[Records]) -> None:
    for topic in topics:
        topic.land(MESSAGES)
    build_all(topics)


def inflict(damages: Sequence[tuple[Records, Damage]]) -> None:
    """Damage each topic; where builds go on, something more lands, and is built."""
    for topic, damage in damages:
        names: dict[str, Any] = {layer.value: spark_table(layer, topic.name) for layer in Layer}
        own = {f"own_{layer}": f"topic_name = '{topic.name}'" if "errors" in layer else "true" for layer in Layer}
        for statement in damage.statements:
            topic.spark.sql(statement.format(topic=topic.name, **names, **own))
    going_on = [topic for topic, damage in damages if damage.goes_on]
    for topic in going_on:
        topic.land([LATE])
    build_all(going_on)


def named_days(topics: Sequence[Records]) -> dict[str, list[date]]:
    """The days of each topic that the ledger does not close over."""
    names = [each.name for each in topics]
    found = accounts_of_topics(topics[0].spark, topics[0].catalog, dict.fromkeys(names, CONTRACT)) if topics else {}
    return {name: sorted({each.day for each in accounts if not each.is_clean}) for name, accounts in found.items()}


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("way", "what"),
    [
        pytest.param(way, what, id=f"{way}: {what}", marks=[] if what in USUAL[way] else [pytest.mark.long])
        for way in WAYS
        for what in DAMAGES
    ],
)
def test_the_days_that_the_ledger_names_are_rebuilt_in_whatever_order_and_it_closes(
    way: str, what: str, cases: Callable[[bool], tuple[Cases, dict[bool, Tables]]]
) -> None:
    played, sound = cases(what in USUAL[way])
    case = played[way, what]
    expected = sound[case.damage.goes_on]
    # A build may meet the damage before anybody has looked, and heals it then.
    assert case.days or case.damaged == expected
    assert [each.order for each in case.rebuilt] == case.orders
    for order, days, tables in case.rebuilt:
        assert days == [], order
        assert tables == expected, order
