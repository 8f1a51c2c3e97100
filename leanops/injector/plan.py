"""Which message of a topic is what. Messages are numbered from 0 in the order in which they are published."""

from bisect import bisect_right
from collections.abc import Iterator
from datetime import date
from enum import IntEnum
from itertools import accumulate
from random import Random

from leanops.injector.injection import Injection


class Kind(IntEnum):
    """What a message is: a new, good record, or what the share of that name asks for."""

    RECORDS = 0
    DUPLICATES = 1
    LATE = 2
    CORRECTIONS = 3
    OUT_OF_ORDER = 4
    DRIFT = 5
    CDE_VIOLATIONS = 6
    TYPE_VIOLATIONS = 7
    MALFORMED_PAYLOADS = 8
    MALFORMED_TIMESTAMPS = 9
    POISON = 10


_VIOLATIONS = frozenset({Kind.CDE_VIOLATIONS, Kind.TYPE_VIOLATIONS})
_DEAD = frozenset({Kind.MALFORMED_TIMESTAMPS, Kind.POISON})
_VERSIONS = frozenset({Kind.RECORDS, Kind.LATE, Kind.DRIFT, *_VIOLATIONS})
_CAN_BE_COPIED = frozenset(Kind) - _DEAD - {Kind.DUPLICATES}
_TRIES = 50
_MASK = 2**64 - 1
_KINDS = tuple(Kind)
_EPOCH = date(1970, 1, 1)
SECOND = 1_000_000
"""Moments are in microseconds since 1970."""
DAY = 24 * 60 * 60 * SECOND
_MARGIN = 60 * SECOND


class Plan:
    """The messages of one topic, over all days of a scenario, whichever of them are fed."""

    def __init__(self, injection: Injection, topic: str) -> None:
        scenario = injection.scenario
        sizes = [scenario.messages_of(day) for day in scenario.days]
        self._ends = list(accumulate(sizes))
        self._starts = [0, *self._ends[:-1]]
        self._steps = [(DAY - 2 * _MARGIN) // size for size in sizes]
        self._days = [(day - _EPOCH).days * DAY + _MARGIN for day in injection.publish_days]
        self._late_by = scenario.late_by_days
        self._fed = injection.days
        self._mark = int(injection.mark(topic), 16)
        self._kinds = bytearray(self._ends[-1])
        self._partners: dict[int, int] = {}
        random = Random(self._mark)  # noqa: S311 - no secret, and the same each time
        for start, size, day in zip(self._starts, sizes, scenario.days, strict=True):
            self._draw(random, start, size, scenario.counts_of(day))

    def _draw(self, random: Random, start: int, size: int, counts: dict[str, int]) -> None:
        """Give so many places of a day to each kind. The first message is always a new record."""
        special = sum(counts.values()) + counts["out_of_order"]
        places = iter(random.sample(range(start + 1, start + size), special))
        for name, count in counts.items():
            kind = Kind[name.upper()]
            for _ in range(count):
                place = next(places)
                if kind is Kind.OUT_OF_ORDER:
                    older, place = sorted((place, next(places)))
                    self._partners |= {older: place, place: older}
                self._kinds[place] = kind

    def numbers(self) -> Iterator[int]:
        """The messages that are fed, in the order of their delivery."""
        for day in self._fed:
            for place in range(self._starts[day - 1], self._ends[day - 1]):
                yield self._partners.get(place, place)

    def kind(self, number: int) -> Kind:
        """What a message is."""
        return _KINDS[self._kinds[number]]

    def copied(self, number: int) -> int:
        """The message of which a duplicate is a copy."""
        return self._earlier(number, _CAN_BE_COPIED)

    def record(self, number: int) -> int:
        """The record of which a message is a version, which is called by the number of its first version."""
        kind = self._kinds[number]
        if kind == Kind.OUT_OF_ORDER:
            return self._partners[number]
        if kind == Kind.CORRECTIONS or (kind in _VIOLATIONS and _is_correction(number)):
            return self.record(self._earlier(number, _VERSIONS))
        return number

    def published(self, number: int) -> int:
        """The moment at which a message is published."""
        kind = self._kinds[number]
        if kind == Kind.OUT_OF_ORDER and number % 3:
            # It is later by what comes after the moment in the order of versions.
            return self.published(self._partners[number])
        day = bisect_right(self._ends, number)
        moment = self._days[day] + (number - self._starts[day]) * self._steps[day]
        return moment - DAY * (1 + self.mixed(number) % self._late_by) if kind == Kind.LATE else moment

    def seconds_on_the_way(self, number: int) -> int:
        """How long it takes until a message is taken in."""
        return 2 if self._kinds[number] == Kind.OUT_OF_ORDER and number % 3 == 1 else 1

    def mixed(self, number: int) -> int:
        """A number that looks like chance, and is always the same for a message (the finish of SplitMix64)."""
        mixed = (self._mark + (number + 1) * 0x9E3779B97F4A7C15) & _MASK
        mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
        mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB & _MASK
        return mixed ^ (mixed >> 31)

    def _earlier(self, number: int, kinds: frozenset[Kind]) -> int:
        """A message before this one that is of one of these kinds; the very first is a new record."""
        mixed = self.mixed(number)
        for attempt in range(_TRIES):
            place = (mixed + attempt * 0x9E3779B97F4A7C15 & _MASK) % number
            if self._kinds[place] in kinds:
                return place
        return 0


def _is_correction(number: int) -> bool:
    """Whether a message that breaks the contract is a version of an earlier record."""
    return number % 3 == 0
