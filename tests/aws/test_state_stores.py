"""The suite that every state store passes: a SQLite file, and a DynamoDB table on a server that speaks like it."""

import itertools
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from leanops.backoff import Failures
from leanops.ingestion.breaker import Batch, Breaker, Circuit
from leanops.settings import Settings
from leanops_resources.state.dynamodb import DynamoStateStore
from leanops_resources.state.sqlite import SqliteStateStore
from leanops_resources.state.store import (
    IDEMPOTENCY_TTL,
    LOCK_TTL,
    Delivery,
    Gate,
    GateStatus,
    Lock,
    LockLost,
    StateStore,
    Table,
)
from leanops_resources.state.stores import state_store

ROOT = Path(__file__).parents[2]
START = datetime(2026, 1, 31, 8, 15, tzinfo=UTC)
TICK = timedelta(microseconds=1)

Together = Callable[[Sequence[Callable[[], Any]]], list[Any]]


class Clock:
    """A clock that stands still until it is told to go on."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now

    def passes(self, time: timedelta) -> None:
        self.now += time


@dataclass(frozen=True)
class Place:
    """A new place for a store, which every call opens anew, as another process would."""

    open: Callable[[Clock], StateStore]
    settings: dict[str, str]


# Every implementation passes this suite: a name here and a branch below are all that a new one needs.
@pytest.fixture(params=["sqlite", "dynamodb"])
def new_place(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Place]:
    numbers = itertools.count()

    def file() -> Place:
        home = tmp_path / str(next(numbers))
        home.mkdir()
        path = home / "state.db"
        return Place(lambda clock: SqliteStateStore(path, clock), {"LEANOPS_HOME": str(home)})

    def table() -> Place:
        name = f"state-{next(numbers)}"
        DynamoStateStore(name).create_table()
        return Place(lambda clock: DynamoStateStore(name, clock), {"LEANOPS_STATE": f"dynamodb:{name}"})

    if request.param == "sqlite":
        return file
    request.getfixturevalue("aws")
    return table


@pytest.fixture
def place(new_place: Callable[[], Place]) -> Place:
    return new_place()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def open_store(place: Place, clock: Clock) -> Callable[[], StateStore]:
    return lambda: place.open(clock)


@pytest.fixture
def store(open_store: Callable[[], StateStore]) -> StateStore:
    return open_store()


def held(lock: Lock | None) -> Lock:
    assert lock is not None
    return lock


# Checkpoints


def test_a_pipeline_has_no_checkpoint_before_its_first(store: StateStore) -> None:
    assert store.checkpoint("orders", "standardized") is None


@pytest.mark.parametrize(
    ("snapshot", "ingestion_ts"), [(2**63 - 1, 1769847300), (None, None), (0, 0), (5, None), (None, 5)]
)
def test_a_checkpoint_is_what_was_saved_last(
    snapshot: int | None, ingestion_ts: int | None, open_store: Callable[[], StateStore], clock: Clock
) -> None:
    open_store().save_checkpoint("orders", "standardized", 1, 2)
    clock.passes(TICK)
    saved = open_store().save_checkpoint("orders", "standardized", snapshot, ingestion_ts)
    assert (saved.last_snapshot, saved.last_ingestion_ts, saved.updated) == (snapshot, ingestion_ts, clock.now)
    assert open_store().checkpoint("orders", "standardized") == saved


def test_checkpoints_are_kept_by_pipeline_and_kind(store: StateStore) -> None:
    names = [("orders", "standardized"), ("orders", "curated"), ("payments", "curated"), ("", "")]
    for number, (pipeline, kind) in enumerate(names):
        store.save_checkpoint(pipeline, kind, number, None)
    found = [store.checkpoint(pipeline, kind) for pipeline, kind in names]
    assert [checkpoint and checkpoint.last_snapshot for checkpoint in found] == [0, 1, 2, 3]


# Locks


def test_a_lock_is_held_by_one_at_a_time(open_store: Callable[[], StateStore], clock: Clock) -> None:
    lock = held(open_store().acquire("orders", "a"))
    assert (lock.name, lock.owner, lock.expires) == ("orders", "a", START + LOCK_TTL)
    assert open_store().acquire("orders", "b") is None
    assert held(open_store().acquire("payments", "b")).name == "payments"


def test_a_lock_lasts_five_minutes_unless_told_otherwise(store: StateStore, clock: Clock) -> None:
    assert timedelta(minutes=5) == LOCK_TTL
    assert held(store.acquire("orders", "a")).expires - clock.now == timedelta(minutes=5)
    assert held(store.acquire("payments", "a", timedelta(seconds=1))).expires - clock.now == timedelta(seconds=1)


def test_a_lock_that_expired_is_free_and_not_a_moment_before(store: StateStore, clock: Clock) -> None:
    store.acquire("orders", "a")
    clock.passes(LOCK_TTL - TICK)
    assert store.acquire("orders", "b") is None
    clock.passes(TICK)
    assert held(store.acquire("orders", "b")).owner == "b"


@pytest.mark.parametrize("how", ["released", "expired"])
def test_every_holder_has_a_higher_fence_than_the_one_before(how: str, store: StateStore, clock: Clock) -> None:
    fences = []
    for owner in "abcd":
        lock = held(store.acquire("orders", owner))
        fences.append(lock.fence)
        if how == "released":
            store.release(lock)
        clock.passes(LOCK_TTL)
    assert fences == sorted(set(fences))


def test_a_lock_that_is_renewed_lasts_on_under_the_same_fence(store: StateStore, clock: Clock) -> None:
    lock = held(store.acquire("orders", "a"))
    clock.passes(LOCK_TTL - TICK)
    renewed = store.renew(lock)
    assert (renewed.fence, renewed.owner, renewed.expires) == (lock.fence, "a", clock.now + LOCK_TTL)
    clock.passes(LOCK_TTL - TICK)
    assert store.acquire("orders", "b") is None
    assert store.renew(lock, timedelta(hours=1)).expires == clock.now + timedelta(hours=1)


@pytest.mark.parametrize("lost", ["expired", "released", "expired and taken", "released and taken"])
def test_a_lock_that_was_lost_is_not_renewed(lost: str, store: StateStore, clock: Clock) -> None:
    lock = held(store.acquire("orders", "a"))
    if "released" in lost:
        store.release(lock)
    else:
        clock.passes(LOCK_TTL)
    if "taken" in lost:
        assert store.acquire("orders", "b")
    with pytest.raises(LockLost) as caught:
        store.renew(lock)
    assert caught.value.lock == lock
    assert "orders" in str(caught.value)


def test_a_lock_that_never_was_is_not_renewed(store: StateStore) -> None:
    with pytest.raises(LockLost):
        store.renew(Lock("orders", "a", 1, START + LOCK_TTL))


def test_who_held_a_lock_long_ago_cannot_release_it(store: StateStore, clock: Clock) -> None:
    old = held(store.acquire("orders", "a"))
    clock.passes(LOCK_TTL)
    new = held(store.acquire("orders", "b"))
    store.release(old)
    assert store.acquire("orders", "c") is None
    assert store.renew(new).owner == "b"


def test_a_lock_that_was_released_is_free_at_once_and_twice_does_no_harm(store: StateStore) -> None:
    lock = held(store.acquire("orders", "a"))
    store.release(lock)
    store.release(lock)
    assert held(store.acquire("orders", "b")).owner == "b"


def test_of_many_who_want_a_lock_at_once_one_gets_it(open_store: Callable[[], StateStore], together: Together) -> None:
    open_store()
    calls = [lambda owner=owner: open_store().acquire("orders", str(owner)) for owner in range(10)]
    assert len([lock for lock in together(calls) if lock]) == 1


class Locks(RuleBasedStateMachine):
    """Whatever happens in whatever order: one holder at most, and only by time or by its own hand does it change."""

    new_place: Callable[[], Place]

    @initialize()
    def begin(self) -> None:
        self.clock = Clock()
        self.store = type(self).new_place().open(self.clock)
        self.handed_out: list[Lock] = []
        self.holder: Lock | None = None

    def is_held(self) -> bool:
        return self.holder is not None and self.holder.expires > self.clock.now

    @rule(owner=st.sampled_from("abc"), seconds=st.integers(1, 20))
    def acquire(self, owner: str, seconds: int) -> None:
        lock = self.store.acquire("orders", owner, timedelta(seconds=seconds))
        assert (lock is None) == self.is_held()
        if lock:
            assert all(lock.fence > earlier.fence for earlier in self.handed_out)
            self.holder = lock
            self.handed_out.append(lock)

    @precondition(lambda self: self.handed_out)
    @rule(data=st.data(), seconds=st.integers(1, 20))
    def renew(self, data: st.DataObject, seconds: int) -> None:
        lock = data.draw(st.sampled_from(self.handed_out))
        if self.is_held() and self.holder and lock.fence == self.holder.fence:
            self.holder = self.store.renew(lock, timedelta(seconds=seconds))
            assert self.holder.expires == self.clock.now + timedelta(seconds=seconds)
        else:
            with pytest.raises(LockLost):
                self.store.renew(lock)

    @precondition(lambda self: self.handed_out)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        lock = data.draw(st.sampled_from(self.handed_out))
        self.store.release(lock)
        if self.holder and lock.fence == self.holder.fence:
            self.holder = None

    @rule(seconds=st.integers(1, 15))
    def time_passes(self, seconds: int) -> None:
        self.clock.passes(timedelta(seconds=seconds))

    @invariant()
    def fences_rise(self) -> None:
        fences = [lock.fence for lock in self.handed_out]
        assert fences == sorted(set(fences))


def test_no_order_of_events_gives_a_lock_two_holders(new_place: Callable[[], Place]) -> None:
    machine = type("LocksOfThisStore", (Locks,), {"new_place": staticmethod(new_place)})
    settings = hypothesis.settings(
        max_examples=12, stateful_step_count=15, deadline=None, database=None, derandomize=True
    )
    hypothesis.stateful.run_state_machine_as_test(machine, settings=settings)


def test_the_holder_of_a_lock_is_known_as_long_as_it_holds_it(store: StateStore, clock: Clock) -> None:
    assert store.holder("orders") is None
    lock = held(store.acquire("orders", "a"))
    assert store.holder("orders") == lock
    clock.passes(LOCK_TTL - TICK)
    renewed = store.renew(lock)
    assert store.holder("orders") == renewed
    store.release(renewed)
    assert store.holder("orders") is None
    store.acquire("orders", "b")
    clock.passes(LOCK_TTL)
    assert store.holder("orders") is None


def test_of_many_locks_those_that_are_free_are_acquired(open_store: Callable[[], StateStore], clock: Clock) -> None:
    theirs = held(open_store().acquire("b", "them"))
    locks = open_store().acquire_many(["c", "a", "b"], "us")
    assert {name: (lock.name, lock.owner, lock.fence, lock.expires) for name, lock in locks.items()} == {
        name: (name, "us", 1, START + LOCK_TTL) for name in ("a", "c")
    }
    assert open_store().holder("a") == locks["a"]
    assert open_store().holder("b") == theirs
    clock.passes(LOCK_TTL)
    again = open_store().acquire_many(["a", "b"], "us", timedelta(seconds=1))
    assert [(lock.fence, lock.expires) for lock in again.values()] == [(2, clock.now + timedelta(seconds=1))] * 2


def test_of_many_locks_those_that_are_still_held_are_renewed(store: StateStore, clock: Clock) -> None:
    locks = store.acquire_many(["a", "b"], "us") | store.acquire_many(["c"], "us", timedelta(seconds=1))
    store.release(locks["b"])
    assert store.acquire("b", "them")
    clock.passes(timedelta(seconds=1))
    renewed = store.renew_many(locks.values(), timedelta(hours=1))
    assert renewed == {"a": replace(locks["a"], expires=clock.now + timedelta(hours=1))}
    assert store.holder("a") == renewed["a"]
    assert held(store.holder("b")).owner == "them"
    assert store.holder("c") is None


def test_of_many_locks_those_that_changed_hands_are_not_released(store: StateStore, clock: Clock) -> None:
    locks = store.acquire_many(["a", "b"], "us")
    clock.passes(LOCK_TTL)
    theirs = held(store.acquire("b", "them"))
    store.release_many(locks.values())
    assert (store.holder("a"), store.holder("b")) == (None, theirs)
    assert held(store.acquire("a", "them")).fence == 2


def test_no_locks_are_acquired_renewed_and_released(store: StateStore) -> None:
    assert store.acquire_many([], "us") == {}
    assert store.renew_many([]) == {}
    store.release_many([])


def test_of_many_who_want_the_same_locks_at_once_each_lock_has_one_holder(
    open_store: Callable[[], StateStore], together: Together
) -> None:
    names = [f"topic_{number}" for number in range(20)]
    open_store()
    found = together([lambda owner=owner: open_store().acquire_many(names, owner) for owner in "abcd"])
    assert sorted(name for locks in found for name in locks) == sorted(names)


# Gates


def test_a_gate_that_nobody_set_is_none(store: StateStore) -> None:
    assert store.gate("orders") is None
    assert store.gates() == {}


@pytest.mark.parametrize(
    "gate",
    [
        Gate(True, GateStatus.READY),
        Gate(False, GateStatus.PAUSED, "by hand, since it's Größe"),
        Gate(False, GateStatus.ERROR, ""),
        Gate(True, GateStatus.ERROR, "the new contract is broken, the active one goes on"),
    ],
)
def test_a_gate_stays_as_it_was_set(gate: Gate, open_store: Callable[[], StateStore]) -> None:
    open_store().set_gate("orders", Gate(False, GateStatus.PAUSED, "before"))
    open_store().set_gate("orders", gate)
    assert open_store().gate("orders") == gate
    assert type(open_store().gate("orders").processing_enabled) is bool  # type: ignore[union-attr]


def test_the_gates_of_all_topics_come_by_topic(store: StateStore) -> None:
    gates = {topic: Gate(topic == "b", GateStatus.READY, topic) for topic in ("c", "a", "b")}
    for topic, gate in gates.items():
        store.set_gate(topic, gate)
    assert store.gates() == gates
    assert list(store.gates()) == ["a", "b", "c"]


# Idempotency keys


def test_an_idempotency_key_is_claimed_once_within_its_time(open_store: Callable[[], StateStore], clock: Clock) -> None:
    assert timedelta(hours=24) == IDEMPOTENCY_TTL
    assert open_store().claim("k")
    clock.passes(IDEMPOTENCY_TTL - TICK)
    assert not open_store().claim("k")
    clock.passes(TICK)
    assert open_store().claim("k")
    assert not open_store().claim("k")


def test_each_key_has_its_own_time(store: StateStore, clock: Clock) -> None:
    assert store.claim("short", timedelta(seconds=1))
    assert store.claim("long", timedelta(seconds=3))
    clock.passes(timedelta(seconds=2))
    assert not store.claim("long")
    assert store.claim("short")


@pytest.mark.parametrize("key", ["", " ", "é", "k" * 10_000, "'; DROP TABLE idempotency_keys; --", "\0", "K"])
def test_any_text_is_an_idempotency_key(key: str, store: StateStore) -> None:
    assert store.claim("k")
    assert store.claim(key)
    assert not store.claim(key)


def test_of_many_who_claim_a_key_at_once_one_gets_it(open_store: Callable[[], StateStore], together: Together) -> None:
    open_store()
    assert sorted(together([lambda: open_store().claim("k")] * 10)) == [False] * 9 + [True]


# The error tracker


def test_an_error_is_tracked_from_its_first_occurrence_to_its_last(store: StateStore, clock: Clock) -> None:
    first = store.track_error("e1", "orders", "malformed", "no message_id")
    assert (first.occurrences, first.first_seen, first.last_seen, first.resolved) == (1, START, START, None)
    clock.passes(timedelta(hours=1))
    second = store.track_error("e1", "orders", "malformed", "still no message_id")
    assert (second.occurrences, second.first_seen, second.last_seen) == (2, START, clock.now)
    assert second.message == "still no message_id"
    assert store.open_errors() == [second]


def test_several_errors_are_resolved_at_once_and_no_others(store: StateStore) -> None:
    store.track_errors((each, "orders", "malformed", "no key") for each in ("e1", "e2", "e3"))
    store.resolve_errors(["e1", "e3", "e3", "unheard of"])
    assert [error.error_id for error in store.open_errors()] == ["e2"]
    store.resolve_errors([])
    assert [error.error_id for error in store.open_errors()] == ["e2"]


def test_an_error_is_resolved_once(store: StateStore) -> None:
    assert not store.resolve_error("e1")
    store.track_error("e1", "orders", "malformed", "x")
    assert store.resolve_error("e1")
    assert not store.resolve_error("e1")
    assert store.open_errors() == []


def test_an_error_that_comes_back_is_open_again(store: StateStore, clock: Clock) -> None:
    store.track_error("e1", "orders", "malformed", "x")
    store.resolve_error("e1")
    clock.passes(TICK)
    again = store.track_error("e1", "orders", "malformed", "x")
    assert (again.occurrences, again.first_seen, again.resolved) == (2, START, None)
    assert store.open_errors() == [again]


def test_open_errors_come_oldest_first_of_all_topics_or_of_one(store: StateStore, clock: Clock) -> None:
    for error_id, topic in [("z", "orders"), ("a", "payments"), ("m", "orders"), ("b", "orders")]:
        store.track_error(error_id, topic, "malformed", "x")
        clock.passes(TICK)
    store.track_error("z", "orders", "malformed", "again")
    store.resolve_error("m")
    assert [error.error_id for error in store.open_errors()] == ["z", "a", "b"]
    assert [error.error_id for error in store.open_errors("orders")] == ["z", "b"]
    assert store.open_errors("unheard_of") == []


def test_several_errors_at_once_are_tracked_like_one_after_the_other(store: StateStore, clock: Clock) -> None:
    store.track_error("e1", "orders", "malformed", "first")
    store.resolve_error("e1")
    clock.passes(TICK)
    store.track_errors((f"e{number}", "orders", "poison", "again") for number in (1, 2, 3, 2))
    assert [(error.error_id, error.kind, error.occurrences) for error in store.open_errors()] == [
        ("e1", "malformed", 2),
        ("e2", "poison", 2),
        ("e3", "poison", 1),
    ]


@pytest.mark.parametrize("error_id", ["", "é", "e" * 5_000, "\0", "error#e1"])
def test_any_text_is_the_id_of_an_error(error_id: str, store: StateStore) -> None:
    store.track_error("e1", "orders", "malformed", "x")
    store.track_error(error_id, "orders", "malformed", "x")
    assert {error.error_id for error in store.open_errors()} == {"e1", error_id}
    assert store.resolve_error(error_id)
    assert [error.error_id for error in store.open_errors()] == ["e1"]


# Deliveries

MONDAY, TUESDAY = date(2026, 6, 29), date(2026, 7, 1)


def delivery(
    delivery_id: str = "d1",
    topic: str = "orders",
    messages: dict[date, int] | None = None,
    replays: tuple[str, ...] = (),
) -> Delivery:
    return Delivery(delivery_id, topic, "the queue", Table.RAW, messages or {MONDAY: 3, TUESDAY: 1}, replays)


def test_a_delivery_is_open_until_it_is_counted_or_dropped(open_store: Callable[[], StateStore]) -> None:
    opened = [delivery("d1"), delivery("d2"), Delivery("d3", "orders", "", Table.DEAD_LETTERS, {})]
    for each in opened:
        open_store().open_delivery(each)
    assert open_store().open_deliveries() == opened
    assert open_store().count_delivery("d1")
    assert open_store().drop_delivery("d2")
    assert open_store().open_deliveries() == opened[2:]
    assert open_store().count_delivery("d3")
    assert open_store().open_deliveries() == []


def test_what_is_counted_is_added_by_topic_and_day(store: StateStore) -> None:
    assert store.received("orders") == {}
    for number, messages in enumerate([{TUESDAY: 1, MONDAY: 2}, {TUESDAY: 10}, {date(2027, 1, 1): 5}]):
        store.open_delivery(delivery(f"d{number}", messages=messages))
        assert store.count_delivery(f"d{number}")
    store.open_delivery(delivery("other", "payments"))
    assert store.received("payments") == {}
    assert store.count_delivery("other")
    assert store.received("orders") == {MONDAY: 2, TUESDAY: 11, date(2027, 1, 1): 5}
    assert list(store.received("orders")) == [MONDAY, TUESDAY, date(2027, 1, 1)]
    assert store.received("payments") == {MONDAY: 3, TUESDAY: 1}


def test_a_delivery_is_counted_once_however_often_that_is_asked_for(store: StateStore) -> None:
    store.open_delivery(delivery())
    assert [store.count_delivery("d1") for _ in range(3)] == [True, False, False]
    assert not store.drop_delivery("d1")
    assert store.received("orders") == {MONDAY: 3, TUESDAY: 1}


def test_of_a_delivery_that_is_dropped_nothing_is_counted(store: StateStore) -> None:
    store.open_delivery(delivery())
    assert [store.drop_delivery("d1") for _ in range(2)] == [True, False]
    assert not store.count_delivery("d1")
    assert store.received("orders") == {}


def test_a_delivery_that_nobody_opened_is_neither_counted_nor_dropped(store: StateStore) -> None:
    assert not store.count_delivery("unheard_of")
    assert not store.drop_delivery("unheard_of")
    assert store.open_deliveries("unheard_of") == []
    assert store.received("unheard_of") == {}


def test_a_replay_is_closed_and_adds_nothing(store: StateStore) -> None:
    store.open_delivery(delivery("first"))
    assert store.count_delivery("first")
    replay = delivery("replay", replays=("dead letter 1", "dead letter 2"))
    store.open_delivery(replay)
    assert store.open_deliveries() == [replay]
    assert [store.count_delivery("replay") for _ in range(2)] == [True, False]
    assert store.received("orders") == {MONDAY: 3, TUESDAY: 1}


def test_a_replay_of_messages_that_have_another_day_now_moves_them(store: StateStore) -> None:
    store.open_delivery(delivery("first"))
    assert store.count_delivery("first")
    store.open_delivery(replace(delivery("replay", replays=("dead letter",)), moves={MONDAY: -1, TUESDAY: 1}))
    assert [store.count_delivery("replay") for _ in range(2)] == [True, False]
    assert store.received("orders") == {MONDAY: 2, TUESDAY: 2}


def test_open_deliveries_come_in_the_order_in_which_they_were_opened(store: StateStore, clock: Clock) -> None:
    for number, delivery_id in enumerate("zamb"):
        store.open_delivery(delivery(delivery_id, "orders" if number % 2 else "payments"))
        clock.passes(-TICK)
    store.drop_delivery("m")
    store.open_delivery(delivery("c"))
    assert [each.delivery_id for each in store.open_deliveries()] == ["z", "a", "b", "c"]
    assert [each.delivery_id for each in store.open_deliveries("orders")] == ["a", "b", "c"]


def test_a_delivery_that_is_open_is_not_opened_again(store: StateStore) -> None:
    store.open_delivery(delivery())
    with pytest.raises((ValueError, sqlite3.IntegrityError)):
        store.open_delivery(delivery(messages={MONDAY: 100}))
    assert store.open_deliveries() == [delivery()]


def test_deliveries_that_are_noted_together_stand_in_their_order_and_behind_those_before(store: StateStore) -> None:
    store.open_delivery(delivery("first"))
    store.note_deliveries([delivery(each, topic) for each, topic in zip("zam", ("b", "a", "b"), strict=True)])
    store.open_delivery(delivery("last"))
    store.note_deliveries([])
    assert [each.delivery_id for each in store.open_deliveries()] == ["first", "z", "a", "m", "last"]
    assert store.open_deliveries("b") == [delivery("z", "b"), delivery("m", "b")]


def test_deliveries_that_are_noted_together_by_many_at_once_are_all_open(
    open_store: Callable[[], StateStore], together: Together
) -> None:
    groups = [[f"{group}{number}" for number in range(5)] for group in "abcd"]
    together([lambda ids=ids: open_store().note_deliveries([delivery(each) for each in ids]) for ids in groups])
    found = [each.delivery_id for each in open_store().open_deliveries()]
    assert sorted(found) == sorted(each for ids in groups for each in ids)
    assert [[each for each in found if each in ids] for ids in groups] == groups


def test_deliveries_are_counted_together_each_once_and_only_if_they_are_open(store: StateStore) -> None:
    store.note_deliveries([delivery("d1"), delivery("d2", "payments"), delivery("d3"), delivery("d4")])
    assert store.drop_delivery("d4")
    for _ in range(2):
        store.count_deliveries(["d1", "d2", "d3", "d4", "unheard_of"])
    store.count_deliveries([])
    assert store.open_deliveries() == []
    assert store.received("orders") == {MONDAY: 6, TUESDAY: 2}
    assert store.received("payments") == {MONDAY: 3, TUESDAY: 1}


def test_what_was_received_of_several_topics_is_told_at_once(store: StateStore) -> None:
    store.note_deliveries([delivery("d1"), delivery("d2", "payments", {TUESDAY: 5}), delivery("d3", "events")])
    store.count_deliveries(["d1", "d2", "d3"])
    assert store.received_by_topic([]) == {}
    topics = ["payments", 'it\'s "quoted"', "orders"]
    assert store.received_by_topic(topics) == {each: store.received(each) for each in topics}
    assert store.received_by_topic(topics)["orders"] == {MONDAY: 3, TUESDAY: 1}
    assert list(store.received_by_topic(["orders"])["orders"]) == [MONDAY, TUESDAY]


def test_a_delivery_of_many_days_is_counted_whole(store: StateStore) -> None:
    days = {date(2025, 1, 1) + timedelta(days=number): number for number in range(200)}
    days |= {date(2025, 1, 1) + timedelta(days=50 * number): number for number in range(150)}
    for delivery_id in ("d1", "d2"):
        store.open_delivery(delivery(delivery_id, messages=days))
        assert store.count_delivery(delivery_id)
    assert store.received("orders") == {day: 2 * messages for day, messages in days.items()}


def test_of_many_threads_that_count_a_delivery_at_once_one_does(
    open_store: Callable[[], StateStore], together: Together
) -> None:
    open_store().open_delivery(delivery())
    assert sorted(together([lambda: open_store().count_delivery("d1")] * 8)) == [False] * 7 + [True]
    assert open_store().received("orders") == {MONDAY: 3, TUESDAY: 1}


def test_of_threads_that_count_and_drop_a_delivery_at_once_one_does(
    open_store: Callable[[], StateStore], together: Together
) -> None:
    open_store().open_delivery(delivery())
    counted, dropped = together([lambda: open_store().count_delivery("d1"), lambda: open_store().drop_delivery("d1")])
    assert counted != dropped
    assert open_store().received("orders") == ({MONDAY: 3, TUESDAY: 1} if counted else {})


def test_deliveries_of_a_topic_that_are_counted_at_once_are_all_counted(
    open_store: Callable[[], StateStore], together: Together
) -> None:
    ids = [f"d{number}" for number in range(8)]
    together([lambda each=each: open_store().open_delivery(delivery(each)) for each in ids])
    assert sorted(each.delivery_id for each in open_store().open_deliveries()) == ids
    assert together([lambda each=each: open_store().count_delivery(each) for each in ids]) == [True] * 8
    assert open_store().received("orders") == {MONDAY: 24, TUESDAY: 8}


def test_of_two_processes_that_count_a_delivery_at_once_one_does(place: Place, store: StateStore) -> None:
    store.open_delivery(delivery())
    script = """if True:
        import sys
        from leanops.settings import Settings
        from leanops_resources.state.stores import state_store
        store = state_store(Settings.load())
        store.received("orders")
        print("ready", flush=True)
        sys.stdin.readline()
        print(store.count_delivery("d1"))
    """
    command = [sys.executable, "-B", "-c", script]
    environment = {**os.environ, **place.settings}
    processes = [
        subprocess.Popen(command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    assert all(process.stdout and process.stdout.readline() == "ready\n" for process in processes)
    for process in processes:
        assert process.stdin
        process.stdin.write("go\n")
        process.stdin.flush()
    answers = [process.communicate(timeout=60)[0].strip() for process in processes]
    assert sorted(answers) == ["False", "True"]
    assert store.received("orders") == {MONDAY: 3, TUESDAY: 1}


# Breakers


def test_a_breaker_that_nobody_saved_is_a_closed_one(store: StateStore) -> None:
    assert store.breaker("orders") == Breaker()
    assert store.breakers() == {}


@pytest.mark.parametrize(
    "breaker",
    [
        Breaker(),
        Breaker(window=(Batch(START, 10, 1), Batch(START + TICK, 0, 2**40))),
        Breaker(Circuit.OPEN, (Batch(START, 1, 19),), START + TICK, "19 of 20 messages failed, since it's Größe"),
        Breaker(Circuit.HALF_OPEN, (), START, ""),
    ],
)
def test_a_breaker_is_read_back_as_it_was_saved(breaker: Breaker, open_store: Callable[[], StateStore]) -> None:
    open_store().save_breaker("orders", Breaker(Circuit.OPEN, (), START, "before"))
    open_store().save_breaker("orders", breaker)
    assert open_store().breaker("orders") == breaker
    assert open_store().breakers() == {"orders": breaker}


def test_the_breakers_of_all_topics_come_by_topic(store: StateStore) -> None:
    breakers = {topic: Breaker(reason=topic) for topic in ("c", "a", "b")}
    for topic, breaker in breakers.items():
        store.save_breaker(topic, breaker)
    assert store.breakers() == breakers
    assert list(store.breakers()) == ["a", "b", "c"]


def test_the_breakers_of_several_topics_are_saved_at_once(store: StateStore) -> None:
    store.save_breaker("a", Breaker(Circuit.OPEN, (), START, "before"))
    breakers = {topic: Breaker(reason=topic) for topic in ("a", "b")}
    store.save_breakers(breakers)
    store.save_breakers({})
    assert store.breakers() == breakers


# Failures


def test_failures_in_a_row_are_counted_and_the_last_one_is_dated(
    open_store: Callable[[], StateStore], clock: Clock
) -> None:
    assert open_store().failures() == {}
    assert open_store().note_failure("orders") == Failures(1, START)
    clock.passes(TICK)
    assert open_store().note_failure("orders") == Failures(2, START + TICK)
    assert open_store().note_failure("events") == Failures(1, START + TICK)
    assert open_store().failures() == {"events": Failures(1, START + TICK), "orders": Failures(2, START + TICK)}
    assert list(open_store().failures()) == ["events", "orders"]


def test_failures_that_are_cleared_begin_anew(store: StateStore) -> None:
    for _ in range(3):
        store.note_failure("orders")
    store.note_failure("events")
    store.clear_failures("orders")
    store.clear_failures("payments")
    assert store.failures() == {"events": Failures(1, START)}
    assert store.note_failure("orders") == Failures(1, START)


def test_failures_that_are_noted_at_once_are_all_counted(
    open_store: Callable[[], StateStore], together: Together
) -> None:
    together([lambda: open_store().note_failure("orders")] * 6)
    assert open_store().failures()["orders"].count == 6


# Company


def test_many_may_open_a_new_store_at_the_same_moment(
    new_place: Callable[[], Place], clock: Clock, together: Together
) -> None:
    for _ in range(10):
        place = new_place()
        claims = together([lambda place=place: place.open(clock).claim("k")] * 6)
        assert sorted(claims) == [False] * 5 + [True]


def test_the_settings_say_where_state_is_kept(place: Place, store: StateStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.set_gate("orders", Gate(False, GateStatus.PAUSED))
    for name, value in place.settings.items():
        monkeypatch.setenv(name, value)
    assert state_store(Settings.load()).gates() == {"orders": Gate(False, GateStatus.PAUSED)}
