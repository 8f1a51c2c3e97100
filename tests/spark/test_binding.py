"""A column of a contract is bound to its field: whatever else lands, before or after it, and however it is written.

Each case is a topic with a contract, payloads tick by tick, and what Curated and the open errors hold in the end. It is
tried as a small topic and as a large one. The small ones are built together.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import partial
from itertools import count, zip_longest

import pytest
from pyspark.sql import SparkSession

from leanops.batch.topics import TopicBuild, TopicTables, built_or_raised
from leanops.blank import WHITE_SPACE
from leanops.contracts.model import MAX_COLUMNS, RULES_VERSION, Contract
from leanops.home import Home
from leanops.ledger.account import Account
from leanops.names import SOURCE, Layer
from leanops.pending import pending
from leanops.standardized.flatten_plan import DEFAULT_COLUMN_CAP, FlatColumn, FlattenPlan
from leanops.standardized.planned import REREAD
from leanops.standardized.table import add_columns
from leanops_resources.catalog import LocalCatalog
from tests.accounting import accounts_of_topics
from tests.building import curate, failures_of_builds, standardize
from tests.chosen_topic import ChosenTopic, Row, contract
from tests.large import have_own_jobs

KEY = {"name": "idempotency_key", "source": "order_id"}
STRING, INT = "STRING", "INT"
CAP = 40
MANY = {f"k{i}": i for i in range(2 * CAP)}


@dataclass(frozen=True)
class Case:
    """A contract, what lands in each tick, the rows of Curated by message, and the broken rules of the others.

    How many columns the fields may become, and what Standardized holds of some messages, may be said as well.
    """

    what: str
    contract: Contract
    ticks: Sequence[Sequence[object]]
    curated: dict[str, Row] = field(default_factory=dict)
    broken: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    standardized: dict[str, Row] = field(default_factory=dict)
    cap: int = CAP

    def __str__(self) -> str:
        return self.what


def case_of_many_columns(columns: int) -> Case:
    names = [f"c{i}" for i in range(columns)]
    return Case(
        f"a contract of {columns} columns",
        contract([{"name": name, "type": INT, "cde": name == "c0"} for name in names]),
        [[{name: i for i, name in enumerate(names)}, dict.fromkeys(names, "x"), {}]],
        {"m0": {name: i for i, name in enumerate(names)}},
        {"m1": [(name, "type") for name in names], "m2": [("c0", "cde")]},
        cap=DEFAULT_COLUMN_CAP,
    )


CASES = [
    Case(
        "the key is a column too, and a Critical Data Element",
        contract([{"name": "order_id", "type": STRING, "cde": True}, {"name": "n", "type": INT}], [KEY]),
        [[{"order_id": "a", "n": 1}, {"order_id": "b", "n": 2}], [{"order_id": "a", "n": 3}, {"n": 4}]],
        {"m2": {"order_id": "a", "n": 3, "idempotency_key": "a"}, "m1": {"order_id": "b", "n": 2}},
        {"m3": [("order_id", "cde")]},
    ),
    Case(
        "the key is an envelope column and a payload column by its source",
        contract(
            [{"name": "number", "source": "order_id", "type": INT}],
            [KEY, {"name": "order_no", "source": "order_id"}],
        ),
        [[{"order_id": 7}, {"order_id": 8}], [{"order_id": 7}]],
        {
            "m2": {"idempotency_key": "7", "order_no": "7", "number": 7},
            "m1": {"idempotency_key": "8", "order_no": "8", "number": 8},
        },
    ),
    Case(
        "an object that nothing but the key is in",
        contract(
            [{"name": "order", "type": STRING, "default": "none"}, {"name": "n", "type": INT}],
            [{"name": "idempotency_key", "source": "order.id"}],
        ),
        [[{"order": {"id": "a"}, "n": 1}, {"order": "b", "n": 2}, {"n": 3}]],
        {"m1": {"order": "b", "n": 2}, "m2": {"order": "none", "n": 3}},
        {"m0": [("order", "type")]},
    ),
    Case(
        "an envelope column and a payload column of one source",
        contract([{"name": "by", "source": "meta.by", "type": STRING}], [{"name": "producer", "source": "meta.by"}]),
        [[{"meta": {"by": "x"}}]],
        {"m0": {"by": "x", "producer": "x"}},
    ),
    Case(
        "two envelope columns of one source, one of them the key",
        contract([{"name": "n", "type": INT}], [{"name": "other", "source": "order_id"}, KEY]),
        [[{"order_id": "a", "n": 1}, {"order_id": "a", "n": 2}]],
        {"m1": {"other": "a", "idempotency_key": "a", "n": 2}},
    ),
    Case(
        "two payload columns of one field, by two types",
        contract([{"name": "n", "type": INT}, {"name": "n_text", "source": "n", "type": STRING}]),
        [[{"n": 1}, {"n": "x"}]],
        {"m0": {"n": 1, "n_text": "1"}},
        {"m1": [("n", "type")]},
    ),
    Case(
        "more fields than the cap before those that the contract names",
        contract([{"name": "late", "type": INT}, {"name": "deep_id", "type": INT}], [KEY]),
        [[MANY], [{"late": 1, "deep": {"id": 2}, "order_id": "a"}], [{"Late": 3, "deep_id": 4, "more": 5}]],
        {
            "m0": {"late": None, "deep_id": None},
            "m1": {"late": 1, "deep_id": 2, "idempotency_key": "a"},
            "m2": {"late": 3, "deep_id": 4},
        },
    ),
    Case(
        "more fields than the cap together with those that the contract names",
        contract([{"name": "late", "type": INT}, {"name": "id", "source": "deep.id", "type": INT}]),
        [[{**MANY, "late": 1, "deep": {"id": 2}}]],
        {"m0": {"late": 1, "id": 2}},
    ),
    Case(
        "a stray field of the same plain name lands first",
        contract([{"name": "user_id", "type": INT}]),
        [[{"user_id": 1}], [{"user": {"id": 2}}, {"User": {"ID": 3}}, {}]],
        {"m0": {"user_id": 1}, "m1": {"user_id": 2}, "m2": {"user_id": 3}, "m3": {"user_id": None}},
    ),
    Case(
        "several fields of a plain name that agree, and that do not",
        contract([{"name": "user_id", "type": INT, "cde": True}]),
        [
            [{"user_id": 1, "user": {"id": "1"}}, {"user_id": 1, "user": {"id": 2}}, {"user_id": "", "USER_ID": "x"}],
            [{"user_id": None, "user": {"id": 2}}],
        ],
        {"m0": {"user_id": 1}, "m3": {"user_id": 2}},
        {"m1": [("user_id", "ambiguous")], "m2": [("user_id", "ambiguous")]},
    ),
    Case(
        "a source is that field and no other of its plain name",
        contract([{"name": "buyer", "source": "order.customer.id", "type": INT}, {"name": "status", "type": STRING}]),
        [
            [{"order_customer_id": 1, "buyer": 9}],
            [{"order": {"customer": {"id": 2}}}, {"Order": {"customer": {"id": 3}}}],
        ],
        {"m0": {"buyer": None}, "m1": {"buyer": 2}, "m2": {"buyer": None}},
    ),
    Case(
        "a field in another shape is not missing",
        contract([{"name": "status", "type": STRING, "default": "new"}, {"name": "n", "type": INT}]),
        [
            [{"status": {"code": "done"}, "n": {"v": 7}}, {"status": {}}, {"n": {"v": None}}, {"status": {"a": {}}}],
            [{"status": "ok", "n": 1}, {}, {"status": [{"a": 1}]}],
        ],
        {
            "m4": {"status": "ok", "n": 1},
            "m5": {"status": "new", "n": None},
            "m6": {"status": '[{"a": 1}]'},
        },
        {
            "m0": [("status", "type"), ("n", "type")],
            "m1": [("status", "type")],
            "m2": [("n", "type")],
            "m3": [("status", "type")],
        },
    ),
    Case(
        "an object where a CDE is, by its source, and more fields than the cap",
        contract([{"name": "v", "source": "a.b", "type": INT, "cde": True}]),
        [[MANY], [{"a": {"b": {"c": 1}}}, {"a": {"b": {}}}, {"A": {"b": {}}}, {"a": {"b": 5}}]],
        {"m4": {"v": 5}},
        {"m0": [("v", "cde")], "m1": [("v", "type")], "m2": [("v", "type")], "m3": [("v", "cde")]},
    ),
    Case(
        "case variants are one plain name",
        contract([{"name": "status", "type": STRING, "default": "new"}, {"name": "n", "type": INT}]),
        [[{"status": "done", "n": 1}], [{"Status": "done", "N": 8}, {"sTATUS": "open"}]],
        {"m0": {"status": "done", "n": 1}, "m1": {"status": "done", "n": 8}, "m2": {"status": "open", "n": None}},
    ),
    Case(
        "white space of every kind is blank",
        contract([{"name": "who", "type": STRING, "cde": True}]),
        [[*({"who": sign} for sign in WHITE_SPACE), {"who": WHITE_SPACE}, {"who": "\r\n"}, {"who": "\u200b"}]],
        {f"m{len(WHITE_SPACE) + 2}": {"who": "\u200b"}},
        {f"m{i}": [("who", "cde")] for i in range(len(WHITE_SPACE) + 2)},
    ),
    Case(
        "a key of white space is no key",
        contract([{"name": "n", "type": INT}], [KEY]),
        [[{"order_id": sign, "n": i} for i, sign in enumerate(WHITE_SPACE)]],
        {f"m{i}": {"n": i, "idempotency_key": f"m{i}"} for i in range(len(WHITE_SPACE))},
    ),
    Case(
        "one message with thousands of fields does not starve the contract",
        contract([{"name": "late", "type": INT}, {"name": "deep_id", "type": INT}], [KEY]),
        [[{f"k{i}": i for i in range(3000)}], [{"late": 1, "deep": {"id": 2}, "order_id": "a"}]],
        {"m0": {"late": None, "deep_id": None}, "m1": {"late": 1, "deep_id": 2, "idempotency_key": "a"}},
        standardized={"m1": {"overflow_json": None}},
        cap=DEFAULT_COLUMN_CAP,
    ),
    case_of_many_columns(60),
    case_of_many_columns(300),
]


def ways_of(case: Case) -> list[pytest.ParameterSet]:
    """Every case as a small topic; as a large one, which takes seconds, those whose rows Spark reads in another way."""
    is_usual = any(word in case.what for word in ("cap before", "another shape", "several fields", "too"))
    marks = [] if is_usual else [pytest.mark.long]
    return [
        pytest.param(case, "small", id=f"{case.what}, small"),
        pytest.param(case, "large", id=f"{case.what}, large", marks=marks),
    ]


@dataclass(frozen=True)
class Built:
    """A case's topic with all its ticks built, and its ledger; or why it could not be."""

    topic: ChosenTopic
    failure: Exception | None
    accounts: list[Account]


