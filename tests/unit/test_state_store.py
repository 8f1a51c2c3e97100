"""What is SQLite's own. The suite that every state store passes is in tests/aws/test_state_stores.py."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from leanops.errors import DiskFull, HomeNotWritable, StateBusy, StateCorrupt
from leanops_resources.state import sqlite as sqlite_store
from leanops_resources.state.sqlite import SqliteStateStore
from leanops_resources.state.store import Gate, GateStatus

from .conftest import NoRoomBeyond

ROOT = Path(__file__).parents[2]


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


def test_state_in_the_home_needs_no_client_of_aws(path: Path) -> None:
    script = """if True:
        import sys
        from leanops.settings import Settings
        from leanops_resources.state.stores import state_store
        state_store(Settings.load()).claim("k")
        print([name for name in ("boto3", "botocore") if name in sys.modules])
    """
    environment = {**os.environ, "LEANOPS_HOME": str(path.parent)}
    said = subprocess.check_output([sys.executable, "-B", "-c", script], cwd=ROOT, env=environment, text=True)
    assert said == "[]\n"
    assert not SqliteStateStore(path).claim("k")


def test_a_file_that_was_removed_is_begun_anew(path: Path) -> None:
    SqliteStateStore(path).set_gate("orders", Gate(False, GateStatus.PAUSED))
    for file in path.parent.glob("state.db*"):
        file.unlink()
    assert SqliteStateStore(path).gates() == {}


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
