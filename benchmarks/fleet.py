"""A tick of the whole fleet: hundreds of topics of mixed size, from landing files to Curated, through the automation.

What was built is compared with what it must become by `leanops inject-check` and `leanops ledger`. All times but the
drain's are Dagster's own records: from the sensor's look to the end of its last run.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.calls import CallsOfTick, call_section
from benchmarks.engine_data import SHRINK
from benchmarks.fleet_home import SIZES, Fleet, Ticked
from benchmarks.footprint import Footprint
from benchmarks.report import Section
from leanops_resources.spark.server import running

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


@dataclass(frozen=True)
class Measured:
    """What draining and ticking some topics took, and what was asked of catalog and files for it."""

    row: tuple[object, ...]
    seconds: float
    calls: CallsOfTick


def measure(folder: Path) -> tuple[Section, Section]:
    """Half the fleet, then all of it; then 30 of its topics, and then none."""
    half, whole = (Fleet(folder / str(topics), topics) for topics in (350 // SHRINK, 700 // SHRINK))
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
    with Fleet(folder / "slow", 700 // SHRINK, SLOW_MS) as fleet:
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


def _measure(fleet: Fleet, seed: int, most: Mapping[str, int]) -> Measured:
    """Drain and tick so many topics of each size at most, and see that all is as it must be."""
    topics, messages = fleet.inject(seed, most)
    size_before, calls_before = fleet.history_bytes, fleet.calls.so_far()
    with Footprint(fleet.home.path) as footprint:
        drained = fleet.drain()
        calls_drained = fleet.calls.so_far() - calls_before
        ticked = fleet.tick()
    if fleet.calls.slow_ms:
        # Its workers are slow for as long as it lives.
        fleet.leanops("spark", "stop")
    fleet.leanops("inject-check")
    written = fleet.history_bytes - size_before
    row = (*_row(topics, messages, drained, ticked, footprint), f"{written / 2**20:,.0f}")
    return Measured(row, drained + ticked.whole, CallsOfTick(topics, calls_drained, ticked.calls))


def _measure_nothing(fleet: Fleet) -> tuple[tuple[object, ...], float]:
    """A look at a fleet of which nothing is pending, and how long the command for it takes."""
    fleet.leanops("spark", "stop")
    with Footprint(fleet.home.path) as footprint:
        ticked = fleet.tick()
    command = fleet.leanops("tick")
    assert not running(fleet.home), "Nothing was pending, and Spark was woken."
    return (*_row(0, 0, 0, ticked, footprint), ""), command


def _row(topics: int, messages: int, drained: float, ticked: Ticked, footprint: Footprint) -> tuple[object, ...]:
    return (
        topics,
        f"{messages:,}",
        f"{drained:.0f}",
        f"{ticked.looked:.2f}",
        f"{ticked.whole:.0f}" if ticked.runs else f"{ticked.whole:.2f}",
        f"{drained + ticked.whole:.0f}" if ticked.runs else "",
        ticked.runs,
        *shares_of(ticked, footprint, drained),
        f"{footprint.peak / 2**20:,.0f}",
    )


def shares_of(ticked: Ticked, footprint: Footprint, drained: float = 0) -> tuple[str, ...]:
    """What Dagster, Spark and Python took of the core-seconds of a tick and the drain before it, and all of these."""
    taken = footprint.seconds
    of_dagster = 1 - ticked.in_builds / ticked.in_runs if ticked.in_runs else 0
    in_runs = max(taken["python"] - drained, 0)
    parts = (taken["services"] + in_runs * of_dagster, taken["spark"], taken["python"] - in_runs * of_dagster)
    texts = (*(f"{100 * part / sum(parts):.0f} %" for part in parts), f"{sum(parts):.0f}")
    return texts if ticked.runs else ("",) * len(texts)
