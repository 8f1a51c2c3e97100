"""Which topics share a run: as many as a run may take, and about as much work in each."""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leanops.pending import Pending

HUGE_BYTES = 64 * 2**20
"""A topic with more to build than this, some minutes' work, has a run of its own: no other topic waits for it."""

TOPIC_BYTES = 4 * 2**20
"""A topic takes time before its first byte, as much as this many bytes do."""


@dataclass(frozen=True)
class PlannedRun:
    """A run of one day over some topics."""

    day: date
    topics: "Sequence[Pending]"

    @property
    def is_huge(self) -> bool:
        return any(each.bytes > HUGE_BYTES for each in self.topics)


def planned_runs(found: "Iterable[Pending]", first_day: date, topics_per_run: int) -> list[PlannedRun]:
    """The runs of each day, over the topics of which it is the newest pending one: a build takes in all their days."""
    by_day: dict[date, list[Pending]] = defaultdict(list)
    for each in found:
        by_day[max(*each.days, first_day)].append(each)
    return [PlannedRun(day, topics) for day in sorted(by_day) for topics in packed(by_day[day], topics_per_run)]


def packed(found: "Iterable[Pending]", topics_per_run: int) -> "list[list[Pending]]":
    """As few runs as hold all topics, those that are huge first. The others go, the largest first, where least is."""
    largest_first = sorted(found, key=lambda each: (-each.bytes, each.topic))
    alone = [[each] for each in largest_first if each.bytes > HUGE_BYTES]
    rest = largest_first[len(alone) :]
    runs: list[list[Pending]] = [[] for _ in range(math.ceil(len(rest) / topics_per_run))]
    for each in rest:
        min((run for run in runs if len(run) < topics_per_run), key=_work).append(each)
    return alone + runs


def _work(topics: "Iterable[Pending]") -> int:
    return sum(each.bytes + TOPIC_BYTES for each in topics)
