"""`leanops dev`: the Dagster UI of this home, with its daemon and its code server."""

import os
import signal
import socket
import subprocess
import sys
import time
from types import FrameType

from leanops.errors import LeanOpsError, PortInUse
from leanops.home import Home
from leanops.settings import Settings

_STOP_SECONDS = 30


def dev() -> None:
    """Open the platform: the Dagster UI with daemon, sensors and schedules, until Ctrl-C.

    The UI listens on the loopback only, on LEANOPS_PORT. A new topic or contract is in the graph after «Reload» of the
    code location.
    """
    from leanops_assets.instance import PROJECT, prepare_dagster_home

    settings = Settings.load()
    home = Home(settings.home)
    dagster_home = prepare_dagster_home(home)
    _require_free(settings.port, "LEANOPS_PORT")
    code_port = settings.code_server_port or _free_port()
    _require_free(code_port, "LEANOPS_CODE_SERVER_PORT")
    environment = {
        **os.environ,
        "LEANOPS_HOME": str(home.path),
        "LEANOPS_SCHEMAS": str(settings.schemas),
        "LEANOPS_CODE_SERVER_PORT": str(code_port),
        "DAGSTER_HOME": str(dagster_home),
        # Dagster's own word for «one run may take the interpreter's whole start»; its telemetry is off in dagster.yaml.
        "PYTHONWARNINGS": os.environ.get("PYTHONWARNINGS", "ignore"),
    }
    code_server = [
        *("code-server", "start", "--host", "127.0.0.1", "--port", str(code_port)),
        *("--module-name", "leanops_assets.definitions", "--location-name", "leanops"),
    ]
    ui = ["dev", "--workspace", str(PROJECT / "workspace.yaml"), "--host", "127.0.0.1", "--port", str(settings.port)]

    signal.signal(signal.SIGTERM, _interrupt)
    processes: list[subprocess.Popen[bytes]] = []
    try:
        processes.append(_dagster(code_server, environment))
        _wait_for(code_port, processes[0])
        processes.append(_dagster(ui, environment))
        print(f"\n  Lean-Ops is at http://127.0.0.1:{settings.port} as soon as Dagster says so. Ctrl-C ends it.\n")
        while all(process.poll() is None for process in processes):
            time.sleep(0.5)
    except KeyboardInterrupt:
        pass
    finally:
        _end(processes)


class CodeServerFailed(LeanOpsError):
    """The definitions could not be loaded."""


def _dagster(arguments: list[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "dagster", *arguments], env=environment)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    while not _listens(port):
        if process.poll() is not None:
            raise CodeServerFailed("The Dagster code server did not start.", "What it said stands above.")
        time.sleep(0.1)


def _end(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in reversed(processes):
        process.send_signal(signal.SIGINT)
    for process in reversed(processes):
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _require_free(port: int, setting: str) -> None:
    if _listens(port):
        raise PortInUse(
            f"Port {port} is in use by another process.", f"End that one, or set {setting} to another port."
        )
