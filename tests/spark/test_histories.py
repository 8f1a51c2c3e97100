"""However a topic's messages are cut into ticks, after every build its tables are what the oracle says, row by row.

The histories are drawn in `tests.histories`. Many topics are played at once, tick by tick: a batch of builds costs
seconds, however many topics are in it. When a table differs, the rows that do are shown, with everything that the
histories they belong to have sent; the seed that draws the same topics again is printed.
"""

import json
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import date
from itertools import count, product, zip_longest
from pathlib import Path as FilePath
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import AlwaysTrue, EqualTo
from pyspark.sql import SparkSession

from leanops.batch.isolation import Jobs
from leanops.batch.topics import TopicBuild, TopicTables, built_or_raised
from leanops.commits import Draft
from leanops.contracts.model import Contract
from leanops.curated.build import build_curated
from leanops.curated.built import CuratedBuild
from leanops.home import Home
from leanops.key_index.table import index_of
from leanops.key_index.upkeep import maintain_index
from leanops.ledger.account import Account
from leanops.ledger.draw_up import LedgerRequest, draw_up
from leanops.names import OBJECTS_COLUMN, OVERFLOW_COLUMN, SOURCE, SYSTEM_COLUMNS, Layer, table
from leanops.raw.landing import land_file
from leanops.slices import Slice
from leanops.standardized.build import build_standardized
from leanops.standardized.built import StandardizedBuild
from leanops.standardized.flatten_plan import BoundFields, FlatColumn, FlattenPlan, Path, column_name
from leanops.tables import find_table
from leanops_resources.catalog import LocalCatalog
from tests import oracle
from tests.histories import Build, Tick, Topic, cap_under, history_of, topics
from tests.oracle import BrokenRule, Message

Row = dict[str, Any]
Built = StandardizedBuild | CuratedBuild
Result = TypeVar("Result")


# The engine: these few functions know how it is called


@dataclass(frozen=True)
class CountedJobs(Jobs):
    """Jobs over a layer that say which way the topics went."""

    layer: Layer = Layer.STANDARDIZED
    seen: Counter[str] = field(default_factory=Counter)

    def isolated(
        self, topics: Sequence[str], job: Callable[[Sequence[str]], Mapping[str, Result]], parted: int = 0
    ) -> dict[str, Result | Exception]:
        way = "that topics share" if len(topics) > 1 else "of its own"
        self.seen[f"{self.layer} by a job {way}"] += len(topics)
        return super().isolated(topics, job, parted)


@dataclass(frozen=True)
class Engine:
    """A home with topics, and what its jobs were seen to do."""

    home: Home
    catalog: Catalog
    spark: SparkSession
    patch: pytest.MonkeyPatch
    seen: Counter[str] = field(default_factory=Counter)
    chance: random.Random = field(default_factory=lambda: random.Random(0))
    unindexed: set[str] = field(default_factory=set)
    """The topics whose builds write no key index: the one that they have is stale from then on."""

    def land(self, topic: str, messages: Sequence[Message]) -> None:
        file = self.home.path / "history.ndjson"
        file.write_text("".join(map(envelope_line, messages)), encoding="utf-8")
        land_file(self.catalog, topic, file, date(2025, 1, 1))

    def build(self, layer: Layer, builds: Sequence[tuple[str, Contract, Build]]) -> "Mapping[str, Built | Exception]":
        """Build a layer of some topics; what happened to each."""
        build = build_standardized if layer is Layer.STANDARDIZED else build_curated
        batch = [
            TopicBuild(TopicTables(self.catalog, topic), contract, build.rebuild) for topic, contract, build in builds
        ]
        self.patch.setattr("leanops.batch.topics.LARGE_BYTES", LARGE_BYTES[layer])
        return build(CountedJobs(lambda: self.spark, layer=layer, seen=self.seen), self.catalog, batch)

    def accounts(self, contracts: Mapping[str, Contract]) -> dict[tuple[str, Layer], list[Account] | Exception]:
        """What the ledger says of both layers of some topics."""
        tables = {topic: TopicTables(self.catalog, topic) for topic in contracts}
        requests = [LedgerRequest(tables[topic], contracts[topic], layer) for topic in contracts for layer in SOURCE]
        self.patch.setattr("leanops.batch.topics.LARGE_BYTES", LARGE_LEDGER_BYTES)
        return draw_up(Jobs(lambda: self.spark), self.catalog, requests)

    def accounts_of_part(
        self, layer: Layer, parts: Mapping[str, tuple[Contract, Slice]]
    ) -> dict[tuple[str, Layer], list[Account] | Exception]:
        """What the ledger says of the rows that builds have just taken in."""
        requests = [
            LedgerRequest(TopicTables(self.catalog, topic), contract, layer, part, asks_index=True)
            for topic, (contract, part) in parts.items()
        ]
        self.patch.setattr("leanops.batch.topics.LARGE_BYTES", LARGE_BYTES[layer])
        return draw_up(Jobs(lambda: self.spark), self.catalog, requests)

    def wear_index(self, topic: str) -> None:
        """Have something happen to a topic's key index, as it may between two ticks."""
        held = find_table(self.catalog, table(Layer.STANDARDIZED, topic))
        if held is None or held.current_snapshot() is None:
            return
        self.unindexed.discard(topic)
        index, what = index_of(held), self.chance.choice(WEAR)
        file = FilePath(index.statistics_path.removeprefix("file://")) if index else None
        if file is None or not file.exists():
            # Most have one, or there would be nothing to happen to it.
            what = "made anew" if self.chance.random() < 0.5 else "missing"
        elif what == "removed":
            file.unlink()
        elif what == "damaged":
            content = bytearray(file.read_bytes())
            content[self.chance.randrange(len(content))] ^= 1 << self.chance.randrange(8)
            file.write_bytes(content)
        elif what == "not kept":
            self.unindexed.add(topic)
        if what == "made anew":
            raw = self.catalog.load_table(table(Layer.RAW, topic))
            maintain_index(lambda: self.spark, topic, raw, held)
        self.seen[f"key index that is {what}"] += 1

    def columns(self, topic: str, layer: Layer) -> list[str]:
        return [each.name for each in self.catalog.load_table(table(layer, topic)).schema().fields]

    def rows(self, topic: str, layer: Layer) -> list[Row]:
        """What a table holds of a topic."""
        is_shared = layer in (Layer.PARSE_ERRORS, Layer.ERRORS)
        own = EqualTo("topic_name", topic) if is_shared else AlwaysTrue()  # type: ignore[call-arg, misc]
        rows: list[Row] = self.catalog.load_table(table(layer, topic)).scan(row_filter=own).to_arrow().to_pylist()
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


