"""The one Spark Connect server of a home: found if it runs, started if it does not.

Whoever asks first starts it; whoever asks meanwhile waits for the same one. It listens on the loopback only, on a port
that the system chose, and serves those who can read its token.
"""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil
from filelock import FileLock, Timeout

from leanops.errors import DiskFull, LeanOpsError, SparkUnavailable, disk_faults_named
from leanops.home import Home
from leanops.settings import Settings
from leanops_resources.spark.java import require_java

_STOP_SECONDS = 20


@dataclass(frozen=True)
class OneProcess:
    """A process id may be used again; together with the moment of its start it is one process."""

    pid: int
    started: float

    @classmethod
    def of(cls, pid: int) -> "OneProcess":
        return cls(pid, psutil.Process(pid).create_time())

    def find(self) -> psutil.Process | None:
        """The process, if it is still there."""
        try:
            process = psutil.Process(self.pid)
            same = abs(process.create_time() - self.started) < 1
            return process if same and process.status() != psutil.STATUS_ZOMBIE else None
        except psutil.NoSuchProcess:
            return None


@dataclass(frozen=True)
class Server:
    """A server as its keeper has written it down."""

    keeper: OneProcess
    spark: OneProcess
    port: int
    token: str
    master: str
    driver_memory: str

    def is_up(self) -> bool:
        if self.spark.find() is None:
            return False
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=5).close()
        except OSError:
            return False
        return True

    def save(self, home: Home) -> None:
        """Write the record, token and all, into a file that is its owner's alone from its first byte."""
        with disk_faults_named(home.path):
            draft = _record(home).with_suffix(f".{os.getpid()}.draft")
            handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "w") as file:
                json.dump(asdict(self), file)
            draft.replace(_record(home))

    @classmethod
    def recorded(cls, home: Home) -> "Server | None":
        """What was last written down, up or not."""
        try:
            record = json.loads(_record(home).read_text())
            keeper, spark = OneProcess(**record.pop("keeper")), OneProcess(**record.pop("spark"))
            return cls(keeper, spark, **record)
        except (OSError, json.JSONDecodeError, TypeError, KeyError):
            return None


def _record(home: Home) -> Path:
    return home.spark / "server.json"


def running(home: Home) -> Server | None:
    """The home's server if it is up."""
    server = Server.recorded(home)
    return server if server and server.is_up() else None


def server_url(settings: Settings) -> str:
    """The Spark Connect URL to use: the cluster's where one is set, else this home's server, started if need be."""
    if settings.spark_remote:
        return settings.spark_remote
    home = Home(settings.home).prepare()
    server = running(home) or _find_or_start(settings, home)
    # Only by the name `localhost` does the client send its token over a connection that never leaves the machine.
    return f"sc://localhost:{server.port}/;token={server.token}"


def wake(settings: Settings) -> None:
    """Have the server started, if it is not up, while the caller goes on: whoever needs it next waits for less.

    What is wrong with it is told to them.
    """

    def start() -> None:
        with suppress(LeanOpsError, OSError):
            server_url(settings)

    threading.Thread(target=start, daemon=True).start()


def stop(home: Home) -> bool:
    """End the home's server. False if there was none."""
    server = Server.recorded(home)
    # The keeper takes its server with it; where Linux does not, one whose keeper was killed is ended by itself.
    found = [server.keeper.find(), server.spark.find()] if server else []
    processes = [process for process in found if process]
    for end in (psutil.Process.terminate, psutil.Process.kill):
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                end(process)
        _, processes = psutil.wait_procs(processes, timeout=_STOP_SECONDS)
    _record(home).unlink(missing_ok=True)
    return any(found)


def _find_or_start(settings: Settings, home: Home) -> Server:
    try:
        with FileLock(home.spark / "start.lock", timeout=settings.spark_start_seconds):
            return running(home) or _start(settings, home)
    except Timeout:
        raise SparkUnavailable(
            f"Another process has been starting the Spark server for {settings.spark_start_seconds} s.",
            f"See {home.logs / 'spark.log'}, or raise LEANOPS_SPARK_START_SECONDS.",
        ) from None


def _start(settings: Settings, home: Home) -> Server:
    require_java()
    stop(home)
    log = home.logs / "spark.log"
    with disk_faults_named(home.path), log.open("ab") as output:
        begun = output.tell()
        keeper = subprocess.Popen(
            [sys.executable, "-m", "leanops_resources.spark.keeper"],
            env={
                **os.environ,
                "LEANOPS_HOME": str(home.path),
                "LEANOPS_SPARK_MASTER": settings.spark_master,
                "LEANOPS_SPARK_DRIVER_MEMORY": settings.spark_driver_memory,
                "PYTHONPATH": str(Path(__file__).parents[2]),
            },
            cwd=home.spark,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    # The server outlives whoever started it; should it end first, somebody has to take note of its end.
    threading.Thread(target=keeper.wait, daemon=True).start()
    deadline = time.monotonic() + settings.spark_start_seconds
    try:
        while time.monotonic() < deadline:
            if keeper.poll() is not None:
                raise _start_failure(log, begun, settings)
            server = Server.recorded(home)
            if server and server.keeper.pid == keeper.pid and server.is_up():
                return server
            time.sleep(0.05)
    except KeyboardInterrupt:
        keeper.terminate()
        raise
    keeper.terminate()
    raise SparkUnavailable(
        f"The Spark server did not come up within {settings.spark_start_seconds} s.",
        f"See {log}, or raise LEANOPS_SPARK_START_SECONDS.",
    )


def _start_failure(log: Path, begun: int, settings: Settings) -> Exception:
    """Why the server ended before it was up, from what it said."""
    with log.open("rb") as file:
        file.seek(begun)
        said = file.read().decode(errors="replace")
    if "No space left on device" in said:
        return DiskFull("There is no room left for the Spark server's files.", "Free some space and try again.")
    if "unresolved dependency" in said.lower() or "download failed" in said.lower():
        return SparkUnavailable(
            "The Spark server's jars could not be fetched from Maven Central.",
            f"Check the network (Ivy's own words are in {log}) and try again; once fetched, they are kept.",
        )
    if "Could not reserve enough space" in said or "Invalid maximum heap size" in said:
        return SparkUnavailable(
            f"Java cannot have a heap of {settings.spark_driver_memory}.", "Lower LEANOPS_SPARK_DRIVER_MEMORY."
        )
    lines = [line.strip() for line in said.splitlines()]
    telling = [line for line in lines if ("rror" in line or "xception" in line) and not line.startswith("at ")]
    last = telling[-1].rstrip(".") if telling else "it was killed, or ended without a word"
    return SparkUnavailable(f"The Spark server ended before it was up: {last}.", f"Its whole log is {log}.")
