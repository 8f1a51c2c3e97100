"""A tick of the whole fleet: hundreds of topics of mixed size, from landing files to Curated, through the automation.

Messages are made up by `leanops inject`, drained by `leanops drain`, built by the runs that the sensor `tick` requests
beside a running `leanops dev`, and compared with what they must become by `leanops inject-check` and `leanops ledger`.
All times but the drain's are Dagster's own records: from the sensor's look to the end of its last run.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import dagster as dg
from dagster._core.scheduler.instigation import InstigatorTick, TickStatus
from dagster._core.storage.dagster_run import NOT_FINISHED_STATUSES

from benchmarks.calls import Calls, CallsOfTick, call_section
from benchmarks.engine_data import SHRINK
from benchmarks.footprint import Footprint
from benchmarks.report import Section
from benchmarks.topics import write_contracts
from leanops.home import Home
from leanops_assets.instance import dagster_instance
from leanops_resources.spark.server import running

SIZES = {"large": (1, 4_000), "medium": (9, 400), "small": (60, 40)}
"""Of every 70 topics so many, with so many messages each."""

SHARES = {
    "duplicates": 0.02,
    "late": 0.01,
    "corrections": 0.04,
    "drift": 0.005,
    "cde_violations": 0.01,
    "type_violations": 0.01,
    "malformed_payloads": 0.01,
    "poison": 0.002,
}
LONGEST_SECONDS = 3_600
SLOW_MS = 30
_ALL = dict.fromkeys(SIZES, 700)
_COLUMNS = (
    "topics pending",
    "messages",
    "landing files to RAW, s",
    "the sensor's look, s",
    "tick, s",
    "both, s",
    "runs",
    "in Dagster",
    "in Spark",
    "in Python",
    "core-seconds",
    "peak of all processes, MB",
    "Dagster's files, MB more",
)
_FLEET = (
    "Of every 70 topics 1 has 4,000 messages, 9 have 400 and 60 have 40, with copies, corrections, late ones, drift, "
    "broken rows and dead letters among them; contracts of 20 columns."
)
_UNFINISHED = dg.RunsFilter(job_name="tick", statuses=NOT_FINISHED_STATUSES)


@dataclass(frozen=True)
class Ticked:
    """What a tick took, in seconds; those of its runs are summed up, whatever went on at once."""

    looked: float
    whole: float
    runs: int
    in_runs: float
    """From when they were launched to their end."""
    in_builds: float
    """Building and checking: what is left of the runs' time is Dagster's."""


@dataclass(frozen=True)
class Measured:
    """What draining and ticking some topics took, and what was asked of catalog and files for it."""

    row: tuple[object, ...]
    seconds: float
    calls: CallsOfTick


class Fleet:
    """A home with so many topics, and what is done with it. Each call of catalog and files may take so much longer."""

    def __init__(self, folder: Path, topics: int, slow_ms: int = 0) -> None:
        self.topics = topics
        self.home = Home(folder / "home")
        self.calls = Calls(folder / "calls", slow_ms)
        self._contracts = folder / "contracts"
        self._scenarios = folder / "scenarios"
        self._scenarios.mkdir()
        write_contracts(self._contracts, topics)

    def names(self, size: str) -> list[str]:
        """The topics of a size."""
        first = 0
        for each, (share, _) in SIZES.items():
            count = self.topics * share // 70
            if each == size:
                return [f"topic_{number:04}" for number in range(first, first + count)]
            first += count
        raise KeyError(size)

    def inject(self, seed: int, most: Mapping[str, int]) -> tuple[int, int]:
        """Lay messages for some topics of each size into the landing folder; for how many, and how many messages."""
        topics = messages = 0
        for size, count in most.items():
            names, each = self.names(size)[:count], SIZES[size][1]
            if not names:
                continue
            scenario = {
                "seed": seed,
                "topics": [{"name": name, "contract": name} for name in names],
                "rate": each,
                "seconds": 1,
                "days": [{"day": 0}],
                "shares": SHARES,
            }
            file = self._scenarios / f"{size}.json"
            file.write_text(json.dumps(scenario))
            self.leanops("inject", str(file))
            topics, messages = topics + len(names), messages + each * len(names)
        return topics, messages

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self.leanops("ledger")
        finally:
            self.leanops("spark", "stop")

    @property
    def history_bytes(self) -> int:
        """How large all is that Dagster has written down of runs."""
        return sum(file.stat().st_size for file in self.home.dagster.rglob("*") if file.is_file())

    def drain(self) -> float:
        """Bring what was laid into the landing folder to RAW; how many seconds it took."""
        return self.leanops("drain", more=self.calls.environment())

    def leanops(self, *arguments: str, more: dict[str, str] | None = None) -> float:
        """A command, and how many seconds it took."""
        environment = self._environment() | (more or {})
        begun = time.perf_counter()
        done = subprocess.run(self._command(*arguments), env=environment, capture_output=True, text=True, check=False)
        assert not done.returncode, f"leanops {' '.join(arguments)}: {done.stdout[-2_000:]}{done.stderr[-2_000:]}"
        return time.perf_counter() - begun

    def tick(self) -> Ticked:
        """Open the platform, let its sensor look once and the queue work off what it requests, and close it."""
        begun = time.time()
        with self._platform(), dagster_instance(self.home) as instance:
            deadline = begun + LONGEST_SECONDS
            while (look := _look(instance, begun)) is None or instance.get_runs_count(_UNFINISHED):
                assert time.time() < deadline, "The tick does not end."
                time.sleep(0.5)
            return _ticked(instance, look)

    @contextmanager
    def _platform(self) -> Iterator[None]:
        with (self.home.logs / "dev.log").open("ab") as log:
            environment = self._environment() | self.calls.environment()
            process = subprocess.Popen(self._command("dev"), env=environment, stdout=log, stderr=log)
            try:
                yield
            finally:
                process.terminate()
                process.wait(timeout=60)

    @staticmethod
    def _command(*arguments: str) -> list[str]:
        return [str(Path(sys.executable).with_name("leanops")), *arguments]

    def _environment(self) -> dict[str, str]:
        places = {"LEANOPS_HOME": str(self.home.path), "LEANOPS_SCHEMAS": str(self._contracts)}
        # A sensor that has looked looks again only when its time has come, also after the platform was closed.
        return {**os.environ, **places, "LEANOPS_PORT": "3999", "LEANOPS_TICK_MINUTES": "1"}


def measure(folder: Path) -> tuple[Section, Section]:
    """Half the fleet, then all of it; then 30 of its topics, and then none."""
    half, whole = (_new_fleet(folder / str(topics), topics) for topics in (350 // SHRINK, 700 // SHRINK))
    with half:
        of_half = _measure(half, 1, _ALL)
    with whole:
        of_all = _measure(whole, 1, _ALL)
        of_few = _measure(whole, 2, {"large": 1, "medium": 4, "small": 25})
        of_none, command = _measure_nothing(whole)
    ticks = Section(
        "A tick of the fleet",
        _COLUMNS,
        [of_half.row, of_all.row, of_few.row, of_none],
        f"{_FLEET} The first two rows begin with no tables and a cold Spark server. The tick is from the sensor's look "
        "to the end of its last run, beside `leanops dev` with its daemon and UI, whose start is not counted but whose "
        "memory is; every check included. Afterwards `inject-check` and the ledger of all topics were clean. "
        f"Twice the topics took {of_all.seconds / of_half.seconds:.2f} x the time. With nothing pending, Spark was not "
        f"woken, and `leanops tick` took {command:.1f} s in all. Shares are of the core-seconds of all processes: "
        "Dagster's are its services' and those of runs outside of building and checking, Python's are building, "
        "checking and draining.",
    )
    return ticks, call_section([of_all.calls, of_few.calls])


def measure_slow(folder: Path) -> Section:
    """All of the fleet where catalog and files are far away."""
    with _new_fleet(folder / "slow", 700 // SHRINK, SLOW_MS) as fleet:
        measured = _measure(fleet, 1, _ALL)
    asked = measured.calls
    return Section(
        "A tick of the fleet with a slow catalog and slow files",
        _COLUMNS,
        [measured.row],
        f"{_FLEET} It begins with no tables and a cold Spark server. Every call of PyIceberg's to the catalog, and "
        f"every file that Python opens, makes, looks for or removes, takes {SLOW_MS} ms more, in the drain, in the "
        f"sensor's look, in runs and in Spark's Python workers: {asked.drained.total():,} calls in the drain and "
        f"{asked.ticked.total():,} in the tick. What Spark's JVM asks for by itself takes as long as ever. The target "
        "for both is 480 s.",
    )


def _new_fleet(folder: Path, topics: int, slow_ms: int = 0) -> Fleet:
    folder.mkdir()
    return Fleet(folder, topics, slow_ms)


def _measure(fleet: Fleet, seed: int, most: Mapping[str, int]) -> Measured:
    """Drain and tick so many topics of each size at most, and see that all is as it must be."""
    topics, messages = fleet.inject(seed, most)
    size_before, calls_before = fleet.history_bytes, fleet.calls.so_far()
    with Footprint(fleet.home.path) as footprint:
        drained = fleet.drain()
        calls_drained = fleet.calls.so_far()
        ticked = fleet.tick()
    calls = CallsOfTick(topics, calls_drained - calls_before, fleet.calls.so_far() - calls_drained)
    if fleet.calls.slow_ms:
        # Its workers are slow for as long as it lives.
        fleet.leanops("spark", "stop")
    fleet.leanops("inject-check")
    written = fleet.history_bytes - size_before
    row = (*_row(topics, messages, drained, ticked, footprint), f"{written / 2**20:,.0f}")
    return Measured(row, drained + ticked.whole, calls)


def _measure_nothing(fleet: Fleet) -> tuple[tuple[object, ...], float]:
    """A look at a fleet of which nothing is pending, and how long the command for it takes."""
    fleet.leanops("spark", "stop")
    with Footprint(fleet.home.path) as footprint:
        ticked = fleet.tick()
    command = fleet.leanops("tick")
    assert not running(fleet.home), "Nothing was pending, and Spark was woken."
    return (*_row(0, 0, 0, ticked, footprint), ""), command


def _row(topics: int, messages: int, drained: float, ticked: Ticked, footprint: Footprint) -> tuple[object, ...]:
    taken = footprint.seconds
    of_dagster = 1 - ticked.in_builds / ticked.in_runs if ticked.in_runs else 0
    in_runs = max(taken["python"] - drained, 0)
    parts = (taken["services"] + in_runs * of_dagster, taken["spark"], taken["python"] - in_runs * of_dagster)
    return (
        topics,
        f"{messages:,}",
        f"{drained:.0f}",
        f"{ticked.looked:.2f}",
        f"{ticked.whole:.0f}" if ticked.runs else f"{ticked.whole:.2f}",
        f"{drained + ticked.whole:.0f}" if ticked.runs else "",
        ticked.runs,
        *(f"{100 * part / sum(parts):.0f} %" if ticked.runs else "" for part in parts),
        f"{sum(parts):.0f}" if ticked.runs else "",
        f"{footprint.peak / 2**20:,.0f}",
    )


def _look(instance: dg.DagsterInstance, begun: float) -> InstigatorTick | None:
    """The sensor's first look since a moment, once it is done."""
    for state in instance.all_instigator_state():
        if state.instigator_name == "tick":
            looks = instance.get_ticks(state.instigator_origin_id, state.selector_id, after=begun)
            done = [each for each in looks if each.status in (TickStatus.SUCCESS, TickStatus.SKIPPED)]
            return min(done, key=lambda each: each.timestamp, default=None)
    return None


