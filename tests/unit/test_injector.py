"""Made-up messages: the same each time, as many of each kind as asked for, and what the tables must hold of them."""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog
from typer.testing import CliRunner

from leanops.contracts.model import Contract
from leanops.contracts.reading import read_contract
from leanops.errors import ExpectationUnmet, ScenarioInvalid
from leanops.home import Home
from leanops.injector.comparison import compare
from leanops.injector.expectation import DayCounts, Expectation, Truth
from leanops.injector.feeding import FolderFeed, feed_at_once, feed_paced
from leanops.injector.generator import Message, Version, messages
from leanops.injector.history import History
from leanops.injector.injection import Carrier, Injection, checked
from leanops.injector.payload import column_paths
from leanops.injector.plan import DAY, Kind
from leanops.injector.reading import ALLOWED, read_scenario
from leanops.injector.scenario import Day, Scenario, Shares, Topic
from leanops.injector.values import misfits
from leanops.raw.envelope import Envelope, EnvelopeMalformed, parse_envelope
from leanops.raw.landing import land_file
from leanops.standardized.flatten_plan import column_name
from leanops_cli.inject import inject, inject_check
from leanops_resources.catalog import LocalCatalog
from tests import oracle
from tests.conftest import PROJECT

TODAY = date(2026, 1, 15)
FIRST_DAY = date(2025, 1, 1)
NOW = datetime(2026, 1, 15, 12, tzinfo=UTC)
SCENARIOS = sorted((PROJECT / "scenarios").glob("*.json"))
SHIPPED = {
    path.parents[1].name: read_contract(path.read_bytes(), None, str(path))
    for path in sorted((PROJECT / "schemas").glob("*/active/schema.json"))
}
ALL_SHARES = dict.fromkeys(Shares.model_fields, 0.05)
AWKWARD = Contract.model_validate(
    {
        "table_name": "awkward",
        "envelope_columns": [{"name": "producer", "source": "a.100%sure"}],
        "payload_columns": [
            {"name": "event_day", "type": "DATE", "format": "dd.MM.yyyy", "cde": True},
            {"name": "event_at", "type": "TIMESTAMP", "format": "yyyy-MM-dd'T'HH:mm:ssXXX"},
            {"name": "event", "type": "STRING", "cde": True},
            {"name": "seen", "type": "TIMESTAMP", "format": "epoch_millis"},
            {"name": "a__b", "type": "DECIMAL(5,5)", "cde": True},
            {"name": "a_c", "type": "DECIMAL(38,0)"},
            {"name": "drift_field_1", "type": "FLOAT", "default": "1"},
        ],
    }
)
"""Formats, fields that the envelope has too, names that do not split, no key in the payload."""


def scenario(seconds: float = 100, days: Sequence[int] = (0,), **shares: float) -> dict[str, Any]:
    """Ten messages a second of one topic."""
    return {
        "seed": 7,
        "topics": [{"name": "orders", "contract": "orders"}],
        "rate": 10,
        "seconds": seconds,
        "days": [{"day": day} for day in days],
        "shares": shares,
    }


def injection(
    document: dict[str, Any] | None = None, contract: Contract | None = SHIPPED["orders"], **more: Any
) -> Injection:
    read = read_scenario(json.dumps(document or scenario()).encode(), "a test")
    names = [topic.name for topic in read.topics]
    fields = {
        "name": "a_test",
        "scenario": read,
        "contracts": dict.fromkeys(names, contract),
        "today": TODAY,
        "carrier": Carrier.FOLDER,
        "topics": tuple(names),
        "days": tuple(range(1, len(read.days) + 1)),
    }
    return checked(Injection(**{**fields, **more}), FIRST_DAY)


def made(of: Injection, topic: str = "orders") -> list[Message]:
    return list(messages(of, topic))