@pytest.fixture(scope="module")
def built(shared_home: Home, shared_spark: SparkSession) -> Callable[[Case, str], Built]:
    """The topic of a case. A small one is built together with all others."""
    catalog, numbers = LocalCatalog(shared_home).load(), count()
    done: dict[tuple[str, str], Built] = {}

    def play(cases: Sequence[Case]) -> Iterator[tuple[str, Built]]:
        topics = [ChosenTopic(shared_home, catalog, shared_spark, f"case_{next(numbers)}") for _ in cases]
        landed, failures = Counter[str](), dict[str, Exception]()
        for ticks in zip_longest(*(case.ticks for case in cases)):
            now = [each for each in zip(cases, topics, ticks, strict=True) if each[2]]
            for _, topic, payloads in now:
                topic.land(payloads, landed[topic.topic])
                landed[topic.topic] += len(payloads)
            builds = [TopicBuild(TopicTables(catalog, topic.topic), case.contract) for case, topic, _ in now]
            failures = failures_of_builds(shared_spark, catalog, builds) | failures
        contracts = {topic.topic: case.contract for case, topic in zip(cases, topics, strict=True)}
        sound = {topic: contract for topic, contract in contracts.items() if topic not in failures}
        accounts = accounts_of_topics(shared_spark, catalog, sound)
        for case, topic in zip(cases, topics, strict=True):
            yield case.what, Built(topic, failures.get(topic.topic), accounts.get(topic.topic, []))

    def topic_of(case: Case, way: str) -> Built:
        if (case.what, way) not in done:
            together = [each for each in CASES if each.cap == case.cap] if way == "small" and case in CASES else [case]
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("leanops.standardized.table.FlattenPlan", partial(FlattenPlan, cap=case.cap))
                have_own_jobs(patch, way == "large")
                done.update({(what, way): each for what, each in play(together)})
        return done[case.what, way]

    return topic_of


