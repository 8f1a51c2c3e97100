import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from leanops.errors import DiskFull, HomeNotWritable, StateBusy, StateCorrupt
from leanops_resources.state import sqlite as sqlite_store
from leanops_resources.state.sqlite import SqliteStateStore
from leanops_resources.state.store import IDEMPOTENCY_TTL, LOCK_TTL, Gate, GateStatus, Lock, LockLost, StateStore

from .conftest import NoRoomBeyond, Together

ROOT = Path(__file__).parents[2]
START = datetime(2026, 1, 31, 8, 15, tzinfo=UTC)
TICK = timedelta(microseconds=1)


class Clock:
    """A clock that stands still until it is told to go on."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now

    def passes(self, time: timedelta) -> None:
        self.now += time


# Every implementation passes this suite: a line here is all that a new one needs.
STORES: dict[str, Callable[[Path, Clock], StateStore]] = {
    "sqlite": lambda folder, clock: SqliteStateStore(folder / "state.db", clock),
}


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=STORES)
def open_store(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> Callable[[], StateStore]:
    """Each call opens the same store anew, as another process would."""
    return lambda: STORES[request.param](tmp_path, clock)


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

    make: Callable[[Path, Clock], StateStore]

    @initialize()
    def begin(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.clock = Clock()
        self.store = type(self).make(Path(self.folder.name), self.clock)
        self.handed_out: list[Lock] = []
        self.holder: Lock | None = None

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            self.folder.cleanup()

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


@pytest.mark.parametrize("make", STORES.values(), ids=STORES.keys())
def test_no_order_of_events_gives_a_lock_two_holders(make: Callable[[Path, Clock], StateStore]) -> None:
    machine = type("LocksOfThisStore", (Locks,), {"make": staticmethod(make)})
    settings = hypothesis.settings(max_examples=12, stateful_step_count=15)
    hypothesis.stateful.run_state_machine_as_test(machine, settings=settings)


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


# Company


@pytest.mark.parametrize("name", STORES)
def test_many_may_open_a_new_store_at_the_same_moment(
    name: str, tmp_path: Path, clock: Clock, together: Together
) -> None:
    for number in range(10):
        folder = tmp_path / str(number)
        folder.mkdir()
        claims = together([lambda folder=folder: STORES[name](folder, clock).claim("k")] * 6)
        assert sorted(claims) == [False] * 5 + [True]


# SQLite on one machine


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


def test_many_processes_may_begin_with_one_new_file_at_once(path: Path) -> None:
    script = """if True:
        import sys
        from pathlib import Path
        from leanops_resources.state.sqlite import SqliteStateStore
        print("ready", flush=True)
        sys.stdin.readline()
        store = SqliteStateStore(Path(sys.argv[1]))
        print(store.claim("k"))
    """
    command = [sys.executable, "-B", "-c", script, str(path)]
    processes = [
        subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(6)
    ]
    assert all(process.stdout and process.stdout.readline() == "ready\n" for process in processes)
    for process in processes:
        assert process.stdin
        process.stdin.write("go\n")
        process.stdin.flush()
    answers = [process.communicate(timeout=60)[0].split() for process in processes]
    assert [process.returncode for process in processes] == [0] * 6
    assert sorted(answer[0] for answer in answers) == ["False"] * 5 + ["True"]


def test_a_file_that_was_removed_is_begun_anew(path: Path, clock: Clock) -> None:
    store = SqliteStateStore(path, clock)
    store.set_gate("orders", Gate(False, GateStatus.PAUSED))
    for file in path.parent.glob("state.db*"):
        file.unlink()
    clock.passes(timedelta(seconds=1))
    anew = SqliteStateStore(path, clock)
    assert anew.gates() == {}


def damaged_pages(path: Path) -> None:
    """A file that still begins like a database and is none any more."""
    SqliteStateStore(path).set_gate("orders", Gate(True, GateStatus.READY, "x" * 50_000))
    content = bytearray(path.read_bytes())
    content[100:] = b"\xa5" * (len(content) - 100)
    path.write_bytes(content)


UNUSABLE = {
    "garbage": (lambda path: path.write_bytes(b"this is no database at all" * 100), StateCorrupt),
    "damaged pages": (damaged_pages, StateCorrupt),
    "a folder": (Path.mkdir, HomeNotWritable),
}


@pytest.mark.parametrize(("spoil", "error"), UNUSABLE.values(), ids=UNUSABLE.keys())
def test_a_file_that_cannot_be_used_is_named_with_what_to_do(
    spoil: Callable[[Path], object], error: type[StateCorrupt], path: Path
) -> None:
    spoil(path)
    with pytest.raises(error) as caught:
        SqliteStateStore(path).gates()
    assert str(path) in caught.value.problem
    assert caught.value.hint


def test_a_damaged_file_is_left_as_it_is(path: Path) -> None:
    path.write_bytes(b"this is no database at all" * 100)
    with pytest.raises(StateCorrupt):
        SqliteStateStore(path)
    assert path.read_bytes() == b"this is no database at all" * 100


def test_an_empty_file_is_a_new_store(path: Path) -> None:
    path.touch()
    assert SqliteStateStore(path).gates() == {}


def test_a_file_that_stays_locked_is_told_and_not_waited_for_for_ever(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SqliteStateStore(path)
    monkeypatch.setattr(sqlite_store, "BUSY_SECONDS", 0)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StateBusy) as caught:
            store.claim("k")
    assert str(path) in caught.value.problem
    assert store.claim("k")


def test_a_full_disk_is_named_and_what_was_saved_before_is_still_there(
    path: Path, no_room_beyond: NoRoomBeyond
) -> None:
    store = SqliteStateStore(path)
    assert store.claim("before")
    with no_room_beyond(path.stat().st_size + 10_000), pytest.raises(DiskFull) as caught:
        store.claim("x" * 1_000_000)
    assert str(path) in caught.value.problem
    assert not store.claim("before")
    assert store.claim("after")