# Topics, played tick by tick


@dataclass
class Play:
    """What has happened to a topic so far, and what its tables must hold by now."""

    engine: Engine
    name: str
    topic: Topic
    seen: Counter[str]
    contract: Contract = field(init=False)
    sent: list[Message] = field(default_factory=list)
    raw: list[Message] = field(default_factory=list)
    standardized: oracle.Standardized | None = None
    curated: oracle.Curated = field(default_factory=oracle.Curated)
    once_broken: set[int] = field(default_factory=set)

    def begin(self, tick: Tick) -> None:
        self.contract = tick.contract
        if tick.messages:
            self.engine.land(self.name, tick.messages)
            self.sent += tick.messages
            self.check_raw()

    def check(self, layer: Layer) -> None:
        match layer:
            case Layer.STANDARDIZED:
                self.check_standardized()
            case Layer.CURATED:
                self.check_curated()

    def expected_of(self, raw: Sequence[Message]) -> oracle.Standardized:
        return oracle.standardized_under(self.contract, raw, self.topic.cap)

    def check_raw(self) -> None:
        """RAW holds what was sent, to the letter and in order. From here on the oracle goes by what RAW holds."""
        rows = sorted(self.engine.rows(self.name, Layer.RAW), key=lambda row: row["landing_seq"])
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
        assert set(self.engine.columns(self.name, Layer.STANDARDIZED)) == system | fields

        rows, errors = self.engine.rows(self.name, Layer.STANDARDIZED), self.engine.rows(self.name, Layer.PARSE_ERRORS)
        with self.explained("Standardized"):
            assert_same(
                {key: standardized_row(expected, key) for key in expected.rows},
                by("idempotency_key", map(with_overflow_read, rows)),
            )
        with self.explained("parse_errors"):
            assert_same(
                {seq: raw_row(message) for seq, message in expected.refused.items()},
                by("landing_seq", map(without_reason, errors)),
            )
        assert len(self.raw) == len(rows) + len(errors) + expected.duplicates + expected.superseded
        self.seen.update(drift(was, expected))

    def check_curated(self) -> None:
        """Curated is compared with what Standardized was when it was last built."""
        source = self.standardized or self.expected_of([])
        was = self.curated
        self.curated = expected = oracle.curated(source, self.contract)
        rows, errors = self.engine.rows(self.name, Layer.CURATED), self.engine.rows(self.name, Layer.ERRORS)
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

        broken_now = {source.latest[key].landing_seq for key in expected.broken}
        assert {row["landing_seq"] for row in errors if row["closed"] is not None} == self.once_broken - broken_now
        self.once_broken |= broken_now
        self.seen.update(turns(was, expected))

    def check_ledger(self, standardized: Sequence[Account], curated: Sequence[Account]) -> None:
        """The ledger closes, row by row, and its sums are the oracle's."""
        expected = self.standardized
        assert expected
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
        self.seen["history"] += len(self.topic.histories)
        self.seen.update(f"parse error: {row['error_kind']}" for row in self.engine.rows(self.name, Layer.PARSE_ERRORS))

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