@pytest.mark.parametrize(("case", "way"), [way for case in CASES for way in ways_of(case)])
def test_what_a_column_is_bound_to_fills_it(case: Case, way: str, built: Callable[[Case, str], Built]) -> None:
    found = built(case, way)
    built_or_raised(found.failure)
    for layer, expected in ((Layer.CURATED, case.curated), (Layer.STANDARDIZED, case.standardized)):
        rows = found.topic.rows(layer)
        assert {
            name: {column: rows[name][column] for column in row} for name, row in expected.items() if name in rows
        } == expected
        assert layer is Layer.STANDARDIZED or rows.keys() == expected.keys()
    assert found.topic.broken() == case.broken
    assert {account.layer for account in found.accounts} == {*SOURCE}
    assert all(account.is_clean for account in found.accounts)


def test_a_topic_that_was_built_by_earlier_rules_is_built_anew_and_says_so(
    chosen: ChosenTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wanted() -> Contract:
        return contract([{"name": "n", "type": INT}])

    chosen.land([{"n": 1}])
    with monkeypatch.context() as earlier:
        for module in ("contracts.model", "standardized.table"):
            earlier.setattr(f"leanops.{module}.RULES_VERSION", RULES_VERSION - 1)
        chosen.build(wanted())
        assert pending(chosen.catalog, chosen.topic, wanted()) is None
    assert pending(chosen.catalog, chosen.topic, wanted()) is not None
    again = standardize(chosen.spark, chosen.catalog, chosen.topic, wanted())
    assert again.notice == REREAD
    assert again.written == 1
    chosen.build(wanted())
    assert pending(chosen.catalog, chosen.topic, wanted()) is None
    assert chosen.rows(Layer.CURATED)["m0"]["n"] == 1
    chosen.assert_closed(wanted())


def test_a_column_that_an_interrupted_build_has_added_is_not_asked_for(chosen: ChosenTopic) -> None:
    wanted = contract([{"name": "n", "type": INT}])
    chosen.land([{"n": 1}])
    chosen.build(wanted)
    add_columns(chosen.table(Layer.STANDARDIZED), [FlatColumn(("N",), "n__later")])
    curate(chosen.spark, chosen.catalog, chosen.topic, wanted, [date(2026, 1, 1)])
    assert chosen.rows(Layer.CURATED)["m0"]["n"] == 1


@pytest.mark.long
@pytest.mark.parametrize("way", ["small", "large"])
def test_a_contract_of_as_many_columns_as_there_may_be_is_built(way: str, built: Callable[[Case, str], Built]) -> None:
    test_what_a_column_is_bound_to_fills_it(case_of_many_columns(MAX_COLUMNS), way, built)
