"""What a run of one topic takes that has little to do, on a warm server and in a warm process."""

import statistics
from pathlib import Path

from benchmarks.fleet_home import Fleet
from benchmarks.in_process import tick_here
from benchmarks.report import Section

MESSAGES, WARM_TICKS, TICKS = 20, 2, 5


def measure(folder: Path) -> Section:
    """Ticks of some new messages each."""
    with Fleet(folder / "fleet", topics=1) as fleet:
        costs = []
        for number in range(WARM_TICKS + TICKS):
            fleet.inject_into(fleet.names(), MESSAGES, seed=number)
            fleet.drain()
            costs.append(tick_here(fleet))
        fleet.leanops("inject-check")
    seconds = [cost.seconds for cost in costs[WARM_TICKS:]]
    core_seconds = [cost.core_seconds for cost in costs[WARM_TICKS:]]
    return Section(
        "One topic alone",
        ("messages", "run, s", "shortest, s", "longest, s", "core-seconds of the run's process", "target, s"),
        [
            (
                MESSAGES,
                f"{statistics.median(seconds):.2f}",
                f"{min(seconds):.2f}",
                f"{max(seconds):.2f}",
                f"{statistics.median(core_seconds):.2f}",
                2,
            )
        ],
        f"A run of the tick with both layers and all checks of one topic, in the process that asks for it: from when "
        f"Dagster is told to execute it to its last event, the Spark session of the run included, the start of Python "
        f"and the loading of definitions not. Each of {TICKS} ticks has {MESSAGES} new messages; {WARM_TICKS} before "
        f"them are for warmth, the first of which makes the tables ({costs[0].seconds:.1f} s, with the start of the "
        "Spark server). Medians. The target is 2 s.",
    )
