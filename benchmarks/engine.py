"""What the builds of both layers cost: against a bare job, as tables grow, for small ticks, and in a small heap."""

import statistics
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from shutil import rmtree
from typing import Protocol

import grpc  # type: ignore[import-untyped]
import psutil
from pyiceberg.catalog import Catalog
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from benchmarks import bare_job
from benchmarks.engine_data import History, append_raw, land_history, sized
from benchmarks.report import Section
from leanops.batch.isolation import Jobs
from leanops.batch.topics import TopicBuild, TopicTables, built_or_raised
from leanops.contracts.model import Contract
from leanops.curated.build import build_curated
from leanops.home import Home
from leanops.names import RAW_DB, Layer, spark_table
from leanops.settings import Settings
from leanops.standardized.build import build_standardized
from leanops_resources.catalog import LocalCatalog
from leanops_resources.spark.server import Server, stop
from leanops_resources.spark.session import attach

MESSAGES = sized(1_000_000)
ROUNDS = 2
SMALL_TABLE, LARGE_TABLE, TABLE_DAYS = sized(60_000), sized(6_000_000), 60
TICK_MESSAGES, TICKS = 1_000, 3
SMALL_TICK_MESSAGES, SMALL_TICKS, IDLE_TICKS = 20, 5, 20
REBUILT_MESSAGES = sized(10_000_000)
REBUILD_HEAP = "2g"
_SAMPLE_SECONDS = 0.2
_MB = 2**20


class ToBuild(Protocol):
    """A topic and its contract."""

    @property
    def topic(self) -> str: ...

    @property
    def contract(self) -> Contract: ...


@dataclass(frozen=True)
class Platform:
    """A home with its own Spark server."""

    settings: Settings
    catalog: Catalog
    sessions: list[SparkSession] = field(default_factory=list)

    @classmethod
    @contextmanager
    def in_folder(cls, folder: Path, heap: str = "2g") -> Iterator["Platform"]:
        with cls.at_home(Home(folder / "home"), heap) as platform:
            yield platform

    @classmethod
    @contextmanager
    def at_home(cls, home: Home, heap: str = "2g") -> Iterator["Platform"]:
        home.prepare()
        platform = cls(Settings(home=home.path, spark_driver_memory=heap), LocalCatalog(home).load())
        try:
            yield platform
        finally:
            try:
                for session in platform.sessions:
                    session.stop()
            finally:
                stop(home)

    def session(self) -> SparkSession:
        self.sessions.append(attach(self.settings, LocalCatalog(Home(self.settings.home))))
        return self.sessions[-1]

    def standardize(self, spark: SparkSession | None, of: ToBuild) -> None:
        topic = TopicBuild(TopicTables(self.catalog, of.topic), of.contract)
        built_or_raised(build_standardized(_jobs(spark), self.catalog, [topic])[of.topic])

    def curate(self, spark: SparkSession | None, of: ToBuild) -> None:
        topic = TopicBuild(TopicTables(self.catalog, of.topic), of.contract)
        built_or_raised(build_curated(_jobs(spark), self.catalog, [topic])[of.topic])

    def drop_all_but_raw(self) -> None:
        for namespace in self.catalog.list_namespaces():
            for identifier in self.catalog.list_tables(namespace) if namespace != (RAW_DB,) else ():
                location = self.catalog.load_table(identifier).location()
                self.catalog.drop_table(identifier)
                rmtree(location.removeprefix("file://").removeprefix("file:"), ignore_errors=True)


