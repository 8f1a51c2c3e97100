"""`leanops dev` when one of its processes dies."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from leanops.home import Home
from leanops_cli import dev
from tests.conftest import PROJECT


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def is_daemon(process: psutil.Process) -> bool:
    """Whether it is Dagster's daemon. Processes come and go while the platform starts."""
    try:
        return "dagster._daemon" in process.cmdline()
    except psutil.NoSuchProcess:
        return False


def test_a_process_that_ends_takes_the_others_with_it_and_is_named(home: Home, tmp_path: Path) -> None:
    leanops = Path(sys.executable).with_name("leanops")
    environment = {**os.environ, "LEANOPS_PORT": str(free_port()), "LEANOPS_SCHEMAS": str(PROJECT / "schemas")}
    with (tmp_path / "said").open("w+") as said:
        platform = subprocess.Popen([leanops, "dev"], env=environment, stdout=said, stderr=said)
        try:
            family = psutil.Process(platform.pid)
            while not (daemons := [each for each in family.children() if is_daemon(each)]):
                assert platform.poll() is None
            children = family.children(recursive=True)
            daemons[0].kill()
            assert platform.wait(60) == 1
            _, left = psutil.wait_procs(children, timeout=30)
            assert not left
        finally:
            platform.kill()
            platform.wait()
        said.seek(0)
        assert "error: dagster._daemon ended by itself (exit code -9)." in said.read()


def test_the_spark_server_that_a_sensor_has_started_outlives_the_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dev, "_STOP_SECONDS", 1)
    sleeps = [sys.executable, "-c", "import time; time.sleep(60)"]
    begins_two = (
        f"import subprocess, time; [subprocess.Popen({sleeps}, start_new_session=own) for own in (True, False)]"
    )
    service = psutil.Popen([sys.executable, "-c", f"{begins_two}; time.sleep(60)"])
    while len(children := service.children()) < 2:
        assert service.poll() is None
    (server,) = (each for each in children if os.getsid(each.pid) != os.getsid(0))
    try:
        dev._end([service])
        _, alive = psutil.wait_procs([service, *children], timeout=5)
        assert alive == [server]
    finally:
        server.kill()
