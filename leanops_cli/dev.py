"""`leanops dev`: the Dagster UI of this home, with its daemon and its code server."""

import os
import signal
import socket
import sys
import time
from contextlib import suppress
from functools import partial

import psutil

from leanops.errors import CodeServerFailed, DagsterEnded, PortInUse
from leanops.home import Home
from leanops.settings import Settings

_STOP_SECONDS = 30


def dev() -> None:
    """Open the platform: the Dagster UI with daemon, sensors and schedules, until Ctrl-C.

    The UI listens on the loopback only, on LEANOPS_PORT. New topics and contracts are in the graph within a minute.
    """
    from leanops_assets.instance import PROJECT, prepare_dagster_home
    from leanops_resources.spark.server import running

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
    }
    at_home = ("--host", "127.0.0.1")
    workspace = ("--workspace", str(PROJECT / "workspace.yaml"))
    module = ("--module-name", "leanops_assets.definitions", "--location-name", "leanops")

    # Ctrl-C and a service manager's SIGTERM end it alike, also where it was started with SIGINT ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    processes: list[psutil.Popen] = []
    start = partial(_start, processes, environment)
    try:
        code_server = start("dagster", "code-server", "start", *at_home, "--port", str(code_port), *module)
        _wait_for(code_port, code_server)
        start("dagster._daemon", "run", *workspace)
        start("dagster_webserver", *at_home, "--port", str(settings.port), *workspace)
        print(f"\n  Lean-Ops will be at http://127.0.0.1:{settings.port} in a moment. Ctrl-C ends it.\n", flush=True)
        while all(process.poll() is None for process in processes):
            time.sleep(0.5)
        ended = next(process for process in processes if process.poll() is not None)
        raise DagsterEnded(
            f"{ended.args[2]} ended by itself (exit code {ended.poll()}).", "What it said stands above; start again."
        )
    except KeyboardInterrupt:
        pass
    finally:
        _end(processes)
        if running(home):
            print("The Spark server of this home stays warm; `leanops spark stop` ends it.")


def _start(processes: list[psutil.Popen], environment: dict[str, str], module: str, *arguments: str) -> psutil.Popen:
    """Start a Dagster process, outside the project: the `dagster.yaml` there is not the one it should read."""
    command = [sys.executable, "-m", module, *arguments]
    processes.append(psutil.Popen(command, env=environment, cwd=environment["DAGSTER_HOME"]))
    return processes[-1]


def _wait_for(port: int, process: psutil.Popen) -> None:
    while not _listens(port):
        if process.poll() is not None:
            raise CodeServerFailed("The Dagster code server did not start.", "What it said stands above.")
        time.sleep(0.1)


def _end(processes: list[psutil.Popen]) -> None:
    """End the processes, the UI first, and then whatever of their children did not go with them.

    What has a session of its own, as the Spark server that a sensor has started, goes on.
    """
    family: list[psutil.Process] = []
    for process in reversed(processes):
        with suppress(psutil.NoSuchProcess):
            family += [*filter(_is_of_session, process.children(recursive=True)), process]
            process.terminate()
    _, left = psutil.wait_procs(family, _STOP_SECONDS)
    for each in left:
        with suppress(psutil.NoSuchProcess):
            each.kill()


def _is_of_session(process: psutil.Process) -> bool:
    try:
        return os.getsid(process.pid) == os.getsid(0)
    except ProcessLookupError:
        return False


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