def measure_against_bare_job(folder: Path) -> Section:
    """Build both layers of one topic and run the bare job, in turns, into new tables each time; keep the best."""
    best: defaultdict[str, float] = defaultdict(lambda: float("inf"))
    rows: dict[str, int] = {}
    with Platform.in_folder(folder) as platform:
        spark, bare = platform.session(), platform.session()
        bare.conf.set("spark.sql.shuffle.partitions", bare_job.SHUFFLE_PARTITIONS)
        for history, rounds in ((History("warm", sized(50_000), days=3), 1), (History("orders", MESSAGES, 3), ROUNDS)):
            best.clear()
            say(f"landing {history.messages:,} messages")
            land_history(platform.catalog, history)
            standardized = spark_table(Layer.STANDARDIZED, history.topic)
            curated = spark_table(Layer.CURATED, history.topic)
            for number in range(1, rounds + 1):
                platform.drop_all_but_raw()
                bare_job.create_tables(bare)
                seconds = {
                    "Standardized, bare": seconds_of(bare_job.standardize, bare, spark_table(Layer.RAW, history.topic)),
                    "Standardized, Lean-Ops": seconds_of(platform.standardize, spark, history),
                    "Curated, bare": seconds_of(bare_job.curate, bare, standardized),
                    "Curated, Lean-Ops": seconds_of(platform.curate, spark, history),
                }
                best.update({what: min(best[what], took) for what, took in seconds.items()})
                say(f"round {number} of {rounds}: {_listed(seconds)}")
            tables = (bare_job.STANDARDIZED, standardized, bare_job.CURATED, curated)
            rows = dict(zip(best, (spark.read.table(table).count() for table in tables), strict=True))
    of_bare = {what: took / best[f"{what.partition(',')[0]}, bare"] for what, took in best.items()}
    return Section(
        "Both layers against a bare Spark job",
        ("what", "rows", "seconds", "ratio"),
        [(what, f"{rows[what]:,}", f"{took:.2f}", f"{of_bare[what]:.2f}") for what, took in best.items()],
        f"{MESSAGES:,} messages of about 360 bytes and 14 fields on three publish days, 2 % of them copies, 4 % "
        "corrections, 1 % broken JSON, and 1 % of the rows break the contract; into new tables, all included. "
        "`benchmarks/bare_job.py` reads the same RAW table, and for Curated the same Standardized table, with "
        "`from_json`, two windows, `try_cast` and MERGE: it finds no errors and no new fields, counts nothing, and "
        f"keeps the rows whose amount is no number, as NULL. One server, a session each, best of {ROUNDS} rounds in "
        "turns after a small one for warmth. The target is a ratio of 1.3.",
    )


def measure_large_table(folder: Path) -> Section:
    """The same ticks into a small table and into one of a hundred times its rows, in turns."""
    histories = (History("small", SMALL_TABLE, TABLE_DAYS), History("large", LARGE_TABLE, TABLE_DAYS))
    took: dict[str, list[tuple[float, float]]] = {history.topic: [] for history in histories}
    with Platform.in_folder(folder) as platform:
        spark = platform.session()
        for history in histories:
            say(f"building {history.messages:,} messages: {seconds_of(land_history, platform.catalog, history):.0f} s")
            say(f"  Standardized {seconds_of(platform.standardize, spark, history):.0f} s")
            say(f"  Curated {seconds_of(platform.curate, spark, history):.0f} s")
        for number in range(1 + TICKS):
            for history in histories:
                append_raw(platform.catalog, history.topic, history.tick(number, TICK_MESSAGES))
                took[history.topic].append(both_layers(platform, spark, history))
                say(f"tick {number} into {history.topic}: {took[history.topic][-1]}")
    medians = [_medians(took[history.topic][1:]) for history in histories]
    ratios = [large / small for small, large in zip(*medians, strict=True)]
    return Section(
        "A tick into a large table",
        ("rows of RAW before", "Standardized, s", "Curated, s", "both, s"),
        [
            *(
                (f"{history.messages:,}", *(f"{seconds:.2f}" for seconds in median))
                for history, median in zip(histories, medians, strict=True)
            ),
            ("ratio", *(f"{ratio:.2f}" for ratio in ratios)),
        ],
        f"{TICK_MESSAGES:,} messages into tables of {TABLE_DAYS} publish days: 4 % correct records of random earlier "
        "days, 2 % are copies of messages of random earlier days, 1 % are broken JSON, the others are new on the "
        f"newest day. Median of {TICKS} ticks in turns after one for warmth; the landing is not counted. So each tick "
        f"reaches into most of the days, {TICK_MESSAGES * 4 // 100} rows of them. The target is a ratio of 1.1.",
    )


def measure_small_ticks(folder: Path) -> Section:
    """A tick of few messages, and one of none."""
    warm, history = (History(topic, 2_000, days=3) for topic in ("warm", "orders"))
    small: list[tuple[float, float]] = []
    with Platform.in_folder(folder) as platform:
        spark = platform.session()
        for each in (warm, history):
            land_history(platform.catalog, each)
            both_layers(platform, spark, each)
        for number in range(SMALL_TICKS):
            append_raw(platform.catalog, warm.topic, warm.tick(number, SMALL_TICK_MESSAGES))
            both_layers(platform, spark, warm)
        for number in range(1 + SMALL_TICKS):
            append_raw(platform.catalog, history.topic, history.tick(number, SMALL_TICK_MESSAGES))
            small.append(both_layers(platform, spark, history))
        idle = [both_layers(platform, None, history) for _ in range(IDLE_TICKS)]
    return Section(
        "Small ticks",
        ("what", "Standardized, ms", "Curated, ms", "both, ms", "target, ms"),
        [
            ("nothing new", *(f"{1000 * seconds:.1f}" for seconds in _medians(idle)), 50),
            (
                f"{SMALL_TICK_MESSAGES} messages",
                *(f"{1000 * seconds:.0f}" for seconds in _medians(small[1:])),
                1500,
            ),
        ],
        f"A topic of {history.messages:,} messages. Nothing new: median of {IDLE_TICKS}, and Spark is not asked, so it "
        f"is the time to read the tables' metadata. {SMALL_TICK_MESSAGES} messages, one of them a correction: median "
        f"of {SMALL_TICKS} on a warm server, in a session that has built before; it is the fixed cost of Spark's "
        "queries and Iceberg's commits, whatever the rows.",
    )


