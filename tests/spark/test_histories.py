"""However a topic's messages are cut into ticks, after every build its tables are what the oracle says, row by row.

The histories are drawn in `tests.histories`. When a table differs, the rows that do are shown, with everything that the
histories they belong to have sent. `@reproduce_failure`, which Hypothesis prints, repeats the topic.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from functools import partial
from itertools import count, product
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.strategies import SearchStrategy
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import AlwaysTrue, EqualTo
from pyspark.sql import SparkSession

from leanops.contracts.model import Contract
from leanops.home import Home
from leanops.ledger.account import Account
from leanops.names import OBJECTS_COLUMN, OVERFLOW_COLUMN, SYSTEM_COLUMNS, Layer, table
from leanops.raw.landing import land_file
from leanops.standardized.flatten_plan import FlattenPlan, column_name
from leanops_resources.catalog import LocalCatalog
from tests import oracle
from tests.accounting import accounts_of
from tests.building import curate, standardize
from tests.histories import Build, Tick, Topic, history_of, topics
from tests.oracle import BrokenRule, Message

Row = dict[str, Any]


# The engine: these few functions know how it is called


@dataclass(frozen=True)
class Engine:
    """One topic in a home."""

    home: Home
    catalog: Catalog
    spark: SparkSession
    topic: str

    def land(self, messages: Sequence[Message]) -> None:
        file = self.home.path / "history.ndjson"
        file.write_text("".join(map(envelope_line, messages)), encoding="utf-8")
        land_file(self.catalog, self.topic, file, date(2025, 1, 1))

    def build(self, build: Build, contract: Contract) -> None:
        call = standardize if build.layer is Layer.STANDARDIZED else curate
        call(self.spark, self.catalog, self.topic, contract, build.rebuild)

    def accounts(self, layer: str, contract: Contract) -> list[Account]:
        return accounts_of(self.spark, self.catalog, self.topic, contract, Layer(layer))

    def columns(self, layer: Layer) -> list[str]:
        return [each.name for each in self.catalog.load_table(table(layer, self.topic)).schema().fields]

    def rows(self, layer: Layer) -> list[Row]:
        """What a table holds of the topic."""
        is_shared = layer in (Layer.PARSE_ERRORS, Layer.ERRORS)
        own = EqualTo("topic_name", self.topic) if is_shared else AlwaysTrue()  # type: ignore[call-arg, misc]
        rows: list[Row] = self.catalog.load_table(table(layer, self.topic)).scan(row_filter=own).to_arrow().to_pylist()
        return rows


def total(accounts: Iterable[Account], what: str) -> int:
    return sum(account.came_in if what == "came_in" else account.fates[what] for account in accounts)


def envelope_line(message: Message) -> str:
    """A line to land. The payload goes as a string, which can hold every text there is."""
    envelope = {
        "message_id": message.message_id,
        "publish_time": message.publish_time.isoformat(),
        "ingestion_ts": message.ingestion_ts,
        "idempotency_key": message.idempotency_key,
        "payload": message.payload,
    }
    return json.dumps(envelope) + "\n"


# A topic, played tick by tick


@dataclass
class Play:
    """What has happened to a topic so far, and what its tables must hold by now."""

    engine: Engine
    cap: int
    contract: Contract
    seen: Counter[str]
    sent: list[Message] = field(default_factory=list)
    raw: list[Message] = field(default_factory=list)
    standardized: oracle.Standardized | None = None
    curated: oracle.Curated = field(default_factory=oracle.Curated)
    once_broken: set[str] = field(default_factory=set)

    def tick(self, tick: Tick) -> None:
        self.contract = tick.contract
        if tick.messages:
            self.engine.land(tick.messages)
            self.sent += tick.messages
            self.check_raw()
        for build in tick.builds:
            self.engine.build(build, tick.contract)
            match build.layer:
                case Layer.STANDARDIZED:
                    self.check_standardized()
                case Layer.CURATED:
                    self.check_curated()

    def expected_of(self, raw: Sequence[Message]) -> oracle.Standardized:
        return oracle.standardized_under(self.contract, raw, self.cap)

    def check_raw(self) -> None:
        """RAW holds what was sent, to the letter and in order. From here on the oracle goes by what RAW holds."""
        rows = sorted(self.engine.rows(Layer.RAW), key=lambda row: row["landing_seq"])
        self.raw = [
            Message(
                message_id=row["message_id"],
                payload=row["json_payload"],
                publish_time=row["publish_time"],
                ingestion_ts=row["ingestion_ts"],
                landing_seq=row["landing_seq"],
                idempotency_key=row["idempotency_key"],
            )
            for row in rows
        ]
        assert list(map(envelope_line, self.raw)) == list(map(envelope_line, self.sent))

    def check_standardized(self) -> None:
        was = self.standardized or self.expected_of([])
        self.standardized = expected = self.expected_of(self.raw)
        system = {*SYSTEM_COLUMNS, OVERFLOW_COLUMN, OBJECTS_COLUMN} - {"topic_name"}
        fields = {column.name for column in expected.plan.columns}
        assert set(self.engine.columns(Layer.STANDARDIZED)) == system | fields

        rows, errors = self.engine.rows(Layer.STANDARDIZED), self.engine.rows(Layer.PARSE_ERRORS)
        with self.explained("Standardized"):
            assert_same(
                {key: standardized_row(expected, key) for key in expected.rows},
                by("idempotency_key", map(with_overflow_read, rows)),
            )
        with self.explained("parse_errors"):
            assert_same(
                {name: raw_row(expected.firsts[name]) for name in expected.refused},
                by("message_id", map(without_reason, errors)),
            )
        assert len(self.raw) == len(rows) + len(errors) + expected.duplicates + expected.superseded
        self.seen.update(drift(was, expected))

    def check_curated(self) -> None:
        """Curated is compared with what Standardized was when it was last built."""
        source = self.standardized or self.expected_of([])
        was = self.curated
        self.curated = expected = oracle.curated(source, self.contract)
        rows, errors = self.engine.rows(Layer.CURATED), self.engine.rows(Layer.ERRORS)
        open_errors = [row for row in errors if row["closed"] is None]
        with self.explained("Curated"):
            assert_same(
                {key: {**key_columns(source, key), **row} for key, row in expected.rows.items()},
                by("idempotency_key", rows),
            )
        with self.explained("errors"):
            assert_same(
                {
                    key: {**key_columns(source, key), "broken_rules": rules, "contract_version": self.contract.version}
                    for key, rules in expected.broken.items()
                },
                by("idempotency_key", map(open_error, open_errors)),
            )
        assert len(source.rows) == len(rows) + len(open_errors)

        broken_now = {source.latest[key].message_id for key in expected.broken}
        assert {row["message_id"] for row in errors if row["closed"] is not None} == self.once_broken - broken_now
        self.once_broken |= broken_now
        self.seen.update(turns(was, expected))

    def check_ledger(self) -> None:
        """The ledger closes, row by row, and its sums are the oracle's."""
        expected = self.standardized
        assert expected
        standardized, curated = (self.engine.accounts(layer, self.contract) for layer in ("standardized", "curated"))
        assert not [account for account in (*standardized, *curated) if not account.closes or account.shared.count]
        assert total(standardized, "came_in") == len(self.raw)
        assert total(standardized, "standardized") == total(curated, "came_in") == len(expected.rows)
        assert total(standardized, "parse_errors") == len(expected.refused)
        assert total(standardized, "duplicates") == expected.duplicates
        assert total(standardized, "superseded") == expected.superseded
        assert total(curated, "open_errors") == len(self.curated.broken)

    def note_fates(self) -> None:
        assert self.standardized
        self.seen.update(fates(self.raw, self.standardized))
        self.seen.update(judgements(self.standardized, self.curated, self.contract))
        self.seen.update(f"parse error: {row['error_kind']}" for row in self.engine.rows(Layer.PARSE_ERRORS))

    @contextmanager
    def explained(self, what: str) -> Iterator[None]:
        """A difference is told with the whole history that it is part of."""
        try:
            yield
        except Difference as difference:
            story = (
                f"{message.landing_seq} {envelope_line(message).strip():.1500}"
                for message in self.raw
                if history_of(message.message_id) in difference.histories
            )
            told = [f"{what}: {difference}", "In order of landing:", *story]
            told.append(f"Contract: {self.contract.model_dump_json(exclude_none=True)}")
            raise AssertionError("\n".join(told)) from None