def _ticked(instance: dg.DagsterInstance, look: InstigatorTick) -> Ticked:
    looked_until = look.end_timestamp or look.timestamp
    end, in_runs, in_builds = looked_until, 0.0, 0.0
    for run_id in look.run_ids:
        run = instance.get_run_record_by_id(run_id)
        assert run is not None
        assert run.dagster_run.is_success, f"The run {run_id} is {run.dagster_run.status}."
        assert run.end_time is not None
        events = [(entry.timestamp, entry.dagster_event) for entry in instance.all_logs(run_id) if entry.dagster_event]
        launched = min(at for at, event in events if event.event_type is dg.DagsterEventType.PIPELINE_STARTING)
        end, in_runs = max(end, run.end_time), in_runs + run.end_time - launched
        # All topics of a run are one batch, and each tells what the batch took.
        took: dict[tuple[str, str], float] = {}
        for _, event in events:
            if event.is_step_materialization and event.asset_key:
                said = event.step_materialization_data.materialization.metadata
                for layer, name in ((event.asset_key.path[0], "seconds"), ("ledger", "check_seconds")):
                    if name in said:
                        took[layer, name] = max(float(str(said[name].value)), took.get((layer, name), 0.0))
        in_builds += sum(took.values())
    return Ticked(looked_until - look.timestamp, end - look.timestamp, len(look.run_ids), in_runs, in_builds)