def measure_memory(folder: Path) -> Section:
    """Build a large Standardized table from nothing in a small heap, and watch the memory of Spark's processes."""
    history = History("orders", REBUILT_MESSAGES, TABLE_DAYS)
    with Platform.in_folder(folder, heap=REBUILD_HEAP) as platform:
        say(f"landing {history.messages:,} messages: {seconds_of(land_history, platform.catalog, history):.0f} s")
        spark = platform.session()
        server = Server.recorded(Home(platform.settings.home))
        assert server is not None
        begun = time.perf_counter()
        with _Peak.of(server.spark.pid) as peak:
            try:
                platform.standardize(spark, history)
                fate = "yes"
            except (PySparkException, grpc.RpcError) as error:
                fate = f"no: {str(error).strip().splitlines()[0][:200]}"
        took = time.perf_counter() - begun
        rows = spark.read.table(spark_table(Layer.STANDARDIZED, history.topic)).count() if fate == "yes" else 0
    return Section(
        f"Rebuilding Standardized in a heap of {REBUILD_HEAP}",
        ("messages", "rows", "rows expected", "seconds", "JVM's peak, MB", "Python workers' peak, MB", "succeeded"),
        [
            (
                f"{history.messages:,}",
                f"{rows:,}",
                f"{history.records:,}",
                f"{took:.0f}",
                f"{peak.jvm / _MB:.0f}",
                f"{peak.workers / _MB:.0f}",
                fate,
            )
        ],
        f"A new Spark server with LEANOPS_SPARK_DRIVER_MEMORY={REBUILD_HEAP}, {TABLE_DAYS} publish days, no warmth. "
        f"Peaks are of resident memory, looked at every {_SAMPLE_SECONDS} s: of the JVM, and of the Python daemon and "
        "all its workers together, pages that they share counted each time.",
    )


@dataclass
class _Peak:
    """The most memory that a process, and all its children together, were seen to hold."""

    jvm: int = 0
    workers: int = 0

    @classmethod
    @contextmanager
    def of(cls, pid: int) -> Iterator["_Peak"]:
        peak, done = cls(), threading.Event()
        watch = threading.Thread(target=peak.watch, args=(psutil.Process(pid), done), daemon=True)
        watch.start()
        try:
            yield peak
        finally:
            done.set()
            watch.join()

    def watch(self, process: psutil.Process, done: threading.Event) -> None:
        while not done.wait(_SAMPLE_SECONDS):
            self.jvm = max(self.jvm, _resident(process))
            with suppress(psutil.NoSuchProcess):
                self.workers = max(self.workers, sum(map(_resident_in_python, process.children(recursive=True))))


def _resident(process: psutil.Process) -> int:
    try:
        return process.memory_info().rss
    except psutil.NoSuchProcess:
        return 0


def _resident_in_python(process: psutil.Process) -> int:
    """A child of the JVM that has not become another program yet would count the JVM's memory again."""
    try:
        return _resident(process) if process.name().startswith("python") else 0
    except psutil.NoSuchProcess:
        return 0


def both_layers(platform: Platform, spark: SparkSession | None, of: ToBuild) -> tuple[float, float]:
    """The seconds that a tick takes: Standardized, then Curated."""
    return seconds_of(platform.standardize, spark, of), seconds_of(platform.curate, spark, of)


def _medians(ticks: list[tuple[float, float]]) -> tuple[float, float, float]:
    """The median tick of each layer, and of both together."""
    standardized, curated = zip(*ticks, strict=True)
    return statistics.median(standardized), statistics.median(curated), statistics.median(map(sum, ticks))


def seconds_of(action: Callable[..., object], *arguments: object) -> float:
    """How long an action takes."""
    begun = time.perf_counter()
    action(*arguments)
    return time.perf_counter() - begun


def _jobs(spark: SparkSession | None) -> Jobs:
    def session() -> SparkSession:
        assert spark, "there is nothing new, and yet Spark was asked for"
        return spark

    return Jobs(session)


def _listed(seconds: dict[str, float]) -> str:
    return ", ".join(f"{what} {took:.2f} s" for what, took in seconds.items())


def say(text: str) -> None:
    """What a benchmark is at, for whoever waits."""
    print(text, file=sys.stderr, flush=True)