# Rows


class Difference(Exception):
    """Rows that are not what they must be."""

    def __init__(self, message_ids: Iterable[str], text: str) -> None:
        super().__init__(text)
        self.histories = {history_of(message_id) for message_id in message_ids}


def assert_same(expected: Mapping[str, Row], found: Mapping[str, Row], shown: int = 3) -> None:
    keys = [key for key in {**expected, **found} if not same_row(expected.get(key), found.get(key))]
    if keys:
        texts = (f"{key!r}: {difference(expected.get(key), found.get(key))}" for key in keys[:shown])
        ids = [side[key]["message_id"] for key in keys[:shown] for side in (expected, found) if key in side]
        raise Difference(ids, f"{len(keys)} rows differ.\n" + "\n".join(texts))


def same_row(expected: Row | None, found: Row | None) -> bool:
    if expected is None or found is None or expected.keys() != found.keys():
        return False
    return all(same(value, found[name]) for name, value in expected.items())


def same(expected: Any, found: Any) -> bool:
    """Equal and of one type; floats to the last bit, with their sign."""
    if isinstance(expected, float):
        return repr(expected) == repr(found)
    return type(expected) is type(found) and bool(expected == found)


def difference(expected: Row | None, found: Row | None) -> str:
    if expected is None:
        return f"is there, and must not be: {found}"
    if found is None:
        return f"is missing: {expected}"
    names = {**expected, **found}
    wrong = (name for name in names if not same(expected.get(name, "no column"), found.get(name, "no column")))
    return ", ".join(
        f"{name} is {found.get(name, 'no column')!r:.500} instead of {expected.get(name, 'no column')!r:.500}"
        for name in wrong
    )


