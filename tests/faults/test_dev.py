"""`leanops dev` when one of its processes dies."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import psutil

from leanops.home import Home
from tests.conftest import PROJECT


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_a_process_that_ends_takes_the_others_with_it_and_is_named(home: Home, tmp_path: Path) -> None:
    leanops = Path(sys.executable).with_name("leanops")
    environment = {**os.environ, "LEANOPS_PORT": str(free_port()), "LEANOPS_SCHEMAS": str(PROJECT / "schemas")}
    with (tmp_path / "said").open("w+") as said:
        dev = subprocess.Popen([leanops, "dev"], env=environment, stdout=said, stderr=said)
        family = psutil.Process(dev.pid)
        while not (daemons := [each for each in family.children() if "dagster._daemon" in each.cmdline()]):
            assert dev.poll() is None
        children = family.children(recursive=True)
        daemons[0].kill()
        assert dev.wait(60) == 1
        _, left = psutil.wait_procs(children, timeout=30)
        assert not left
        said.seek(0)
        assert "error: dagster._daemon ended by itself (exit code -9)." in said.read()
