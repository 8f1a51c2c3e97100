"""A home that cannot be written, a disk that is full, a port that is taken, files that are damaged."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from leanops.home import Home
from tests.conftest import EXAMPLES, PROJECT, Said

Leanops = Callable[..., Said]
MOUNTS = (
    subprocess.run(["unshare", "--map-root-user", "--mount", "true"], capture_output=True, check=False).returncode == 0
)
needs_mounts = pytest.mark.skipif(not MOUNTS, reason="this machine lets nobody mount anything, not even for itself")


def in_a_mounted_home(folder: Path, options: str, script: str) -> subprocess.CompletedProcess[str]:
    """Run `script` in a mount namespace of its own, with a small file system at `folder`."""
    folder.mkdir(exist_ok=True)
    mount = f"mount -t tmpfs -o {options} tmpfs {folder} && {script}"
    leanops = f"{Path(sys.executable).parent}/leanops"
    return subprocess.run(
        ["unshare", "--map-root-user", "--mount", "sh", "-c", mount],
        env={
            **os.environ,
            "LEANOPS_HOME": str(folder),
            "LEANOPS_SCHEMAS": str(PROJECT / "schemas"),
            "LEANOPS": leanops,
        },
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_home_that_is_a_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leanops: Leanops) -> None:
    (tmp_path / "home").write_text("not a folder")
    monkeypatch.setenv("LEANOPS_HOME", str(tmp_path / "home"))
    said = leanops("topics")
    assert said.exit_code == 1
    assert said.err.startswith(f"error: {tmp_path / 'home'} cannot be written: ")
    assert "LEANOPS_HOME" in said.err


@needs_mounts
def test_a_read_only_home_is_refused_in_one_sentence(tmp_path: Path) -> None:
    said = in_a_mounted_home(tmp_path / "home", "size=1m,ro", "$LEANOPS topics")
    assert said.returncode == 1
    assert said.stderr.startswith(f"error: {tmp_path / 'home'}")
    assert "Read-only file system" in said.stderr
    assert len(said.stderr.splitlines()) == 1


@needs_mounts
def test_a_full_disk_at_landing_leaves_nothing_half_written(tmp_path: Path) -> None:
    big = tmp_path / "big.ndjson"
    with big.open("w") as file:
        for number in range(8):
            noise = os.urandom(500_000).hex()
            file.write(
                f'{{"message_id":"{number}","publish_time":"2026-01-14T00:00:00Z","payload":{{"n":"{noise}"}}}}\n'
            )
    small = EXAMPLES / "orders.ndjson"
    script = f"$LEANOPS land orders {small} && $LEANOPS land orders {big}; echo $? && $LEANOPS topics --json"
    said = in_a_mounted_home(tmp_path / "home", "size=3m", script)
    assert "error: There is no room left under" in said.stderr
    assert "Nothing was committed." in said.stderr
    landed, exit_code, *topics = said.stdout.splitlines()
    assert landed.startswith("6 messages of orders landed")
    assert exit_code == "1"
    assert any('"topic": "orders"' in line and '"raw_rows": 6' in line for line in topics)


NEARLY_FULL = """
drop() { cp $MESSAGES $1/landing/orders/.new && mv $1/landing/orders/.new $1/landing/orders/new.ndjson; }
mkdir -p $LEANOPS_HOME/landing/orders
drop $LEANOPS_HOME && $LEANOPS drain > /dev/null || exit 9
for kb in 0 100; do
    drop $LEANOPS_HOME
    free=$(df --output=avail -k $LEANOPS_HOME | tail -1)
    head -c $(( (free - kb) * 1024 )) /dev/zero > $LEANOPS_HOME/ballast
    for command in drain tick; do
        $LEANOPS $command > $OUT/$kb.$command 2>&1
        echo "exit code $?" >> $OUT/$kb.$command
    done
    rm $LEANOPS_HOME/ballast
    $LEANOPS drain > $OUT/$kb.after 2>&1
done
$LEANOPS topics --json
"""


@needs_mounts
def test_a_disk_that_is_nearly_full_is_told_in_the_same_sentence_by_every_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "out").mkdir()
    monkeypatch.setenv("OUT", str(tmp_path / "out"))
    monkeypatch.setenv("MESSAGES", str(EXAMPLES / "orders.ndjson"))
    said = in_a_mounted_home(tmp_path / "home", "size=40m", NEARLY_FULL)
    assert said.returncode == 0, said.stderr
    told = {file.name: file.read_text() for file in (tmp_path / "out").iterdir() if file.suffix != ".after"}
    for name, text in told.items():
        assert not any(sign in text for sign in ("Traceback", "unforeseen", "sqlalche.me")), (name, text)
        assert "exit code 0" in text or "There is no room left under" in text, (name, text)
    assert "exit code 1" in told["0.drain"]
    assert "exit code 1" in told["0.tick"]
    assert "exit code 1" in told["100.drain"]
    assert '"raw_rows": 18' in next(line for line in said.stdout.splitlines() if '"topic": "orders"' in line)


def test_a_port_in_use_is_named(home: Home, monkeypatch: pytest.MonkeyPatch, leanops: Leanops) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        monkeypatch.setenv("LEANOPS_PORT", str(port))
        said = leanops("dev")
    assert said.exit_code == 1
    assert said.err == (
        f"error: Port {port} is in use by another process. End that one, or set LEANOPS_PORT to another port.\n"
    )


@pytest.mark.parametrize("damage", [b"this is no database", b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_damaged_state_file_is_named_and_left_alone(home: Home, leanops: Leanops, damage: bytes) -> None:
    home.state.write_bytes(damage)
    said = leanops("topics")
    assert said.exit_code == 1
    assert said.err.startswith(f"error: {home.state} is damaged")
    assert home.state.read_bytes() == damage


def test_a_damaged_catalog_is_named(home: Home, leanops: Leanops) -> None:
    home.catalog.write_bytes(b"garbage" * 1000)
    said = leanops("topics")
    assert said.exit_code == 1
    assert said.err.startswith(f"error: {home.catalog} is damaged")
    assert len(said.err.splitlines()) == 1


def test_what_nobody_foresaw_is_one_sentence_and_a_trace_in_the_log(
    home: Home, monkeypatch: pytest.MonkeyPatch, leanops: Leanops
) -> None:
    def burst(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("leanops_resources.known_topics._topic", burst)
    said = leanops("topics")
    assert said.exit_code == 1
    assert "something unforeseen went wrong: ZeroDivisionError: a bug" in said.err
    assert "Traceback" not in said.err
    assert "Traceback" in (home.logs / "leanops.log").read_text()