class TopicFailed(Exception):
    """A topic whose tables are not what they must be, or that could not be built; the cause says what is wrong."""

    def __init__(self, place: int, topic: Topic) -> None:
        super().__init__(f"Topic {place} of the batch: {topic!r}")
        self.place = place


def play_together(engine: Engine, names: Iterator[str], batch: Sequence[Topic], seen: Counter[str]) -> None:
    """Play topics side by side: each tick lands of all, and each layer is built of all that have it built then."""
    plays = [Play(engine, next(names), topic, seen) for topic in batch]

    @contextmanager
    def blamed(play: Play) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            raise TopicFailed(plays.index(play), play.topic) from error

    for ticks in zip_longest(*(topic.ticks for topic in batch)):
        for play, tick in zip(plays, ticks, strict=True):
            if tick:
                with blamed(play):
                    play.begin(tick)
        todo = [(play, [*tick.builds]) for play, tick in zip(plays, ticks, strict=True) if tick]
        while any(builds for _, builds in todo):
            for layer in SOURCE:
                now = [(play, builds.pop(0)) for play, builds in todo if builds and builds[0].layer is layer]
                for play, _ in now:
                    engine.wear_index(play.name)
                outcomes = engine.build(layer, [(play.name, play.contract, build) for play, build in now])
                parts: dict[str, tuple[Contract, Slice]] = {}
                for play, _ in now:
                    with blamed(play):
                        built = built_or_raised(outcomes[play.name])
                        play.check(layer)
                    if part := built.part:
                        parts[play.name] = (play.contract, part)
                drawn = engine.accounts_of_part(layer, parts)
                for play, _ in now:
                    with blamed(play):
                        if play.name in parts:
                            assert all(each.is_clean for each in built_or_raised(drawn[play.name, layer]))

    accounts = engine.accounts({play.name: play.contract for play in plays})
    for play in plays:
        with blamed(play):
            play.check_ledger(*(built_or_raised(accounts[play.name, layer]) for layer in SOURCE))
            play.note_fates()


# Rows


class Difference(Exception):
    """Rows that are not what they must be."""

    def __init__(self, message_ids: Iterable[str], text: str) -> None:
        super().__init__(text)
        self.histories = {history_of(message_id) for message_id in message_ids}


def assert_same(expected: Mapping[Any, Row], found: Mapping[Any, Row], shown: int = 3) -> None:
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


def by(name: str, rows: Iterable[Row]) -> dict[Any, Row]:
    """Rows by what must be unique among them."""
    keyed: dict[Any, Row] = {}
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
    *(
        "copy of a message",
        "copy of a message after the horizon",
        "copy with another payload",
        "copy of another day",
        "copy of a message that is unreadable",
    ),
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
    first_of: dict[str, Message] = {}
    for message in raw:
        first = first_of.setdefault(message.message_id, message)
        if first != message and message.landing_seq in source.firsts:
            yield "copy of a message after the horizon"
            first_of[message.message_id] = message
        elif first != message:
            yield "copy of a message"
            if message.payload != first.payload:
                yield "copy with another payload"
            if message.publish_time.date() != first.publish_time.date():
                yield "copy of another day"
            if first.landing_seq in source.refused:
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

Search = Callable[..., Counter[str]]
WEAR = (*["whole"] * 6, "removed", "damaged", "not kept", "made anew")
"""What happens to the key index of a topic before it is built."""

WAYS = (
    *(f"{layer} by a job {way}" for layer in SOURCE for way in ("of its own", "that topics share")),
    "rows taken out of files",
    *(f"key index that is {what}" for what in dict.fromkeys(WEAR)),
    *(f"key index {what}" for what in ("of one file", "of two files")),
)
"""Every way to read and to write is tried."""

LARGE_BYTES = {Layer.STANDARDIZED: 70_000, Layer.CURATED: 300_000}
"""What is read of the larger topics is more in some ticks, and less in others."""

LARGE_LEDGER_BYTES = 1_200_000
"""The ledgers of the largest topics are drawn up alone, and those of the others together."""

SHARE_BYTES, SHARE_ROWS = 200_000, 50
"""A large topic is written by several workers, or by one several times; and several look at its rows."""

MOST_YOUNG = 100
"""Some builds put all entries of the key index together, and others do not."""

SETTINGS = settings(deadline=None, database=None, suppress_health_check=list(HealthCheck), report_multiple_bugs=False)


