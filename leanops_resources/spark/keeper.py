"""The process that a home's Spark server lives under.

It starts the server with a token of its own, writes down where it listens, and ends it when it is told to, when the
home is removed (a full reset leaves no server behind), or when another server has taken its place in the record. If the
keeper is killed, its server goes with it.
"""

import ctypes
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import FrameType

import psutil
import pyspark

from leanops.home import Home
from leanops.settings import Settings
from leanops_resources.spark.server import OneProcess, Server

JARS = (
    "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
    "org.xerial:sqlite-jdbc:3.53.4.0",
)
_STARTED = re.compile(r"Spark Connect server started at: \S+:(\d+)")
_OF_CLIENTS = ("SPARK_CONNECT_MODE_ENABLED", "SPARK_LOCAL_REMOTE", "SPARK_REMOTE")
"""PySpark tells its own process by these that it has sessions on a server, and whoever is started from there."""

_PR_SET_PDEATHSIG = 1
_LOOK_SECONDS = 2.0
_LOG_BYTES = 16 * 2**20
_JVM = (
    # Takes less of a server with few cores and gigabytes than the collector that Java would choose.
    "-XX:+UseParallelGC",
    # What most ticks run is run some thousand times in all: to optimise it takes longer than it saves. Java's own
    # thresholds, four times as high, leave that to what large builds run.
    "-XX:Tier4InvocationThreshold=20000",
    "-XX:Tier4MinInvocationThreshold=2400",
    "-XX:Tier4CompileThreshold=60000",
    "-XX:Tier4BackEdgeThreshold=160000",
)
_LOGGING = Path(__file__).with_name("log4j2.properties")
_PROGRAM = Path(__file__).with_name("connect_server.py")


def server_command(settings: Settings, home: Home) -> list[str]:
    """`spark-submit` with all that a server of this home is told at its start."""
    scratch = _scratch(home)
    conf = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.driver.extraJavaOptions": f'"-Djava.io.tmpdir={scratch}" -Dlog4j2.configurationFile={_LOGGING.as_uri()} '
        f"{' '.join(_JVM)}",
        "spark.local.dir": str(scratch),
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.python.daemon.module": "leanops_resources.spark.warm_daemon",
        # PySpark would look through the whole stack at every call, half of what it takes to put a query together.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(home.spark / "unused-warehouse"),
        "spark.ui.enabled": "false",
    }
    if settings.spark_master.startswith("local"):
        conf |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    return [
        f"{_spark_home()}/bin/spark-submit",
        "--name=leanops",
        f"--master={settings.spark_master}",
        f"--driver-memory={settings.spark_driver_memory}",
        f"--packages={','.join(JARS)}",
        *(f"--conf={key}={value}" for key, value in conf.items()),
        str(_PROGRAM),
    ]


def _scratch(home: Home) -> Path:
    """Where this keeper's server spills and unpacks; gone with it."""
    return home.spark / f"tmp-{os.getpid()}"


def _remove_orphaned_scratch(home: Home) -> None:
    """Remove what the servers of keepers have left that were killed."""
    for folder in home.spark.glob("tmp-*"):
        pid = folder.name.partition("-")[2]
        if pid.isdigit() and not psutil.pid_exists(int(pid)):
            shutil.rmtree(folder, ignore_errors=True)


def _spark_home() -> Path:
    return Path(pyspark.__file__).parent


def keep() -> int:
    """Run the server until it ends, is told to end, or is no longer wanted."""
    settings = Settings.load()
    home = Home(settings.home)
    scratch, token = _scratch(home), secrets.token_urlsafe(32)
    _remove_orphaned_scratch(home)
    scratch.mkdir(exist_ok=True)
    started: list[subprocess.Popen[str]] = []

    def end(_signal: int, _frame: FrameType | None) -> None:
        for each in started:
            each.terminate()

    # Before the server starts: it would go on ignoring the signal if whoever started us does, as Dagster makes a
    # process do that was started in the background.
    signal.signal(signal.SIGTERM, end)
    server = subprocess.Popen(
        server_command(settings, home),
        preexec_fn=partial(_end_with, os.getpid()),  # noqa: PLW1509 - there are no other threads yet
        env={
            **{name: value for name, value in os.environ.items() if name not in _OF_CLIENTS},
            "SPARK_HOME": str(_spark_home()),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_CONNECT_AUTHENTICATE_TOKEN": token,
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )

    started.append(server)
    threading.Thread(target=_log_and_record, args=(server, settings, home, token), daemon=True).start()
    while server.poll() is None:
        with suppress(subprocess.TimeoutExpired):
            server.wait(_LOOK_SECONDS)
        if not _wanted(home):
            server.terminate()
    shutil.rmtree(scratch, ignore_errors=True)
    return server.returncode


def _end_with(keeper: int) -> None:
    """Have Linux kill this process when its keeper dies: a server that nobody knows of would live for ever."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != keeper:
            os.kill(os.getpid(), signal.SIGKILL)


def _wanted(home: Home) -> bool:
    """The home is there, and its record names this keeper's server or, until it is up, no other that runs."""
    record = Server.recorded(home)
    return home.spark.exists() and (record is None or record.keeper.pid == os.getpid())


def _log_and_record(server: subprocess.Popen[str], settings: Settings, home: Home, token: str) -> None:
    """Pass on what the server says, and write its port down when it says it."""
    assert server.stdout is not None
    for line in server.stdout:
        sys.stdout.write(line)
        sys.stdout.flush()
        with suppress(OSError):
            keep_short(home.logs / "spark.log")
        if started := _STARTED.search(line):
            Server(
                keeper=OneProcess.of(os.getpid()),
                spark=OneProcess.of(server.pid),
                port=int(started[1]),
                token=token,
                master=settings.spark_master,
                driver_memory=settings.spark_driver_memory,
            ).save(home)


def keep_short(log: Path) -> None:
    """A log that has grown long becomes the one before. It is written on, so it is emptied and not put aside."""
    if log.stat().st_size > _LOG_BYTES:
        shutil.copyfile(log, log.with_name(f"{log.name}.1"))
        os.truncate(log, 0)


if __name__ == "__main__":
    sys.exit(keep())