def read(message: Message) -> Envelope | None:
    """What the platform reads of a body, or None for a dead letter."""
    try:
        return parse_envelope(message.body, FIRST_DAY, NOW)
    except EnvelopeMalformed:
        return None


def truth(of: Injection, topic: str = "orders") -> Expectation:
    kept = Truth(topic, has_contract=True)
    for message in messages(of, topic):
        kept.add(message)
    return kept.expectation()


@dataclass
class Parts:
    """A feed that keeps what it carries."""

    sent: list[tuple[str, list[bytes]]] = field(default_factory=list)

    def send(self, topic: str, bodies: Sequence[bytes]) -> None:
        self.sent.append((topic, list(bodies)))

    def bodies(self, topic: str) -> list[bytes]:
        return [body for name, bodies in self.sent if name == topic for body in bodies]


# The same each time


def digest(of: Injection) -> str:
    return sha256(b"\n".join(message.body for message in made(of))).hexdigest()


def test_an_injection_is_the_same_bytes_in_every_process() -> None:
    script = (
        "from tests.unit.test_injector import digest, injection, scenario, ALL_SHARES\n"
        "print(digest(injection(scenario(days=(-1, 0), **ALL_SHARES))))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    other = subprocess.run(
        [sys.executable, "-c", script], cwd=PROJECT, env=environment, capture_output=True, text=True, check=True
    )
    assert other.stdout.strip() == digest(injection(scenario(days=(-1, 0), **ALL_SHARES)))


def test_other_seeds_scenarios_and_days_share_no_message_and_no_record() -> None:
    document = scenario(**ALL_SHARES)
    others = [
        injection(document),
        injection({**document, "seed": 8}),
        injection(document, name="another"),
        injection(document, today=date(2026, 1, 16)),
        injection({**document, "rate": 11}),
    ]
    ids = [{message.version.message_id for message in made(each) if message.version} for each in others]
    keys = [{message.version.key for message in made(each) if message.version} for each in others]
    assert len(set().union(*ids)) == sum(map(len, ids))
    assert len(set().union(*keys)) == sum(map(len, keys))


def test_a_day_that_is_fed_alone_is_the_same_as_with_the_others() -> None:
    document = scenario(days=(-2, -1, 0), **ALL_SHARES)
    apart = [body for day in (1, 2, 3) for body in made(injection(document, days=(day,)))]
    assert apart == made(injection(document))
    two_topics = {**document, "topics": [*document["topics"], {"name": "more", "contract": None}]}
    assert made(injection(two_topics, topics=("more",)), "more") == made(injection(two_topics), "more")


# As many as asked for


def envelopes(of: Injection) -> list[Envelope]:
    return [envelope for message in made(of) if (envelope := read(message))]


def keyed(of: Injection) -> list[tuple[str, Envelope]]:
    return [(json.loads(each.payload)["_metadata"]["idempotencyKeyResource"], each) for each in envelopes(of)]


def is_object(text: str) -> bool:
    return oracle.leaves(text.encode()) is not None


def versions_out_of_order(of: Injection) -> int:
    """Messages that come after a later version of their record."""
    latest: dict[str, tuple[Any, ...]] = {}
    late = 0
    for key, each in keyed(of):
        order = (each.publish_time, each.ingestion_ts, each.message_id)
        late += key in latest and order < latest[key]
        latest[key] = max(order, latest.get(key, order))
    return late


def landed(of: Injection, topic: str = "orders") -> list[oracle.Message]:
    """The rows of RAW."""
    found = [each for message in made(of, topic) if (each := read(message))]
    return [
        oracle.Message(
            each.message_id, each.payload, each.publish_time, each.ingestion_ts or 0, number, each.idempotency_key
        )
        for number, each in enumerate(found, start=1)
    ]