def plan_under(
    columns: tuple[FlatColumn, ...] = (),
    cap: int | None = None,
    bound: BoundFields = BoundFields(),  # noqa: B008 - it is frozen
    key: Path | None = None,
) -> FlattenPlan:
    """A plan with the cap of the topic that it is for."""
    return FlattenPlan(columns, cap_under(bound) if cap is None else cap, bound, key)


@pytest.fixture
def engine(spark: SparkSession, warm_home: Home, monkeypatch: pytest.MonkeyPatch) -> Engine:
    engine, publish = Engine(warm_home, LocalCatalog(warm_home).load(), spark, monkeypatch), Draft.publish

    def publish_and_tell(draft: Draft, written: Any, *more: Any) -> Any:
        engine.seen["rows taken out of files"] += len(written.gone)
        if written.index and draft.table.name()[1] in engine.unindexed:
            written = replace(written, index=None)
        if written.index:
            engine.seen[f"key index of {'two files' if written.index.base else 'one file'}"] += 1
        return publish(draft, written, *more)

    monkeypatch.setattr(Draft, "publish", publish_and_tell)
    monkeypatch.setattr("leanops.standardized.table.FlattenPlan", plan_under)
    monkeypatch.setattr("leanops.batch.write.SHARE_BYTES", SHARE_BYTES)
    monkeypatch.setattr("leanops.ledger.shares.SHARE_ROWS", SHARE_ROWS)
    monkeypatch.setattr("leanops.key_index.file.MOST_YOUNG", MOST_YOUNG)
    return engine


@pytest.fixture
def search(engine: Engine) -> Search:
    """Plays topics that are drawn, so many at once, and counts what came up."""
    names = (f"topic{number}" for number in count())

    def run(
        *strategies: tuple[SearchStrategy[Topic], int], at_once: int, first: int = 0, shrunk: bool = False
    ) -> Counter[str]:
        seen: Counter[str] = Counter()
        print(f"The seed is {first}.")
        drawn = [
            (each, place, topic) for each, number in strategies for place, topic in enumerate(draw(each, number, first))
        ]
        for start in range(0, len(drawn), at_once):
            batch = drawn[start : start + at_once]
            try:
                play_together(engine, names, [topic for _, _, topic in batch], seen)
            except TopicFailed as failed:
                if shrunk:
                    strategy, place, topic = batch[failed.place]
                    # Most that fails is one history's, and those of a topic can all be tried at once.
                    histories = [topic.only(history) for history in sorted(topic.histories)]
                    play_together(engine, names, histories, seen)
                    shrink(strategy, place, first, lambda topic: play_together(engine, names, [topic], seen))
                    failed.add_note("It passes when it is played alone.")
                raise
        return seen + engine.seen

    return run


def draw(strategy: SearchStrategy[Topic], number: int, first: int) -> list[Topic]:
    """So many topics; the same ones for the same seed."""
    drawn: list[Topic] = []

    @seed(first)
    @settings(SETTINGS, max_examples=number, phases=[Phase.generate])
    @given(strategy)
    def keep(topic: Topic) -> None:
        drawn.append(topic)

    keep()
    return drawn


def shrink(strategy: SearchStrategy[Topic], place: int, first: int, play: Callable[[Topic], None]) -> None:
    """Draw a topic again that has failed among others, and none of whose histories fails by itself.

    Hypothesis looks for a simpler one that fails, too, for at most five minutes.
    """
    numbers, has_failed = count(), False

    @seed(first)
    @settings(SETTINGS, max_examples=place + 1, phases=[Phase.generate, Phase.shrink])
    @given(strategy)
    def its_tables_are_what_the_oracle_says(topic: Topic) -> None:
        nonlocal has_failed
        if next(numbers) == place or has_failed:
            has_failed = True
            play(topic)

    its_tables_are_what_the_oracle_says()


@pytest.mark.timeout(900)
def test_the_tables_of_any_history_are_what_the_oracle_says(search: Search) -> None:
    """Of topics of all sizes, and of contracts with 60 and with 300 columns."""
    wide = [(topics(histories=12, columns=columns), 1) for columns in (60, 300)]
    seen = search((topics(histories=50), 2), (topics(histories=16), 8), *wide, at_once=12)
    print(*(f"{times:6} {what}" for what, times in sorted(seen.items())), sep="\n")
    assert seen["history"] >= 220
    assert not [what for what in (*WHAT_MAY_HAPPEN, *WAYS) if not seen[what]]
    assert len([what for what in seen if what.startswith("parse error")]) >= 6


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_the_tables_of_two_thousand_histories_are_what_the_oracle_says(search: Search) -> None:
    """Drawn anew every time. What fails is made smaller."""
    drawn = topics(histories=60, at_least=1, mixed=False)
    seen = search((drawn, 100), at_once=20, first=random.SystemRandom().randrange(2**32), shrunk=True)
    assert seen["history"] >= 2000
    assert not [what for what in WAYS if not seen[what]]
