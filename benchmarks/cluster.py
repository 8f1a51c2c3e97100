"""The same batch on a standalone Spark cluster of two workers: where rows are worked on, and what Dagster pays."""

import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pyspark

import leanops
from benchmarks.engine_data import SHRINK
from benchmarks.fleet_home import Fleet
from benchmarks.in_process import tick_here
from benchmarks.report import Section
from leanops_resources.spark.server import Server

TOPICS, WORKERS = 20, 2
MESSAGES, FACTOR = max(5_000 // SHRINK, 10), 4

WARM_MESSAGES = 20
_LOOPBACK = "127.0.0.1"
_START_SECONDS = 60


@dataclass(frozen=True)
class Spent:
    """Core-seconds by where Spark's work is done."""

    driver: float = 0
    driver_python: float = 0
    executors: float = 0
    executors_python: float = 0

    def since(self, before: "Spent") -> "Spent":
        return Spent(*(now - then for now, then in zip(self.figures, before.figures, strict=True)))

    @property
    def figures(self) -> tuple[float, float, float, float]:
        return self.driver, self.driver_python, self.executors, self.executors_python


@dataclass(frozen=True)
class Cluster:
    """A master and its workers on this machine."""

    url: str
    workers: Sequence[psutil.Process]

    @classmethod
    @contextmanager
    def in_folder(cls, folder: Path) -> "Iterator[Cluster]":
        """Started, and ended together with all that runs on it."""
        folder.mkdir()
        port, processes = _free_port(), list[psutil.Process]()
        try:
            processes.append(_start(folder, "master.Master", "--port", str(port), "--webui-port", "0"))
            _wait_for(port)
            url = f"spark://{_LOOPBACK}:{port}"
            for number in range(WORKERS):
                place = ("--work-dir", str(folder / f"worker-{number}"), "--webui-port", "0")
                processes.append(_start(folder, "worker.Worker", "--cores", "1", "--memory", "2g", *place, url))
            yield cls(url, processes[1:])
        finally:
            _end(processes)

    def spent(self, fleet: Fleet) -> Spent:
        """What the processes of the home's server and of the executors have taken so far."""
        server = Server.recorded(fleet.home)
        assert server is not None, "There is no Spark server."
        driver = psutil.Process(server.spark.pid)
        executors = [executor for worker in self.workers for executor in worker.children() if _is_java(executor)]
        return Spent(
            _seconds(driver),
            _python_seconds(driver),
            sum(map(_seconds, executors)),
            sum(map(_python_seconds, executors)),
        )


def measure(folder: Path) -> Section:
    """So many messages, then four times as many, and so many again, into the same topics."""
    rows: list[tuple[object, ...]] = []
    costs = []
    with (
        Cluster.in_folder(folder / "cluster") as cluster,
        # Executors reach the driver on the loopback, whatever the machine is called.
        Fleet(folder / "fleet", TOPICS, LEANOPS_SPARK_MASTER=cluster.url, SPARK_LOCAL_IP=_LOOPBACK) as fleet,
    ):
        _land(fleet, WARM_MESSAGES, seed=0)
        tick_here(fleet)
        # Tables grow older from tick to tick, which costs, too: so many before and after stand for the same age.
        for seed, each in enumerate((MESSAGES, MESSAGES * FACTOR, MESSAGES), start=1):
            _land(fleet, each, seed)
            before = cluster.spent(fleet)
            cost = tick_here(fleet)
            spent = cluster.spent(fleet).since(before)
            costs.append(cost.core_seconds)
            figures = (cost.seconds, cost.core_seconds, *spent.figures)
            rows.append((f"{each * TOPICS:,}", *(f"{figure:.1f}" for figure in figures)))
        fleet.leanops("inject-check")
    return Section(
        "A batch on a cluster",
        (
            "messages",
            "run, s",
            "Dagster's process, core-s",
            "driver's JVM, core-s",
            "Python beside the driver, core-s",
            "executors' JVMs, core-s",
            "executors' Python workers, core-s",
        ),
        rows,
        f"One run of {TOPICS} topics on a standalone cluster of {WORKERS} workers with a core each, all on this "
        "machine, by LEANOPS_SPARK_MASTER; after a tick for warmth, which made the tables. "
        f"For {FACTOR} x the messages Dagster's process took {2 * costs[1] / (costs[0] + costs[2]):.2f} x the time of "
        "its core, against the mean of the tick before and the one after; the target is 1.2.",
    )


def _land(fleet: Fleet, each: int, seed: int) -> None:
    fleet.inject_into(fleet.names(), each, seed)
    fleet.drain()


def _start(folder: Path, what: str, *arguments: str) -> psutil.Process:
    """A master or a worker. What is to be imported in Python workers is in the environment of those."""
    spark = Path(pyspark.__file__).parent
    environment = {
        **os.environ,
        "SPARK_HOME": str(spark),
        "SPARK_LOCAL_IP": _LOOPBACK,
        "SPARK_NO_DAEMONIZE": "1",
        "PYTHONPATH": str(Path(leanops.__file__).parents[1]),
    }
    command = [str(spark / "bin" / "spark-class"), f"org.apache.spark.deploy.{what}", "--host", _LOOPBACK, *arguments]
    with (folder / "cluster.log").open("ab") as log:
        return psutil.Popen(command, env=environment, cwd=folder, stdout=log, stderr=log)


def _end(processes: Sequence[psutil.Process]) -> None:
    """End workers before their master, and then whatever is left of their executors."""
    family = [*processes]
    for process in reversed(processes):
        with suppress(psutil.NoSuchProcess):
            family += process.children(recursive=True)
            process.terminate()
    _, left = psutil.wait_procs(family, timeout=20)
    for process in left:
        with suppress(psutil.NoSuchProcess):
            process.kill()


def _is_java(process: psutil.Process) -> bool:
    return "java" in process.name()


def _seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _python_seconds(jvm: psutil.Process) -> float:
    """What a JVM's Python processes have taken, those included that have ended."""
    ended = jvm.cpu_times()
    total = float(ended.children_user + ended.children_system)
    for process in jvm.children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        with suppress(OSError):
            socket.create_connection((_LOOPBACK, port), timeout=1).close()
            return
        time.sleep(0.1)
    raise TimeoutError("The master of the cluster did not start.")
