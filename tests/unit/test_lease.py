"""A lock for as long as some work takes."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection
from datetime import timedelta
from pathlib import Path

import pytest

from leanops.errors import StateBusy, TopicBusy
from leanops_resources.state.lease import Leases, lease, leases
from leanops_resources.state.sqlite import SqliteStateStore
from leanops_resources.state.store import LOCK_TTL, Lock, LockLost

NO_TIME = timedelta()
SHORT = timedelta(seconds=0.6)


@pytest.fixture
def store(tmp_path: Path) -> SqliteStateStore:
    return SqliteStateStore(tmp_path / "state.db")


def test_who_comes_second_is_told_who_is_first_when_patience_ends(store: SqliteStateStore) -> None:
    with (
        lease(store, "build/orders", "run 1", NO_TIME),
        pytest.raises(TopicBusy, match="run 1 is at work on build/orders"),
        lease(store, "build/orders", "run 2", NO_TIME),
    ):
        pass
    with lease(store, "build/orders", "run 2", NO_TIME) as lock:
        assert lock.fence == 2


def test_other_names_are_free(store: SqliteStateStore) -> None:
    with lease(store, "build/orders", "run 1", NO_TIME), lease(store, "build/events", "run 2", NO_TIME):
        pass


def test_who_waits_gets_the_lock_as_soon_as_it_is_given_back(store: SqliteStateStore) -> None:
    got = threading.Event()

    def wait() -> None:
        with lease(store, "build/orders", "run 2", timedelta(minutes=1)):
            got.set()

    with lease(store, "build/orders", "run 1", NO_TIME):
        waiting = threading.Thread(target=wait)
        waiting.start()
        assert not got.is_set()
    assert got.wait(timeout=30)
    waiting.join()


def test_a_lock_is_kept_for_longer_than_it_lasts_by_itself(store: SqliteStateStore) -> None:
    short = timedelta(seconds=0.6)
    with lease(store, "build/orders", "run 1", NO_TIME, ttl=short) as lock:
        ends = lock.expires
        while (holder := store.holder("build/orders")) is not None and holder.expires <= ends + short:
            threading.Event().wait(0.05)
        assert holder is not None
        assert holder.owner == lock.owner
    assert store.holder("build/orders") is None


def test_the_lock_of_a_process_that_was_killed_is_taken_at_once(store: SqliteStateStore, tmp_path: Path) -> None:
    script = """if True:
        import os, signal, sys
        from datetime import timedelta
        from pathlib import Path
        from leanops_resources.state.lease import lease
        from leanops_resources.state.sqlite import SqliteStateStore
        with lease(SqliteStateStore(Path(sys.argv[1])), "build/orders", "run 1", timedelta()):
            os.kill(os.getpid(), signal.SIGKILL)
    """
    killed = subprocess.run([sys.executable, "-c", script, str(tmp_path / "state.db")], check=False)
    assert killed.returncode == -9
    assert store.holder("build/orders") is not None
    with lease(store, "build/orders", "run 2", NO_TIME) as lock:
        assert lock.owner.split("/")[1] == str(os.getpid())


def test_the_lock_of_another_machine_is_respected_until_it_ends(store: SqliteStateStore) -> None:
    assert store.acquire("build/orders", "elsewhere/1/run 1")
    with pytest.raises(TopicBusy), lease(store, "build/orders", "run 2", NO_TIME):
        pass


# Many names at once


class Faulty(SqliteStateStore):
    """A store that refuses so many renewals."""

    refusals = 0

    def renew_many(self, locks: Collection[Lock], ttl: timedelta = LOCK_TTL) -> dict[str, Lock]:
        if self.refusals:
            self.refusals -= 1
            raise StateBusy("The state is locked.", "Run this again.")
        return super().renew_many(locks, ttl)


@pytest.fixture
def faulty(tmp_path: Path) -> Faulty:
    return Faulty(tmp_path / "state.db")


def until(is_so: Callable[[], bool], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.02)


def _expiry(store: SqliteStateStore, name: str) -> float:
    holder = store.holder(name)
    return holder.expires.timestamp() if holder else 0


def test_a_fault_of_the_store_does_not_end_the_renewal(faulty: Faulty) -> None:
    with lease(faulty, "build/orders", "run 1", NO_TIME, timedelta(seconds=1.5)) as lock:
        faulty.refusals = 1
        until(lambda: _expiry(faulty, "build/orders") > lock.expires.timestamp())
        assert faulty.refusals == 0


def test_a_lock_that_was_not_renewed_for_its_ttl_is_lost(faulty: Faulty) -> None:
    faulty.refusals = 1_000_000
    with leases(faulty, ["drain/orders"], "run 1", NO_TIME, SHORT) as held:
        assert held.held == {"drain/orders"}
        assert not held.lost
        until(lambda: held.lost == {"drain/orders"})
        assert held.held == frozenset()
        with pytest.raises(LockLost, match="no longer holds the lock 'drain/orders'") as caught:
            held.lock("drain/orders")
        assert isinstance(caught.value.__cause__, StateBusy)
        faulty.refusals = 0
        time.sleep(SHORT.total_seconds() / 2)
        assert held.lost == {"drain/orders"}, "what was told to be lost stays lost"


def test_a_lock_that_somebody_else_has_by_now_is_lost_and_the_others_are_not(store: SqliteStateStore) -> None:
    names = ["drain/events", "drain/orders"]
    with leases(store, names, "run 1", NO_TIME, SHORT) as held:
        store.release(held.lock("drain/orders"))
        theirs = store.acquire("drain/orders", "elsewhere/1/run 2")
        until(lambda: bool(held.lost))
        assert held.lost == {"drain/orders"}
        assert held.held == {"drain/events"}
    assert store.holder("drain/orders") == theirs
    assert store.holder("drain/events") is None


def test_of_many_names_those_that_are_busy_are_told_and_the_others_held(store: SqliteStateStore) -> None:
    names = [f"drain/topic_{number}" for number in range(50)]
    with (
        lease(store, names[7], "run 1", NO_TIME),
        leases(store, names, "run 2", NO_TIME) as held,
    ):
        assert held.held == set(names) - {names[7]}
        assert list(held.busy) == [names[7]]
        with pytest.raises(TopicBusy, match="run 1 is at work on drain/topic_7"):
            held.lock(names[7])
        assert {held.lock(name).fence for name in held.held} == {1}
    assert [store.holder(name) for name in names] == [None] * 50


def test_many_locks_are_renewed_by_one_thread(store: SqliteStateStore) -> None:
    names = [f"drain/topic_{number}" for number in range(50)]
    before = threading.active_count()
    with leases(store, names, "run 1", NO_TIME, SHORT) as held:
        assert threading.active_count() == before + 1
        first = max(held.lock(name).expires.timestamp() for name in names)
        until(lambda: all(_expiry(store, name) > first + SHORT.total_seconds() for name in names))
    assert threading.active_count() == before


def test_what_is_held_is_renewed_while_the_rest_is_waited_for(store: SqliteStateStore) -> None:
    found: list[Leases] = []
    got = threading.Event()

    def wait() -> None:
        with leases(store, ["drain/events", "drain/orders"], "run 2", timedelta(minutes=1), SHORT) as held:
            found.append(held)
            got.set()

    with lease(store, "drain/orders", "run 1", NO_TIME):
        waiting = threading.Thread(target=wait)
        waiting.start()
        until(lambda: bool(_expiry(store, "drain/events")))
        first = _expiry(store, "drain/events")
        until(lambda: _expiry(store, "drain/events") > first + SHORT.total_seconds())
        assert not got.is_set()
    assert got.wait(timeout=30)
    waiting.join()
    assert found[0].busy == {}
    assert found[0].lost == frozenset()


def test_a_name_that_is_given_twice_is_held_once(store: SqliteStateStore) -> None:
    with leases(store, ["drain/orders", "drain/orders"], "run 1", NO_TIME) as held:
        assert held.held == {"drain/orders"}
        assert not held.busy


def test_no_names_are_no_locks(store: SqliteStateStore) -> None:
    with leases(store, [], "run 1", NO_TIME) as held:
        assert (held.held, held.busy, held.lost) == (frozenset(), {}, frozenset())


def test_what_was_acquired_before_a_fault_is_released(store: SqliteStateStore, monkeypatch: pytest.MonkeyPatch) -> None:
    assert store.acquire("drain/orders", "elsewhere/1/run 1")

    def refuse(_: str) -> None:
        raise StateBusy("The state is locked.", "Run this again.")

    with monkeypatch.context() as patch:
        patch.setattr(store, "holder", refuse)
        with pytest.raises(StateBusy), leases(store, ["drain/events", "drain/orders"], "run 2", NO_TIME):
            pass
    assert store.holder("drain/events") is None