def by(name: str, rows: Iterable[Row]) -> dict[str, Row]:
    """Rows by what must be unique among them."""
    keyed: dict[str, Row] = {}
    for row in rows:
        other = keyed.setdefault(row[name], row)
        if other is not row:
            ids = [other["message_id"], row["message_id"]]
            raise Difference(ids, f"{name} {row[name]!r} stands in several rows: of {ids}.")
    return keyed


def key_columns(source: oracle.Standardized, key: str) -> Row:
    message = source.latest[key]
    return {
        "message_id": message.message_id,
        "idempotency_key": key,
        "publish_time": message.publish_time,
        "ingestion_ts": message.ingestion_ts,
        "landing_seq": message.landing_seq,
    }


def standardized_row(source: oracle.Standardized, key: str) -> Row:
    return {**source.rows[key], **key_columns(source, key)}


def with_overflow_read(row: Row) -> Row:
    overflow = oracle.leaves((row[OVERFLOW_COLUMN] or "{}").encode())
    objects = json.loads(row[OBJECTS_COLUMN] or "{}")
    assert all(column_name(tuple(path)) == name for name, paths in objects.items() for path in paths)
    paths = {tuple(path) for paths in objects.values() for path in paths}
    return {**without(row, OVERFLOW_COLUMN, OBJECTS_COLUMN), "overflow": overflow, "objects": paths}


def raw_row(message: Message) -> Row:
    return {
        "message_id": message.message_id,
        "json_payload": message.payload,
        "publish_time": message.publish_time,
        "ingestion_ts": message.ingestion_ts,
        "landing_seq": message.landing_seq,
        "idempotency_key": message.idempotency_key,
    }


def without_reason(row: Row) -> Row:
    """A parse error without what needs only be there."""
    assert row["error_kind"]
    assert row["error_reason"]
    return without(row, "topic_name", "error_kind", "error_reason", "error_position")


def open_error(row: Row) -> Row:
    assert row["first_seen"]
    rules = [BrokenRule(**rule) for rule in row["broken_rules"]]
    return {**without(row, "topic_name", "first_seen", "closed"), "broken_rules": rules}


def without(row: Row, *names: str) -> Row:
    return {name: value for name, value in row.items() if name not in names}


# What came up: a search that never met these would prove nothing

WHAT_MAY_HAPPEN = (
    *("copy of a message", "copy with another payload", "copy of another day", "copy of a message that is unreadable"),
    *("superseded version", "superseded by one that landed before it", "superseded by one of another day"),
    *("superseded by one of the same moment", "superseded by one with a higher id"),
    *("key in the payload", "key beside the payload", "key that is the message's id"),
    *("new column in a later tick", "column under another name than it would like", "value from a default"),
    "row with more fields than there are columns",
    *("broken rule: cde", "broken rule: type", "broken rule: ambiguous", "row that breaks several rules"),
    *("valid record, now broken", "broken record, now healed", "broken record, now broken otherwise"),
)


def fates(raw: Sequence[Message], source: oracle.Standardized) -> Iterator[str]:
    """What became of the messages of a topic."""
    for message in raw:
        first = source.firsts[message.message_id]
        if message != first:
            yield "copy of a message"
            if message.payload != first.payload:
                yield "copy with another payload"
            if message.publish_time.date() != first.publish_time.date():
                yield "copy of another day"
            if message.message_id in source.refused:
                yield "copy of a message that is unreadable"
    for key, versions in source.versions.items():
        latest = source.latest[key]
        beside = "key beside the payload" if key == latest.idempotency_key else "key in the payload"
        yield "key that is the message's id" if key == latest.message_id else beside
        if source.rows[key]["overflow"]:
            yield "row with more fields than there are columns"
        for other in versions:
            if other != latest:
                yield from _why_superseded(other, latest)


