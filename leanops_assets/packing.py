"""Which topics share a run: as many as a run may take, and about as much work in each.

| run | topics | a step takes at most | at once (`dagster.yaml`) |
|---|---|---|---|
| shared | up to `LEANOPS_TOPICS_PER_RUN` | `SHARED_MINUTES` | as many as Spark's pool takes |
| huge | one with more than `HUGE_BYTES` to build | `LEANOPS_STEP_MINUTES` | 2 |
| failed | those that failed the last time | `LEANOPS_STEP_MINUTES` | 1 |

So a topic that hangs keeps those of its run waiting once, for minutes, and is apart from then on. One that only takes
long, for a busy machine, has the time it needs when it is tried again.
"""

import math
import os
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leanops.pending import Pending

HUGE_BYTES = 64 * 2**20
"""A topic with more to build than this, some minutes' work, has a run of its own: no other topic waits for it."""

TOPIC_BYTES = 4 * 2**20
"""A topic takes time before its first byte, as much as this many bytes do."""

WORTH_A_RUN = 60
"""A run takes as long to request and to start as some 25 topics take to be built."""

CORES = min(os.cpu_count() or 1, 4)
"""So many runs at once build fastest; more than Spark's pool takes (`dagster.yaml`) would wait for each other."""

SHARED_MINUTES = 5.0

RUN = "leanops/run"
"""The tag of a run that says which kind it is."""


class RunKind(StrEnum):
    """How the topics of a run of the tick were put together."""

    SHARED = "shared"
    HUGE = "huge"
    FAILED = "failed"


@dataclass(frozen=True)
class PlannedRun:
    """A run of one day over some topics."""

    day: date
    kind: RunKind
    topics: "Sequence[Pending]"


def planned_runs(
    found: "Iterable[Pending]", first_day: date, topics_per_run: int, failed: Collection[str] = ()
) -> list[PlannedRun]:
    """The runs of each day, over the topics of which it is the newest pending one: a build takes in all their days."""
    by_day: dict[date, list[Pending]] = defaultdict(list)
    for each in found:
        by_day[max(*each.days, first_day)].append(each)
    return [
        PlannedRun(day, kind, topics)
        for day in sorted(by_day)
        for kind, topics in _runs(by_day[day], topics_per_run, failed)
    ]


def _runs(
    found: "Iterable[Pending]", topics_per_run: int, failed: Collection[str]
) -> "Iterator[tuple[RunKind, list[Pending]]]":
    rest: dict[RunKind, list[Pending]] = {RunKind.SHARED: [], RunKind.FAILED: []}
    for each in sorted(found, key=lambda each: (-each.bytes, each.topic)):
        if each.bytes > HUGE_BYTES:
            yield RunKind.HUGE, [each]
        else:
            rest[RunKind.FAILED if each.topic in failed else RunKind.SHARED].append(each)
    for kind, topics in rest.items():
        for run in packed(topics, topics_per_run):
            yield kind, run


def packed(largest_first: "Sequence[Pending]", topics_per_run: int) -> "list[list[Pending]]":
    """As few runs as hold all topics and keep the cores busy. They go, the largest first, where least is."""
    topics = len(largest_first)
    count = max(math.ceil(topics / topics_per_run), min(CORES, topics // WORTH_A_RUN))
    runs: list[list[Pending]] = [[] for _ in range(count)]
    for each in largest_first:
        min((run for run in runs if len(run) < topics_per_run), key=_work).append(each)
    return runs


def _work(topics: "Iterable[Pending]") -> int:
    return sum(each.bytes + TOPIC_BYTES for each in topics)
