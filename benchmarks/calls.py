"""What a benchmark's processes ask of the catalog and of tables' files, by `instrumented/sitecustomize.py` in each."""

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.report import Section

_INSTRUMENTED = Path(__file__).with_name("instrumented")
_COLUMNS: Mapping[str, Sequence[str]] = {
    "table loads": ("table loads",),
    "commits": ("commits",),
    "other catalog calls": ("other catalog calls",),
    "file reads": ("metadata reads", "data reads"),
    "of these data files": ("data reads",),
    "file writes": ("metadata writes", "data writes"),
    "files looked for": ("metadata looks", "data looks"),
    "files removed": ("deletes",),
}
_PROCESSES = {"other": "the sensor's look and services", "run": "runs", "worker": "Spark's Python workers"}


@dataclass(frozen=True)
class Calls:
    """The calls that processes with this environment make, each of which may take so much longer."""

    folder: Path
    slow_ms: int = 0

    def environment(self) -> dict[str, str]:
        """What a process is started with to have its calls counted, and those of all that it starts."""
        self.folder.mkdir(exist_ok=True)
        path = [str(_INSTRUMENTED), *filter(None, [os.environ.get("PYTHONPATH")])]
        slow = {"BENCH_SLOW_MS": str(self.slow_ms)} if self.slow_ms else {}
        return {
            "BENCH_CALLS": str(self.folder),
            "PYTHONPATH": os.pathsep.join(path),
            "SPARK_CONF_DIR": str(_INSTRUMENTED),
            **slow,
        }

    def so_far(self) -> Counter[tuple[str, str]]:
        """How many there were, by the kind of process and of call."""
        found = ((file.name.partition("."), file.stat().st_size) for file in self.folder.glob("*"))
        return Counter({(process, call): count for (process, _, call), count in found})


@dataclass(frozen=True)
class CallsOfTick:
    """What was asked for to drain and to tick so many topics, by the kind of process and of call."""

    topics: int
    drained: Counter[tuple[str, str]]
    ticked: Counter[tuple[str, str]]


def call_section(ticks: Sequence[CallsOfTick]) -> Section:
    """What a topic costs of each kind of call: first with no tables, then with those that are there."""
    rows: list[tuple[object, ...]] = []
    for tick in ticks:
        rows.append((tick.topics, "drain", *_per_topic(tick.topics, tick.drained)))
        for process, name in _PROCESSES.items():
            of_process = Counter({each: count for each, count in tick.ticked.items() if each[0] == process})
            rows.append((tick.topics, f"tick: {name}", *_per_topic(tick.topics, of_process)))
        rows.append((tick.topics, "tick: all", *_per_topic(tick.topics, tick.ticked)))
    in_runs = sum(tick.ticked["run", "data reads"] for tick in ticks)
    return Section(
        "What a tick of the fleet asks of catalog and files",
        ("topics pending", "per topic", *_COLUMNS),
        rows,
        "Calls of PyIceberg's catalog and file system in all Python processes, over the number of topics; what Spark's "
        "JVM asks for by itself is not seen, which is the errors of all topics and topics of more than 16 MB. Of the "
        "first topics no tables were there: creating one counts as a commit, and loads it. A file that is read in "
        "parts is one read. The targets for a small topic are 6 table loads, 12 file reads and 4 commits. Runs opened "
        f"{in_runs:,} data files, so that {'no' if not in_runs else 'some'} rows went through Dagster's processes; the "
        "target is none.",
    )


def calls_per_topic(tick: CallsOfTick) -> dict[str, float]:
    """The calls of a tick, in all processes, by what was asked for; each once."""
    by_call: Counter[str] = Counter()
    for (_, call), count in tick.ticked.items():
        by_call[call] += count
    return {call: count / tick.topics for call, count in sorted(by_call.items())}


def _per_topic(topics: int, calls: Counter[tuple[str, str]]) -> list[str]:
    by_call: Counter[str] = Counter()
    for (_, call), count in calls.items():
        by_call[call] += count
    return [f"{sum(by_call[call] for call in column) / topics:.1f}" for column in _COLUMNS.values()]