def _why_superseded(other: Message, latest: Message) -> Iterator[str]:
    yield "superseded version"
    if latest.landing_seq < other.landing_seq:
        yield "superseded by one that landed before it"
    if latest.publish_time.date() != other.publish_time.date():
        yield "superseded by one of another day"
    if latest.publish_time == other.publish_time:
        yield "superseded by one of the same moment"
        if latest.ingestion_ts == other.ingestion_ts:
            yield "superseded by one with a higher id"


def judgements(source: oracle.Standardized, curated: oracle.Curated, contract: Contract) -> Iterator[str]:
    """What a contract made of the rows of a topic."""
    for rules in curated.broken.values():
        yield from (f"broken rule: {broken.rule}" for broken in rules)
        if len(rules) > 1:
            yield "row that breaks several rules"
    for key, column in product(curated.rows, contract.payload_columns):
        if column.default is not None and not oracle.texts_of(source, key, column):
            yield "value from a default"


def turns(was: oracle.Curated, now: oracle.Curated) -> Iterator[str]:
    """How records changed sides between two builds."""
    yield from ["valid record, now broken"] * len(was.rows.keys() & now.broken.keys())
    yield from ["broken record, now healed"] * len(was.broken.keys() & now.rows.keys())
    for key in was.broken.keys() & now.broken.keys():
        if was.broken[key] != now.broken[key]:
            yield "broken record, now broken otherwise"


def drift(was: oracle.Standardized, now: oracle.Standardized) -> Iterator[str]:
    """The columns that came with a build."""
    for column in now.plan.columns[len(was.plan.columns) :]:
        if was.rows:
            yield "new column in a later tick"
        if column.name != column_name(column.path):
            yield "column under another name than it would like"


# The properties

Search = Callable[[SearchStrategy[Topic], settings], Counter[str]]
SETTINGS = settings(deadline=None, database=None, print_blob=True, suppress_health_check=list(HealthCheck))


@pytest.fixture
def search(spark: SparkSession, warm_home: Home, monkeypatch: pytest.MonkeyPatch) -> Search:
    """Plays every topic that is drawn, and counts what came up."""
    catalog, numbers = LocalCatalog(warm_home).load(), count()

    def run(topics: SearchStrategy[Topic], chosen: settings) -> Counter[str]:
        seen: Counter[str] = Counter()

        @chosen
        @given(topics)
        def its_tables_are_what_the_oracle_says(topic: Topic) -> None:
            monkeypatch.setattr("leanops.standardized.table.FlattenPlan", partial(FlattenPlan, cap=topic.cap))
            number = next(numbers)
            # Every way to read and to write is tried.
            monkeypatch.setattr("leanops.batch.topics.LARGE_BYTES", 4_000)
            monkeypatch.setattr("leanops.batch.write.REWRITTEN_BYTES", -1 if number % 2 else 8 * 2**20)
            engine = Engine(warm_home, catalog, spark, f"topic{number}")
            play = Play(engine, topic.cap, topic.ticks[0].contract, seen)
            for tick in topic.ticks:
                play.tick(tick)
            play.check_ledger()
            play.note_fates()
            seen["history"] += len(topic.histories)

        its_tables_are_what_the_oracle_says()
        return seen

    return run


@pytest.mark.timeout(900)
def test_the_tables_of_any_history_are_what_the_oracle_says(search: Search) -> None:
    chosen = settings(SETTINGS, max_examples=3, derandomize=True, phases=(Phase.explicit, Phase.generate))
    seen = search(topics(histories=70), chosen)
    print(*(f"{times:6} {what}" for what, times in sorted(seen.items())), sep="\n")
    assert seen["history"] >= 200
    assert not [what for what in WHAT_MAY_HAPPEN if not seen[what]]
    assert len([what for what in seen if what.startswith("parse error")]) >= 6


@pytest.mark.timeout(900)
@pytest.mark.parametrize("columns", [60, 300])
def test_the_tables_of_a_wide_topic_are_what_the_oracle_says(columns: int, search: Search) -> None:
    chosen = settings(SETTINGS, max_examples=1, derandomize=True, phases=(Phase.explicit, Phase.generate))
    assert search(topics(histories=12, columns=columns), chosen)["history"] >= 12


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_the_tables_of_two_thousand_histories_are_what_the_oracle_says(search: Search) -> None:
    """Drawn anew every time. What fails is made smaller, for at most five minutes, as Hypothesis has it."""
    chosen = settings(SETTINGS, max_examples=60, phases=(Phase.explicit, Phase.generate, Phase.shrink))
    assert search(topics(histories=60, at_least=1, mixed=False), chosen)["history"] >= 1000