COUNTED = {
    "duplicates": lambda of: len(envelopes(of)) - len({each.message_id for each in envelopes(of)}),
    "late": lambda of: sum(each.publish_time.date() < TODAY for each in envelopes(of)),
    "corrections": lambda of: len(keyed(of)) - len({key for key, _ in keyed(of)}),
    "out_of_order": versions_out_of_order,
    "drift": lambda of: sum("drift" in json.loads(each.payload) for each in envelopes(of)),
    "cde_violations": lambda of: sum(message.kind is Kind.CDE_VIOLATIONS for message in made(of)),
    "type_violations": lambda of: sum(message.kind is Kind.TYPE_VIOLATIONS for message in made(of)),
    "malformed_payloads": lambda of: sum(not is_object(each.payload) for each in envelopes(of)),
    "malformed_timestamps": lambda of: sum(
        read(message) is None and json.loads(message.body)["message_id"] != "" for message in made(of)
    ),
    "poison": lambda of: sum(read(message) is None for message in made(of)),
}


@pytest.mark.parametrize("share", Shares.model_fields)
@pytest.mark.parametrize("part", [0.0, 0.03, 0.2])
def test_as_many_messages_of_a_kind_come_as_were_asked_for(share: str, part: float) -> None:
    asked = injection(scenario(**{share: part}))
    assert len(made(asked)) == 1000
    assert COUNTED[share](asked) == round(part * 1000)
    assert Counter(message.kind for message in made(asked))[Kind[share.upper()]] == round(part * 1000)


def test_all_kinds_come_together_to_the_message() -> None:
    kinds = Counter(message.kind for message in made(injection(scenario(days=(-1, 0), **ALL_SHARES))))
    assert kinds == {Kind.RECORDS: 1000, **{kind: 100 for kind in Kind if kind is not Kind.RECORDS}}


@pytest.mark.parametrize("share", ["cde", "type"])
def test_a_violation_breaks_its_rule_and_no_other(share: str) -> None:
    of = injection(scenario(**{f"{share}_violations": 0.2}))
    contract = SHIPPED["orders"]
    broken = Counter(
        rule.rule
        for each in landed(of)
        for rules in oracle.curated(oracle.standardized_under(contract, [each]), contract).broken.values()
        for rule in rules
    )
    assert broken == {share: 200}


def test_some_violations_break_a_record_that_was_good_and_corrections_heal_others() -> None:
    of = injection(scenario(days=(-1, 0), **ALL_SHARES))
    seen: dict[str, bool] = {}
    changes = set()
    for message in made(of):
        if (version := message.version) and version.is_readable and message.kind is not Kind.DUPLICATES:
            if version.key in seen:
                changes.add((seen[version.key], version.is_broken))
            seen[version.key] = version.is_broken
    assert changes == {(False, False), (False, True), (True, False), (True, True)}


def test_later_versions_are_later_by_time_or_arrival_or_id() -> None:
    of = injection(scenario(out_of_order=0.2))
    newer = {each.version.key: each.version for each in made(of) if each.kind is Kind.OUT_OF_ORDER and each.version}
    older = {each.version.key: each.version for each in made(of) if each.version and each.version not in newer.values()}
    differ = Counter(
        (newer[key].published != older[key].published, newer[key].ingested != older[key].ingested) for key in newer
    )
    assert set(differ) == {(True, True), (False, True), (False, False)}
    assert all(count > 20 for count in differ.values())


def test_what_a_queue_cannot_carry_does_not_come_to_a_queue() -> None:
    document = scenario(poison=0.3, duplicates=0.3)
    bodies = [message.body for message in made(injection(document, carrier=Carrier.QUEUE))]
    assert all(body.decode() for body in bodies)
    assert len(set(bodies)) == 700
    folder = [message.body for message in made(injection(document))]
    assert any(not _is_utf8(body) for body in folder)
    assert len(set(folder)) > 700
    assert all(body.strip() == body and b"\n" not in body and body for body in folder)


