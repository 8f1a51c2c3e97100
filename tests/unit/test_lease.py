"""A lock for as long as some work takes."""

import os
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path

import pytest

from leanops.errors import TopicBusy
from leanops_resources.state.lease import lease
from leanops_resources.state.sqlite import SqliteStateStore

NO_TIME = timedelta()


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
