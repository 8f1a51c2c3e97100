"""The same batch on a standalone Spark cluster of two workers: where rows are worked on, and what Dagster pays."""

import os
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

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
_LOOK_SECONDS = 10
PLACES = ("driver's JVM", "Python beside the driver", "executors' JVMs", "executors' Python workers")
Seconds = dict[tuple[str, psutil.Process], float]
"""What processes have taken of their cores, with the place in which each does Spark's work."""


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

    def seconds(self, fleet: Fleet) -> Seconds:
        """What the processes of the home's server and of the executors have taken so far."""
        server = Server.recorded(fleet.home)
        assert server is not None, "There is no Spark server."
        driver = psutil.Process(server.spark.pid)
        executors = [executor for worker in self.workers for executor in worker.children() if _is_java(executor)]
        found: Seconds = {}
        for jvms, (of_jvm, of_python) in zip(([driver], executors), (PLACES[:2], PLACES[2:]), strict=True):
            for jvm in jvms:
                found[of_jvm, jvm] = _seconds(jvm)
                children = {(of_python, each): _seconds(each) for each in jvm.children(recursive=True)}
                found |= {each: seconds for each, seconds in children.items() if seconds}
        return found


class Watch:
    """Looks at the processes of a cluster for as long as it is held.

    Spark ends a Python worker that has been idle for a minute, and its daemon does not wait for what that has taken:
    whoever looks more often has seen all of it.
    """

    def __init__(self, cluster: Cluster, fleet: Fleet) -> None:
        self._look = partial(cluster.seconds, fleet)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look_often, daemon=True)
        self.own = 0.0
        """What looking has taken of this process's core."""

    def __enter__(self) -> Self:
        self._before = self._seen = self._look()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        if error is None:
            self._seen = self._seen | self._look()

    @property
    def spent(self) -> list[float]:
        """What was taken in each place."""
        taken = {each: seconds - self._before.get(each, 0) for each, seconds in self._seen.items()}
        return [sum(seconds for each, seconds in taken.items() if each[0] == place) for place in PLACES]

    def _look_often(self) -> None:
        while not self._ended.wait(_LOOK_SECONDS):
            self._seen = self._seen | self._look()
            self.own = time.thread_time()


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
            with Watch(cluster, fleet) as watch:
                cost = tick_here(fleet)
            costs.append(cost.core_seconds - watch.own)
            figures = (cost.seconds, costs[-1], *watch.spent)
            rows.append((f"{each * TOPICS:,}", *(f"{figure:.1f}" for figure in figures)))
        fleet.leanops("inject-check")
    return Section(
        "A batch on a cluster",
        ("messages", "run, s", "Dagster's process, core-s", *(f"{place}, core-s" for place in PLACES)),
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
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0
    return float(times.user + times.system)


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