def _is_utf8(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True


# What the messages look like


@given(st.lists(st.from_regex(r"\A[a-c][a-c_]{0,7}\Z"), unique=True, max_size=8))
def test_paths_flatten_to_the_names_of_their_columns(names: list[str]) -> None:
    paths = column_paths(names)
    assert [column_name(path) for path in paths] == [column_name((name,)) for name in names]
    assert not any(path == other[: len(path)] for path in paths for other in paths if path != other)


def test_columns_that_begin_alike_share_an_object() -> None:
    assert column_paths(["event_at", "event_meta_ip", "event_meta_os", "order_id", "event_by"]) == [
        ("event", "at"),
        ("event", "meta", "ip"),
        ("event", "meta", "os"),
        ("order_id",),
        ("event", "by"),
    ]


@pytest.mark.parametrize("contract", [*SHIPPED.values(), AWKWARD], ids=lambda contract: contract.table_name)
def test_no_misfit_fits(contract: Contract) -> None:
    for column in contract.payload_columns:
        texts = [json.loads(text, parse_int=str, parse_float=str) for text in misfits(column)]
        assert bool(texts) == (column.type.name != "STRING")
        assert [text for text in texts if oracle.cast(text, column.type, column.format) is not None] == []


# What the tables must hold


@pytest.mark.parametrize("contract", [*SHIPPED.values(), AWKWARD], ids=lambda contract: contract.table_name)
def test_the_oracle_finds_in_the_messages_what_was_expected(contract: Contract) -> None:
    of = injection(scenario(50, days=(-1, 0), **ALL_SHARES), contract)
    expected = truth(of)
    standardized = oracle.standardized_under(contract, landed(of))
    curated = oracle.curated(standardized, contract)
    assert {key: row["message_id"] for key, row in standardized.rows.items()} == expected.standardized
    assert set(curated.rows) == set(expected.curated)
    assert set(curated.broken) == set(expected.open_errors)
    assert {each.message_id for each in standardized.refused.values()} == set(expected.parse_errors)
    assert standardized.duplicates == len(expected.duplicates)
    assert standardized.superseded == len(expected.superseded)
    assert expected.new_columns
    assert set(expected.new_columns) <= {column.name for column in standardized.plan.columns}
    assert {sha256(each.body).hexdigest() for each in made(of) if not read(each)} == set(expected.dead_letters)
    days = {day: counts.raw for day, counts in expected.days.items()}
    assert days == Counter(each.publish_time.date() for each in landed(of))
    for counts in expected.days.values():
        assert counts.raw == counts.standardized + counts.parse_errors + counts.duplicates + counts.superseded
        assert counts.standardized == counts.curated + counts.open_errors


def version(message_id: str, key: str, day: int, second: int = 0, **more: Any) -> Message:
    days = (date(2026, 1, day) - date(1970, 1, 1)).days
    return Message(message_id.encode(), Kind.RECORDS, Version(message_id, key, days * DAY + second, 5, **more))


def test_what_becomes_of_a_few_messages_is_as_worked_out_by_hand() -> None:
    kept = Truth("orders", has_contract=True)
    for message in (
        version("a1", "a", 1),
        version("a1", "a", 2),
        version("a2", "a", 2, is_broken=True),
        version("b2", "b", 2, new_column="drift_x"),
        version("b1", "b", 1),
        version("c1", "c", 1, is_readable=False),
        version("c1", "c", 1, is_readable=False),
        version("d1", "d", 1, is_broken=True),
        version("d2", "d", 1, second=1),
        Message(b"poison", Kind.POISON, None),
    ):
        kept.add(message)
    assert kept.expectation() == Expectation(
        topic="orders",
        has_contract=True,
        received=10,
        dead_letters={sha256(b"poison").hexdigest(): "malformed: poison"},
        days={
            date(2026, 1, 1): DayCounts(
                raw=6, standardized=1, parse_errors=1, duplicates=1, superseded=3, curated=1, open_errors=0
            ),
            date(2026, 1, 2): DayCounts(
                raw=3, standardized=2, parse_errors=0, duplicates=1, superseded=0, curated=1, open_errors=1
            ),
        },
        standardized={"a": "a2", "b": "b2", "d": "d2"},
        open_errors={"a": "a2"},
        parse_errors=["c1"],
        duplicates=["a1", "c1"],
        superseded=["a1", "b1", "d1"],
        new_columns=["drift_x"],
    )


# Scenarios that cannot be


def without(document: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name != key}


BAD = [
    ("{", "$: not JSON"),
    ("[]", "$: a scenario is a JSON object"),
    ('{"seed": 1, "seed": 2}', "$: 'seed' stands twice"),
    (b"\xff", "$: the file is not UTF-8"),
    ({**scenario(), "sede": 1}, "$.sede: unknown key. Did you mean 'seed'?"),
    ({**scenario(), "xyz": 1}, "$.xyz: unknown key. Known here: description, seed"),
    (scenario(duplicate=0.1), "$.shares.duplicate: unknown key. Did you mean 'duplicates'?"),
    ({**scenario(), "days": [{"day": 0, "rates": 1}]}, "$.days[0].rates: unknown key. Did you mean 'rate'?"),
    (without(scenario(), "seed"), "$.seed: required, but missing. Add it: a whole number"),
    ({**scenario(), "topics": [{"name": "orders"}]}, "$.topics[0].contract: required, but missing."),
    ({**scenario(), "topics": [{"name": "Or ders", "contract": None}]}, "$.topics[0].name: 'Or ders' cannot be"),
    ({**scenario(), "topics": [{"name": "a", "contract": None}] * 2}, "$.topics[1].name: 'a' stands here twice."),
    ({**scenario(), "topics": []}, "$.topics: it must be a list of one topic or more, found []."),
    ({**scenario(), "rate": "fast"}, '$.rate: it must be a number above 0 and up to 1,000,000, found "fast".'),
    ({**scenario(), "rate": 0.001}, "$.days[0]: rate and seconds give no message."),
    ({**scenario(), "rate": 900_000, "seconds": 900_000}, "$.days: each topic would get 810,000,000,000 messages."),
    ({**scenario(), "days": [{"day": "tomorrow"}]}, "$.days[0].day: 'tomorrow' is no publish day"),
    ({**scenario(), "days": [{"day": 1}]}, "$.days[0].day: '1' is no publish day"),
    (scenario(late=1.5), "$.shares.late: it must be a number from 0 to 1, found 1.5."),
    (scenario(late=0.5, drift=0.5), "$.shares: the shares take 1,000 of the day's 1,000 messages"),
    (scenario(out_of_order=0.5), "$.shares: the shares take 1,000 of the day's 1,000 messages"),
]


@pytest.mark.parametrize(("document", "said"), BAD, ids=[said[:40] for _, said in BAD])
def test_a_scenario_that_cannot_be_is_refused_with_the_place_and_the_fix(document: Any, said: str) -> None:
    content = (
        document if isinstance(document, bytes) else document if isinstance(document, str) else json.dumps(document)
    )
    with pytest.raises(ScenarioInvalid) as error:
        read_scenario(content if isinstance(content, bytes) else content.encode(), "bad.json")
    assert said in str(error.value)
    assert len(error.value.problems) == 1
    assert "docs/injector.md" in error.value.hint


def test_all_that_is_wrong_is_said_at_once() -> None:
    document = {**scenario(late=-1), "rate": 0, "days": [{"day": "x"}], "speed": 1}
    with pytest.raises(ScenarioInvalid) as error:
        read_scenario(json.dumps(document).encode(), "bad.json")
    assert {problem.path for problem in error.value.problems} == {"$.shares.late", "$.rate", "$.days[0].day", "$.speed"}
    assert all(problem.found and problem.allowed for problem in error.value.problems)


def test_days_and_contracts_that_make_it_impossible_are_told_together() -> None:
    only_texts = Contract.model_validate(
        {
            "table_name": "texts",
            "envelope_columns": [],
            "payload_columns": [
                {"name": "a", "type": "STRING"},
                {"name": "b", "type": "DATE", "format": "d MMM yyyy"},
                {"name": "c", "type": "TIMESTAMP", "format": "yyyy-MM-dd[ HH:mm]"},
            ],
        }
    )
    document = scenario(**ALL_SHARES)
    document["days"] = [{"day": "2025-01-02"}, {"day": "2026-02-01"}, {"day": 0}]
    with pytest.raises(ScenarioInvalid) as error:
        injection(document, only_texts)
    said = [str(problem) for problem in error.value.problems]
    assert [each.partition(":")[0] for each in said] == [
        "$.days[0].day",
        "$.days[1].day",
        "$.days[2].day",
        "$.topics[0].contract",
        "$.topics[0].contract",
        "$.topics[0].contract",
    ]
    assert "late messages go back to 2024-12-30" in said[0]
    assert "no column is a Critical Data Element" in said[3]
    assert "cannot write the format 'd MMM yyyy' of b" in said[4]
    assert "cannot write the format 'yyyy-MM-dd[ HH:mm]' of c" in said[5]


def test_every_place_of_a_scenario_has_its_rule() -> None:
    tops = set(Scenario.model_fields)
    inner = {f"topics[].{name}" for name in Topic.model_fields} | {f"days[].{name}" for name in Day.model_fields}
    shares = {f"{place}shares.{name}" for place in ("", "days[].") for name in Shares.model_fields}
    assert set(ALLOWED) == tops | inner | shares | {"topics[]", "days[]"}


# The shipped scenarios


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_a_shipped_scenario_can_be_injected(path: Path) -> None:
    shipped = read_scenario(path.read_bytes(), str(path))
    contracts: dict[str, Contract | None] = {}
    for topic in shipped.topics:
        if topic.contract and topic.contract.endswith(".json"):
            file = path.parent / topic.contract
            contracts[topic.name] = read_contract(file.read_bytes(), topic.name, str(file))
        else:
            contracts[topic.name] = SHIPPED[topic.contract] if topic.contract else None
    of = Injection(
        name=path.stem,
        scenario=shipped,
        contracts=contracts,
        today=TODAY,
        carrier=Carrier.FOLDER,
        topics=tuple(contracts),
        days=tuple(range(1, len(shipped.days) + 1)),
    )
    checked(of, FIRST_DAY)
    last = made(of, of.topics[-1])
    assert len(last) == of.messages_of_a_topic
    assert shipped.description


def test_the_scenarios_of_the_issue_are_shipped() -> None:
    assert {path.stem for path in SCENARIOS} == {"steady", "thundering_herd", "day1_day2", "dirty"}
    dirty = read_scenario((PROJECT / "scenarios" / "dirty.json").read_bytes(), "dirty")
    assert dirty.shares.cde_violations == 0.03
    assert all(getattr(dirty.shares, name) for name in Shares.model_fields)


def test_every_share_is_in_the_documentation() -> None:
    page = (PROJECT / "docs" / "injector.md").read_text()
    keys = [*Scenario.model_fields, *Topic.model_fields, *Day.model_fields, *Shares.model_fields]
    assert [key for key in keys if f"`{key}`" not in page] == []
    assert [path.stem for path in SCENARIOS if f"`{path.stem}`" not in page] == []


# Feeding


def test_files_appear_whole_in_the_order_of_their_names(tmp_path: Path) -> None:
    of = injection(scenario(**ALL_SHARES))
    [fed] = feed_at_once(of, (), FolderFeed(tmp_path, "0001-a_test"))
    files = sorted((tmp_path / "orders").iterdir())
    lines = [line for file in files for line in file.read_bytes().splitlines()]
    assert lines == [message.body for message in made(of)]
    assert len(files) > 4
    assert len({len(file.read_bytes().splitlines()) for file in files}) > 2
    assert all(file.suffix == ".ndjson" and file.name[0] != "." for file in files)
    assert fed.expectation == truth(of)
    assert fed.kinds.total() == 1000


def test_a_paced_injection_keeps_its_rate_and_is_the_same_messages() -> None:
    document = {**scenario(6, days=(-1, 0)), "topics": [{"name": name, "contract": None} for name in ("a", "b")]}
    document["days"] = [{"day": -1}, {"day": 0, "rate": 20, "seconds": 1}]
    of, parts = injection(document, None), Parts()
    now = [100.0]
    times: list[tuple[float, int]] = []

    def wait(seconds: float) -> None:
        times.append((now[0] - 100, len(parts.bodies("b"))))
        now[0] += seconds

    fed = list(feed_paced(of, (), parts, clock=lambda: now[0], wait=wait))
    assert parts.bodies("a") == [message.body for message in messages(of, "a")]
    assert parts.bodies("b") == [message.body for message in messages(of, "b")]
    assert [each.expectation.received for each in fed] == [80, 80]
    assert now[0] == pytest.approx(107, abs=0.5)
    for elapsed, sent in times:
        due = min(60, elapsed * 10) + min(20, max(0, elapsed - 6) * 20)
        assert sent == pytest.approx(due, abs=1)


def test_injections_add_up_in_one_home(tmp_path: Path) -> None:
    history = History(tmp_path)
    document = scenario(days=(-1, 0), **ALL_SHARES)
    day_1, day_2, other = (
        injection(document, days=(1,)),
        injection(document, days=(2,)),
        injection({**document, "seed": 8}),
    )
    for of in (day_1, day_2, other):
        past = history.injections()
        history.add(of)
        for fed in feed_at_once(of, past, Parts()):
            history.expect(fed.expectation)
    assert history.injections() == (day_1, day_2, other)
    [kept] = history.expectations()
    both = Truth("orders", has_contract=True)
    for message in [*made(injection(document)), *made(other)]:
        both.add(message)
    assert kept == both.expectation()


def test_the_same_injection_again_is_nothing_but_duplicates() -> None:
    of = injection(scenario(**ALL_SHARES))
    [once], [twice] = feed_at_once(of, (), Parts()), feed_at_once(of, (of,), Parts())
    landed_once = sum(1 for _ in once.expectation.raw)
    assert len(twice.expectation.duplicates) == len(once.expectation.duplicates) + landed_once
    assert twice.expectation.standardized == once.expectation.standardized
    assert twice.expectation.received == 2 * once.expectation.received


# The comparison


@pytest.fixture
def catalog(home: Home) -> Catalog:
    return LocalCatalog(home).load()


def land(catalog: Catalog, folder: Path, bodies: Sequence[bytes]) -> None:
    file = folder / "messages.ndjson"
    file.write_bytes(b"\n".join(bodies))
    land_file(catalog, "orders", file, FIRST_DAY, skip_bad=True)


def test_tables_that_hold_what_they_must_are_not_complained_of(catalog: Catalog, tmp_path: Path) -> None:
    of = injection(scenario(duplicates=0.1, late=0.1), contract=None)
    land(catalog, tmp_path, [message.body for message in made(of)])
    [fed] = feed_at_once(of, (), Parts())
    assert not fed.expectation.has_contract
    assert compare([fed.expectation], catalog) == []


def test_every_difference_is_named(catalog: Catalog, tmp_path: Path) -> None:
    of = injection(scenario(3, duplicates=0.1, poison=0.1, drift=0.1))
    expected = truth(of)
    bodies = [message.body for message in made(of)]
    lost = made(of)[0]
    stranger = b'{"message_id": "stranger", "publish_time": "2026-01-15T10:00:00Z", "payload": {}}'
    land(catalog, tmp_path, [*bodies[1:], stranger])
    said = [str(problem) for problem in compare([expected], catalog)]
    assert lost.version
    assert f"orders: RAW lacks 1 row: {lost.version.message_id}." in said
    assert "orders: RAW has, and must not have, 1 row: stranger." in said
    assert any(each.startswith("orders: dlq_errors lacks 3 rows: ") and "malformed: poison" in each for each in said)
    [standardized] = [each for each in said if each.startswith("orders: Standardized lacks 24 rows: ")]
    first = next(iter(expected.standardized.items()))
    assert "{} by {}".format(*first) in standardized
    assert standardized.endswith(", and 4 more.")
    assert any("Standardized lacks the columns drift_field_" in each for each in said)
    assert f"orders {TODAY}: standardized is 0, and must be 24." in said
    assert all(problem.found and problem.allowed for problem in compare([expected], catalog))


# The command


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> typer.Typer:
    monkeypatch.setenv("LEANOPS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("LEANOPS_SCHEMAS", str(PROJECT / "schemas"))
    app = typer.Typer()
    app.command()(inject)
    app.command()(inject_check)
    return app


def test_the_command_feeds_the_landing_folder_and_the_check_names_what_has_not_landed(
    command: typer.Typer, tmp_path: Path
) -> None:
    file = tmp_path / "small.json"
    file.write_text(json.dumps(scenario(10, days=(-1, 0), duplicates=0.1)))
    for day in (1, 2):
        said = CliRunner().invoke(command, ["inject", str(file), "--day", str(day), "--seed", "5"])
        assert said.exit_code == 0, said.output
        assert "orders        100           10" in said.output
    home = tmp_path / "home"
    files = sorted((home / "landing" / "orders").iterdir())
    assert sum(len(each.read_bytes().splitlines()) for each in files) == 200
    assert {each.name[:10] for each in files} == {"0001-small", "0002-small"}
    assert json.loads((home / "injected" / "expected" / "orders.json").read_bytes())["received"] == 200

    unmet = CliRunner().invoke(command, ["inject-check"])
    assert isinstance(unmet.exception, ExpectationUnmet)
    assert "orders: RAW lacks 200 rows" in str(unmet.exception)


def test_the_command_refuses_what_is_not_there_by_its_nearest_name(command: typer.Typer, tmp_path: Path) -> None:
    file = tmp_path / "small.json"
    topics = [{"name": "a", "contract": "ordres"}, {"name": "b", "contract": "missing.json"}]
    file.write_text(json.dumps({**scenario(), "topics": topics}))
    for arguments, said in (
        (["steedy"], "SCENARIO: there is no 'steedy'. Did you mean 'steady'?"),
        (["nowhere/steady.json"], "it cannot be read: No such file or directory."),
        ([str(file)], "$.topics[0].contract: 'ordres' has no active contract. Did you mean 'orders'?"),
        ([str(file)], f"$.topics[1].contract: {tmp_path / 'missing.json'} cannot be read"),
        ([str(PROJECT / "scenarios/steady.json"), "--topic", "order"], "--topic: there is no 'order'."),
        ([str(PROJECT / "scenarios/steady.json"), "--day", "2"], "--day: there is no '2'. There are: 1."),
    ):
        refused = CliRunner().invoke(command, ["inject", *arguments])
        assert isinstance(refused.exception, ScenarioInvalid), refused.output
        assert said in str(refused.exception)


def test_queues_need_their_prefix(command: typer.Typer) -> None:
    refused = CliRunner().invoke(command, ["inject", str(PROJECT / "scenarios/steady.json"), "--to", "queue"])
    assert "LEANOPS_QUEUE_PREFIX: it is not set" in str(refused.exception)


def test_nothing_injected_is_nothing_to_check(command: typer.Typer) -> None:
    assert CliRunner().invoke(command, ["inject-check"]).output == "Nothing has been injected.\n"
