"""From the landing folder to RAW: every message lands, is a dead letter, or waits; and the books always close."""

import os
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from leanops.errors import DiskFull, LandingConflict, StateBusy
from leanops.home import Home
from leanops.ingestion import breaker as breaker_module
from leanops.ingestion.breaker import Circuit
from leanops.ingestion.messages import QueueMessage
from leanops.names import Layer, table
from leanops.raw import landing as landing_module
from leanops.raw.dead_letters import DEAD_LETTERS
from leanops_assets.raw import drain as drain_module
from leanops_assets.raw.queue_ledger import QueueAccount, queue_accounts
from leanops_resources.dlq_archive import FolderArchive
from leanops_resources.sources.folder import FolderSource, LandingFolder
from leanops_resources.sources.source import Source
from leanops_resources.state.lease import lease, leases
from leanops_resources.state.sqlite import SqliteStateStore
from leanops_resources.state.store import Delivery, Table
from tests.draining import Landing, envelope, killed_drain

from .conftest import NoRoomBeyond

DAY, NEXT = date(2025, 3, 1), date(2025, 3, 2)
BAD = [b"no envelope", b"\xff\xfe", b'{"message_id": "b3", "publish_time": "never", "payload": {}}']


@pytest.fixture
def landing(home: Home) -> Landing:
    return Landing(home)


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.moment = datetime(2026, 1, 31, 8, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.moment


class InMemory(Source):
    """A source that does as it is told."""

    def __init__(self, topic: str, batches: Sequence[Sequence[QueueMessage] | Exception]) -> None:
        self.topic = self.name = topic
        self.batches = list(batches)
        self.deleted: list[QueueMessage] = []
        self.given_back: list[QueueMessage] = []

    def receive(self, most: int, most_bytes: int) -> Sequence[QueueMessage]:  # noqa: ARG002 - it has its own batches
        if not self.batches:
            return []
        batch = self.batches.pop(0)
        if isinstance(batch, Exception):
            raise batch
        return batch

    def delete(self, messages: Sequence[QueueMessage]) -> int:
        self.deleted += messages
        return 0

    def give_back(self, messages: Sequence[QueueMessage]) -> None:
        self.given_back += messages

    def waiting(self) -> int:
        return len(self.batches)


def messages(topic: str, *ids: str, receives: int = 1) -> list[QueueMessage]:
    return [QueueMessage(topic, each, envelope(each), receives) for each in ids]


def test_files_of_many_topics_land_by_their_days_and_are_gone(landing: Landing) -> None:
    landing.drop("orders", [envelope("a1"), envelope("a2", NEXT)], "1.ndjson")
    landing.drop("orders", [envelope("a3")], "2.ndjson")
    landing.drop("payments", [envelope("p1")])
    drained = landing.drain()
    assert drained["orders"].landed == {DAY: 2, NEXT: 1}
    assert drained["orders"].commits == drained["payments"].commits == 1
    assert landing.raw("orders") == Counter(["a1", "a2", "a3"])
    assert landing.raw("payments") == Counter(["p1"])
    assert landing.left() == []
    for topic in ("orders", "payments"):
        landing.require_closed(topic)


def test_messages_land_in_the_order_in_which_they_stand_in_their_files(landing: Landing) -> None:
    for number in (2, 1, 3):
        landing.drop("orders", [envelope(f"{number}{place}") for place in "abc"], f"{number}.ndjson")
    landing.drain()
    rows = landing.catalog.load_table(table(Layer.RAW, "orders")).scan().to_arrow().sort_by("landing_seq")
    assert rows["message_id"].to_pylist() == ["1a", "1b", "1c", "2a", "2b", "2c", "3a", "3b", "3c"]


def test_what_cannot_land_is_a_dead_letter_with_its_body_and_its_reason(landing: Landing) -> None:
    landing.drop("orders", [*BAD, *(envelope(f"m{number}") for number in range(30))])
    drained = landing.drain()["orders"]
    assert (drained.landed.total(), drained.dead.total(), drained.skipped) == (30, 3, None)
    letters = {row["reason"]: row for row in landing.dead("orders")}
    assert [Path(row["body_archive"]).read_bytes() for row in letters.values()] == BAD
    never = letters["publish_time 'never' is no ISO 8601 time, such as 2026-01-31T08:15:00Z."]
    assert (never["message_id"], never["fault"], never["receives"], never["closed"]) == ("b3", "malformed", 1, None)
    assert never["handle"].startswith("messages.ndjson@")
    assert never["handle"].endswith(":3")
    tracked = {error.error_id: (error.kind, error.message) for error in landing.store.open_errors("orders")}
    assert tracked == {row["dead_letter_id"]: (row["fault"], row["reason"]) for row in letters.values()}
    landing.require_closed("orders")


def test_a_large_source_is_committed_in_parts_of_the_buffers_size(landing: Landing) -> None:
    lines = [envelope(f"m{number:03}", text="x" * 1000) for number in range(100)]
    landing.drop("orders", lines)
    drained = landing.drain(buffer_bytes=20_000)["orders"]
    assert drained.landed == {DAY: 100}
    assert 5 <= drained.commits <= 7
    assert landing.raw("orders") == Counter(f"m{number:03}" for number in range(100))
    assert landing.left() == []
    landing.require_closed("orders")


def test_a_buffer_is_committed_when_it_is_old_however_little_it_holds(landing: Landing) -> None:
    batches = [messages("orders", "a"), messages("orders", "b"), messages("orders", "c")]
    assert landing.drain([InMemory("orders", batches)], buffer_seconds=0)["orders"].commits == 3
    assert landing.drain([InMemory("orders", batches)])["orders"].commits == 1


def test_one_topic_that_fails_leaves_the_others_alone(landing: Landing) -> None:
    good = InMemory("payments", [messages("payments", "p1")])
    throttled = InMemory("orders", [messages("orders", "a1"), TimeoutError("the queue does not answer")])
    drained = landing.drain([throttled, good])
    assert drained["payments"].problem is None
    assert drained["orders"].problem == "TimeoutError: the queue does not answer"
    assert landing.raw("payments") == Counter(["p1"])
    # What had been received before the fault has landed.
    assert landing.raw("orders") == Counter(["a1"])
    assert [message.handle for message in throttled.deleted] == ["a1"]


def test_a_topic_that_is_being_drained_is_left_to_that_drain(landing: Landing) -> None:
    landing.drop("orders", [envelope("a1")])
    with lease(landing.store, "drain/orders", "somebody", timedelta(0)):
        drained = landing.drain()["orders"]
    assert drained.skipped
    assert "somebody is at work on drain/orders" in drained.skipped
    assert landing.left() == ["orders/messages.ndjson"]
    assert landing.drain()["orders"].landed == {DAY: 1}


def test_a_topic_that_is_named_twice_is_drained_once(landing: Landing) -> None:
    landing.drop("orders", [envelope("a1")])
    landing.drain([*landing.sources(), *landing.sources()])
    assert landing.raw("orders") == Counter(["a1"])
    landing.require_closed("orders")


def test_a_drain_that_has_lost_a_topics_lock_commits_nothing_of_it(landing: Landing) -> None:
    class TakenOver(InMemory):
        def receive(self, most: int, most_bytes: int) -> Sequence[QueueMessage]:
            lock = landing.store.holder("drain/orders")
            if lock and self.batches:
                landing.store.release(lock)
                assert landing.store.acquire("drain/orders", "elsewhere/1/another drain")
                until_told.wait(30)
            return super().receive(most, most_bytes)

    until_told = threading.Event()
    renew = landing.store.renew_many

    def renew_and_tell(*arguments: Any) -> Any:
        answer = renew(*arguments)
        until_told.set()
        return answer

    orders, payments = (
        TakenOver("orders", [messages("orders", "a1")]),
        InMemory("payments", [messages("payments", "p1")]),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(landing.store, "renew_many", renew_and_tell)
        patch.setattr(drain_module, "leases", partial(leases, ttl=timedelta(seconds=1.5)))
        drained = landing.drain([orders, payments])
    assert "no longer holds the lock 'drain/orders'" in (drained["orders"].problem or "")
    assert (landing.raw("orders"), orders.deleted, orders.given_back) == (Counter(), [], [])
    assert landing.raw("payments") == Counter(["p1"])


def test_a_store_that_gives_no_locks_is_told_of_every_topic(landing: Landing, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise StateBusy("The state is locked.", "Again.")

    landing.drop("orders", [envelope("a1")])
    landing.drop("payments", [envelope("p1")])
    monkeypatch.setattr(landing.store, "acquire_many", refuse)
    assert {each.problem for each in landing.drain().values()} == {"The state is locked. Again."}


def test_a_message_that_makes_its_batch_fail_is_found_and_the_others_land(
    landing: Landing, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = landing_module._rows

    def refuse_poison(envelopes: Sequence[Any], *others: Any) -> Any:
        if any(envelope.message_id == "poison" for envelope in envelopes):
            raise KeyError("a bug that one message meets")
        return rows(envelopes, *others)

    monkeypatch.setattr(landing_module, "_rows", refuse_poison)
    ids = [f"m{number}" for number in range(40)]
    ids[17] = "poison"
    landing.drop("orders", map(envelope, ids))
    for receives in range(1, 5):
        drained = landing.drain()["orders"]
        assert (drained.given_back, drained.dead.total()) == (1, 0), receives
        assert len(landing.left()) == 1
    drained = landing.drain()["orders"]
    assert (drained.given_back, drained.dead.total()) == (0, 1)
    assert landing.raw("orders") == Counter(each for each in ids if each != "poison")
    (letter,) = landing.dead("orders")
    assert (letter["message_id"], letter["fault"], letter["receives"]) == ("poison", "unknown", 5)
    assert landing.left() == []
    landing.drain([LandingFolder(landing.home.landing).of("orders")])
    landing.require_closed("orders")


def test_what_the_outside_refuses_for_a_moment_is_tried_again(
    landing: Landing, monkeypatch: pytest.MonkeyPatch
) -> None:
    append, refusals = landing_module.append_raw, iter([True, True, False])

    def refuse_twice(*arguments: Any) -> Any:
        if next(refusals):
            raise LandingConflict("Others were faster.", "Again.")
        return append(*arguments)

    monkeypatch.setattr(landing_module, "append_raw", refuse_twice)
    landing.drop("orders", [envelope("a1")])
    assert landing.drain()["orders"].landed == {DAY: 1}
    landing.require_closed("orders")


def test_a_commit_whose_answer_was_lost_is_not_made_twice(landing: Landing, monkeypatch: pytest.MonkeyPatch) -> None:
    append, answers = landing_module.append_raw, iter([False, True, True])

    def lose_the_first_answer(*arguments: Any) -> Any:
        result = append(*arguments)
        if not next(answers):
            raise TimeoutError("no answer")
        return result

    monkeypatch.setattr(landing_module, "append_raw", lose_the_first_answer)
    landing.drop("orders", [envelope("a1")])
    assert landing.drain()["orders"].landed == {DAY: 1}
    assert landing.raw("orders") == Counter(["a1"])
    landing.require_closed("orders")


def test_a_full_disk_at_the_commit_loses_nothing(landing: Landing, no_room_beyond: NoRoomBeyond) -> None:
    lines = [envelope(f"m{number}", text=os.urandom(2000).hex()) for number in range(500)]
    landing.drop("orders", lines)
    with no_room_beyond(400_000):
        drained = landing.drain()["orders"]
    assert drained.problem
    assert drained.problem.startswith("There is no room left under ")
    assert landing.raw("orders") == Counter()
    assert landing.left() == ["orders/messages.ndjson"]
    assert [account.in_flight for account in queue_accounts(landing.catalog, landing.store, "orders")] == [500]
    assert landing.drain()["orders"].landed == {DAY: 500}
    assert landing.left() == []
    landing.require_closed("orders")


def test_a_full_disk_while_dead_letters_are_archived_loses_none(landing: Landing, no_room_beyond: NoRoomBeyond) -> None:
    landing.drop("orders", [b"x" * 300_000, *(envelope(f"m{number}") for number in range(10))])
    with no_room_beyond(200_000):
        assert landing.drain()["orders"].problem
    assert landing.left() == ["orders/messages.ndjson"]
    drained = landing.drain()["orders"]
    assert (drained.landed.total(), drained.dead.total()) == (10, 1)
    landing.require_closed("orders")


def test_a_message_that_is_delivered_three_times_is_counted_three_times_and_a_dead_letter_once(
    landing: Landing,
) -> None:
    bad = QueueMessage("orders", "h-bad", b"no envelope")
    for receives in (1, 2, 3):
        batch = [*messages("orders", "a1", receives=receives), bad._replace(receives=receives)]
        source = InMemory("orders", [batch])
        landing.drain([source])
        assert source.deleted == batch
        landing.require_closed("orders")
    assert landing.raw("orders") == Counter({"a1": 3})
    assert len(landing.dead("orders")) == 1


def test_empty_huge_and_unreadable_bodies_are_all_accounted_for(landing: Landing) -> None:
    bodies = [b"", b"\xff" * 100, envelope("big", text="é" * 131_072), b'{"message_id": "cut', b"[" * 100_000]
    batch = [QueueMessage("orders", str(place), body) for place, body in enumerate(bodies)]
    source = InMemory("orders", [batch])
    drained = landing.drain([source])["orders"]
    assert (drained.landed.total(), drained.dead.total(), len(source.deleted)) == (1, 4, 5)
    assert sorted(row["body_bytes"] for row in landing.dead("orders")) == sorted(
        len(body) for body in bodies if b"big" not in body
    )
    landing.require_closed("orders")


def test_a_clock_that_jumps_neither_loses_nor_holds_back_messages(home: Home) -> None:
    clock = Clock()
    landing = Landing(home, clock)
    for number, jump in enumerate((0, 400, -800, 3650, -3650)):
        clock.moment += timedelta(days=jump) if clock.moment.year + jump // 365 > 2024 else timedelta(0)
        landing.drop("orders", [envelope(f"m{number}")])
        drained = landing.drain()["orders"]
        assert drained.problem is None
        landing.require_closed("orders")
    landed, dead = landing.raw("orders"), {row["message_id"] for row in landing.dead("orders")}
    assert {*landed, *dead} == {f"m{number}" for number in range(5)}
    assert landing.left() == []


# Many topics at once


@pytest.fixture(params=[1, 4])
def fleet(request: pytest.FixtureRequest, home: Home) -> Landing:
    """Forty topics with a dead letter each, of which several are committed at a time, or one."""
    landing = Landing(home, threads=request.param)
    drop_in_fleet(landing, 0)
    return landing


TOPICS = [f"topic_{number:02}" for number in range(40)]


def drop_in_fleet(landing: Landing, number: int) -> None:
    for topic in TOPICS:
        good = (envelope(f"{topic}-{number}-{each}", day) for each in range(3) for day in (DAY, NEXT))
        landing.drop(topic, [*good, f"{topic} {number} is no envelope".encode()], f"{number}.ndjson")


def require_whole(landing: Landing, drops: int) -> None:
    """Every topic has all of it, and its books are closed."""
    assert landing.left() == []
    for topic in TOPICS:
        sent = {f"{topic}-{number}-{each}" for number in range(drops) for each in range(3)}
        assert landing.raw(topic) == Counter(dict.fromkeys(sent, 2)), topic
        assert len(landing.dead(topic)) == drops
        landing.require_closed(topic)


def test_many_topics_are_committed_each_to_its_own_table(fleet: Landing) -> None:
    for drops in (1, 2):
        drained = fleet.drain()
        assert [each.problem for each in drained.values() if each.problem] == []
        assert {(each.landed[DAY], each.landed[NEXT], each.dead.total()) for each in drained.values()} == {(3, 3, 1)}
        require_whole(fleet, drops)
        drop_in_fleet(fleet, drops)


def test_the_state_store_is_not_asked_more_often_for_more_topics(
    fleet: Landing, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet.drain()
    drop_in_fleet(fleet, 1)
    transaction, asked = SqliteStateStore._transaction, []

    def counted(store: SqliteStateStore) -> Any:
        asked.append(store)
        return transaction(store)

    monkeypatch.setattr(SqliteStateStore, "_transaction", counted)
    fleet.drain()
    assert len(asked) <= 5 + 2 * 6, "to begin and to end, and for each of two groups"


def test_a_table_is_loaded_when_a_drain_begins_and_by_the_commit_itself(
    fleet: Landing, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet.drain()
    drop_in_fleet(fleet, 1)
    load, loaded = type(fleet.catalog).load_table, Counter[str]()

    def counted(catalog: Any, identifier: Any) -> Any:
        loaded[identifier[-1]] += 1
        return load(catalog, identifier)

    monkeypatch.setattr(type(fleet.catalog), "load_table", counted)
    fleet.drain()
    assert {table(Layer.RAW, topic)[1]: loaded[table(Layer.RAW, topic)[1]] for topic in TOPICS} == dict.fromkeys(
        (table(Layer.RAW, topic)[1] for topic in TOPICS), 2
    )


def test_dead_letters_of_many_topics_are_one_commit(fleet: Landing) -> None:
    fleet.drain()
    letters = fleet.catalog.load_table(DEAD_LETTERS)
    assert len(letters.snapshots()) == 2, "one for each group"


HIS = "topic_07"
REFUSALS: dict[str, tuple[Any, str, Callable[..., bool]]] = {
    "commit": (landing_module, "append_raw", lambda raw, *_: raw.name() == table(Layer.RAW, HIS)),
    "archive": (FolderArchive, "put", lambda _, letter: letter.message.topic == HIS),
    "note": (SqliteStateStore, "note_deliveries", lambda _, noted: HIS in {each.topic for each in noted}),
    "count": (
        SqliteStateStore,
        "count_deliveries",
        lambda store, ids: bool({each.delivery_id for each in store.open_deliveries(HIS)} & {*ids}),
    ),
    "breaker": (SqliteStateStore, "save_breakers", lambda _, breakers: HIS in breakers),
    "delete": (FolderSource, "delete", lambda source, _: source.topic == HIS),
}


@pytest.mark.parametrize("what", REFUSALS)
def test_of_a_group_the_topic_that_fails_fails_alone_wherever_it_does(
    what: str, fleet: Landing, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder, name, is_his = REFUSALS[what]
    function = getattr(holder, name)

    def refuse(*arguments: Any) -> Any:
        if is_his(*arguments):
            raise KeyError(f"{HIS} fails")
        return function(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(holder, name, refuse)
        drained = fleet.drain()
    failed = {topic for topic, each in drained.items() if each.problem or each.given_back}
    assert failed == {HIS}
    assert all(drained[topic].landed == {DAY: 3, NEXT: 3} for topic in TOPICS if topic != HIS)
    fleet.drain([LandingFolder(fleet.home.landing).of(HIS)])
    assert fleet.left() == []
    assert set(fleet.raw(HIS)) == {f"{HIS}-0-{each}" for each in range(3)}
    for topic in TOPICS:
        assert len(fleet.dead(topic)) == 1
        fleet.require_closed(topic)


@pytest.mark.parametrize(
    ("place", "call"),
    [
        ("leanops.raw.landing:append_raw", 20),
        ("leanops_resources.state.sqlite:SqliteStateStore.count_deliveries", 2),
        ("leanops_resources.state.sqlite:SqliteStateStore.count_deliveries", 3),
        ("leanops_resources.sources.folder:FolderSource.delete", 20),
    ],
)
def test_a_drain_of_many_topics_that_is_killed_among_them_loses_nothing(home: Home, place: str, call: int) -> None:
    landing = Landing(home)
    drop_in_fleet(landing, 0)
    killed_drain(home.path, place, call, is_before=True)
    drained = landing.drain()
    assert [each.problem for each in drained.values() if each.problem] == []
    # A file whose removal was interrupted, and all of which is in RAW, waits until its topic is drained again.
    assert [each for each in landing.left() if ".leanops.aside." not in each] == []
    for topic in TOPICS:
        found = landing.raw(topic)
        assert set(found) == {f"{topic}-0-{each}" for each in range(3)}
        assert set(found.values()) <= {2, 4}, "whole commits came twice, and nothing else"
        assert len(landing.dead(topic)) == 1
        landing.require_closed(topic)


# The circuit breaker


def test_a_topic_most_of_whose_messages_fail_is_held_back_and_tried_again_later(home: Home) -> None:
    clock = Clock()
    landing = Landing(home, clock)
    landing.drop("orders", [b"nonsense"] * 21 + [envelope(f"m{number}") for number in range(19)], "1.ndjson")
    landing.drop("orders", [envelope(f"n{number}") for number in range(30)], "2.ndjson")
    landing.drop("payments", [envelope("p1")])
    drained = landing.drain(buffer_bytes=1)
    assert drained["orders"].skipped
    assert "Its circuit opened: " in drained["orders"].skipped
    assert drained["payments"].landed == {DAY: 1}
    assert landing.store.breaker("orders").circuit is Circuit.OPEN

    waiting = landing.left()
    drained = landing.drain()
    assert drained["orders"].skipped
    assert "Its circuit is open: " in drained["orders"].skipped
    assert landing.left() == waiting

    clock.moment += breaker_module.PAUSE
    drained = landing.drain()
    assert drained["orders"].commits >= 2, "a trial batch first, and then the rest"
    assert landing.store.breaker("orders").circuit is Circuit.CLOSED
    assert landing.left() == []
    landing.require_closed("orders")


def test_a_trial_batch_that_fails_keeps_the_circuit_open(home: Home) -> None:
    clock = Clock()
    landing = Landing(home, clock)
    landing.drop("orders", [b"nonsense"] * 60)
    landing.drain(buffer_bytes=200)
    assert landing.store.breaker("orders").circuit is Circuit.OPEN
    dead = len(landing.dead("orders"))
    assert dead < 60
    clock.moment += breaker_module.PAUSE
    drained = landing.drain()["orders"]
    assert landing.store.breaker("orders").circuit is Circuit.OPEN
    assert drained.dead.total() == breaker_module.TRIAL_MESSAGES
    landing.require_closed("orders")


# The books


def test_what_was_there_before_anybody_counted_is_adopted(landing: Landing) -> None:
    landing.drop("orders", [*BAD, *(envelope(f"m{number}") for number in range(10))])
    landing.drain()
    home = landing.home
    for file in home.path.glob("state.*"):
        file.unlink()
    anew = Landing(home)
    anew.drop("orders", [envelope("later")])
    anew.drain()
    anew.require_closed("orders")


def test_a_row_that_leaves_raw_behind_the_platforms_back_is_missed(landing: Landing) -> None:
    landing.drop("orders", [envelope("a1"), envelope("a2"), envelope("b1", NEXT)])
    landing.drain()
    landing.catalog.load_table(table(Layer.RAW, "orders")).delete("message_id = 'a2'")
    found = {each.day: each for each in queue_accounts(landing.catalog, landing.store, "orders")}
    assert found[NEXT].closes
    assert found[DAY].problem == "1 messages were received, and are neither in RAW nor dead letters."
    assert found[DAY].accounted == 50.0


def test_a_row_that_nobody_has_received_is_found(landing: Landing) -> None:
    landing.drop("orders", [envelope("a1")])
    landing.drain()
    raw = landing.catalog.load_table(table(Layer.RAW, "orders"))
    raw.append(raw.scan().to_arrow())
    (account,) = queue_accounts(landing.catalog, landing.store, "orders")
    assert account.problem == "1 messages stand in RAW or among the dead letters that nobody has received."


@pytest.mark.parametrize(
    ("account", "in_flight", "closes"),
    [
        (QueueAccount("t", DAY), 0, True),
        (QueueAccount("t", DAY, received=5, raw=3, dead_letters=2), 0, True),
        (QueueAccount("t", DAY, received=5, uncounted=4, raw=3, dead_letters=2), 4, True),
        (QueueAccount("t", DAY, received=5, uncounted=4, raw=7, dead_letters=2), 0, True),
        (QueueAccount("t", DAY, received=5, uncounted=4, raw=8, dead_letters=2), -1, False),
        (QueueAccount("t", DAY, received=5, uncounted=4, raw=2, dead_letters=2), 5, False),
    ],
)
def test_an_account_closes_if_all_is_there_or_on_its_way(account: QueueAccount, in_flight: int, closes: bool) -> None:
    assert (account.in_flight, account.closes) == (in_flight, closes)


def test_an_open_delivery_is_counted_if_its_table_has_it_and_dropped_otherwise(landing: Landing) -> None:
    landing.drop("orders", [envelope("a1")])
    landing.drain()
    landing.store.open_delivery(Delivery("never", "orders", "x", Table.RAW, {DAY: 7}))
    landing.store.open_delivery(Delivery("nor this", "orders", "x", Table.DEAD_LETTERS, {DAY: 7}))
    landing.drop("orders", [envelope("a2")])
    landing.drain()
    assert landing.store.received("orders") == {DAY: 2}
    landing.require_closed("orders")


def test_the_disk_being_full_has_its_name(landing: Landing, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise DiskFull("There is no room.", "Make some.")

    attempts: list[int] = []

    def count(*arguments: Any) -> None:
        attempts.append(1)
        refuse(*arguments)

    monkeypatch.setattr(landing_module, "append_raw", count)
    landing.drop("orders", [envelope("a1")])
    assert landing.drain()["orders"].problem == "There is no room. Make some."
    assert len(attempts) == 1, "a full disk is full a second later, too"


def test_a_source_whose_folder_is_gone_is_empty(landing: Landing) -> None:
    source: Callable[..., Source] = FolderSource
    drained = landing.drain([source(landing.home.landing / "nowhere", "nowhere")])["nowhere"]
    assert (drained.landed.total(), drained.problem) == (0, None)
