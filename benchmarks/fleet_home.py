"""A home with as many topics as a benchmark asks for: messages are laid into it, drained and built.

Messages are made up by `leanops inject`, drained by `leanops drain`, and built by the runs that the sensor `tick`
requests beside a running `leanops dev`. What a tick took is read from Dagster's own records.
"""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import dagster as dg
from dagster._core.scheduler.instigation import InstigatorTick, TickStatus
from dagster._core.storage.dagster_run import NOT_FINISHED_STATUSES

from benchmarks.calls import Calls
from benchmarks.topics import write_contracts
from leanops.home import Home
from leanops_assets.instance import dagster_instance

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
Found = TypeVar("Found")
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
    calls: Counter[tuple[str, str]]
    """What was asked of catalog and files, by the kind of process and of call."""


class Fleet:
    """A home with so many topics, and what is done with it.

    Each call of catalog and files may take so much longer. Whatever else is named is in the environment of the home's
    processes.
    """

    def __init__(
        self,
        folder: Path,
        topics: int,
        slow_ms: int = 0,
        write_contracts: Callable[[Path, int], None] = write_contracts,
        **more: str,
    ) -> None:
        self.topics = topics
        self.is_proven = True
        """Whether every row of all topics is looked at in the end."""
        self._more = more
        self.home = Home(folder / "home")
        self.calls = Calls(folder / "calls", slow_ms)
        self._contracts = folder / "contracts"
        self._scenarios = folder / "scenarios"
        self._scenarios.mkdir(parents=True)
        write_contracts(self._contracts, topics)

    def names(self, size: str | None = None) -> list[str]:
        """The topics of a size, or all."""
        if size is None:
            return [f"topic_{number:04}" for number in range(self.topics)]
        first = 0
        for each, (share, _) in SIZES.items():
            count = self.topics * share // 70
            if each == size:
                return self.names()[first : first + count]
            first += count
        raise KeyError(size)

    def inject(self, seed: int, most: Mapping[str, int]) -> tuple[int, int]:
        """Lay messages for some topics of each size into the landing folder; for how many, and how many messages."""
        topics = messages = 0
        for size, count in most.items():
            names, each = self.names(size)[:count], SIZES[size][1]
            self.inject_into(names, each, seed)
            topics, messages = topics + len(names), messages + each * len(names)
        return topics, messages

    def inject_into(self, names: Sequence[str], each: int, seed: int) -> None:
        """Lay so many messages for each of these topics into the landing folder."""
        if not names:
            return
        scenario = {
            "seed": seed,
            "topics": [{"name": name, "contract": name} for name in names],
            "rate": each,
            "seconds": 1,
            "days": [{"day": 0}],
            "shares": SHARES,
        }
        file = self._scenarios / "scenario.json"
        file.write_text(json.dumps(scenario))
        self.leanops("inject", str(file))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None and self.is_proven:
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
        environment = self.environment() | (more or {})
        begun = time.perf_counter()
        done = subprocess.run(self._command(*arguments), env=environment, capture_output=True, text=True, check=False)
        assert not done.returncode, f"leanops {' '.join(arguments)}: {done.stdout[-2_000:]}{done.stderr[-2_000:]}"
        return time.perf_counter() - begun

    def tick(self) -> Ticked:
        """Open the platform, let its sensor look once and the queue work off what it requests, and close it."""
        begun, before = time.time(), self.calls.so_far()
        with self._platform(), dagster_instance(self.home) as instance:
            look = _wait_for(lambda: _look(instance, begun))
            looked = self.calls.so_far()
            _wait_for(lambda: instance.get_runs_count(_UNFINISHED) == 0 or None)
            # The sensor looks again while its runs go on, which is another tick.
            done = {each: count for each, count in self.calls.so_far().items() if each[0] != "other"}
            return _ticked(instance, look, Counter({**looked, **done}) - before)

    @contextmanager
    def _platform(self) -> Iterator[None]:
        with (self.home.logs / "dev.log").open("ab") as log:
            environment = self.environment() | self.calls.environment()
            process = subprocess.Popen(self._command("dev"), env=environment, stdout=log, stderr=log)
            try:
                yield
            finally:
                process.terminate()
                process.wait(timeout=60)

    @staticmethod
    def _command(*arguments: str) -> list[str]:
        return [str(Path(sys.executable).with_name("leanops")), *arguments]

    def environment(self) -> dict[str, str]:
        """What a process of this home is started with."""
        places = {"LEANOPS_HOME": str(self.home.path), "LEANOPS_SCHEMAS": str(self._contracts)}
        # A sensor that has looked looks again only when its time has come, also after the platform was closed.
        return {**os.environ, **places, "LEANOPS_PORT": "3999", "LEANOPS_TICK_MINUTES": "1", **self._more}


def _wait_for(find: Callable[[], Found | None]) -> Found:
    deadline = time.monotonic() + LONGEST_SECONDS
    while (found := find()) is None:
        assert time.monotonic() < deadline, "The tick does not end."
        time.sleep(0.5)
    return found


def _look(instance: dg.DagsterInstance, begun: float) -> InstigatorTick | None:
    """The sensor's first look since a moment, once it is done."""
    for state in instance.all_instigator_state():
        if state.instigator_name == "tick":
            looks = instance.get_ticks(state.instigator_origin_id, state.selector_id, after=begun)
            done = [each for each in looks if each.status in (TickStatus.SUCCESS, TickStatus.SKIPPED)]
            return min(done, key=lambda each: each.timestamp, default=None)
    return None


def _ticked(instance: dg.DagsterInstance, look: InstigatorTick, calls: Counter[tuple[str, str]]) -> Ticked:
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
    return Ticked(looked_until - look.timestamp, end - look.timestamp, len(look.run_ids), in_runs, in_builds, calls)
