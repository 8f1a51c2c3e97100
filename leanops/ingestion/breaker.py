"""The circuit breaker of a topic: when most of what comes fails, ingestion stops before it makes things worse.

    closed ──more than half of a window fails──► open ──a pause later──► half open ──the trial batch is good──► closed
                                                   ▲                         │
                                                   └──────the trial fails────┘

While it is open nothing is received, so messages wait in their queue instead of becoming dead letters one by one.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

WINDOW = timedelta(minutes=5)
PAUSE = timedelta(minutes=1)
LEAST = 20
"""Fewer messages say nothing about a topic."""
TRIAL_MESSAGES = 10
_SLOT_SECONDS = 10


class Circuit(StrEnum):
    """Whether messages pass."""

    CLOSED = "CLOSED"
    OPEN = "OPEN"
    HALF_OPEN = "HALF_OPEN"


class Batch(NamedTuple):
    """How the batches of ten seconds went, which begin `at`: a window has few of them, however busy its topic is."""

    at: datetime
    good: int
    failed: int


@dataclass(frozen=True)
class Breaker:
    """A topic's breaker: a value, which every batch makes anew."""

    circuit: Circuit = Circuit.CLOSED
    window: tuple[Batch, ...] = ()
    opened: datetime | None = None
    reason: str | None = None

    def at(self, now: datetime) -> "Breaker":
        """The breaker as it is now: after its pause an open one lets one trial batch through.

        A clock that was set back keeps it open for a second pause, at most.
        """
        if self.circuit is Circuit.OPEN and (self.opened is None or abs(now - self.opened) >= PAUSE):
            return replace(self, circuit=Circuit.HALF_OPEN)
        return self

    def after(self, good: int, failed: int, now: datetime) -> "Breaker":
        """The breaker after a batch of so many good and failed messages."""
        if not good + failed:
            return self
        if self.circuit is Circuit.HALF_OPEN:
            if failed * 2 > good + failed:
                return self._open((), good, failed, now)
            return Breaker(window=_noted((), good, failed, now))
        window = _noted(self.window, good, failed, now)
        all_good, all_failed = sum(batch.good for batch in window), sum(batch.failed for batch in window)
        if all_good + all_failed >= LEAST and all_failed * 2 > all_good + all_failed:
            return self._open(window, all_good, all_failed, now)
        return replace(self, window=window)

    def _open(self, window: tuple[Batch, ...], good: int, failed: int, now: datetime) -> "Breaker":
        share = 100 * failed / (good + failed)
        minutes = f"{WINDOW.total_seconds() / 60:g} minutes"
        reason = f"{failed:,} of {good + failed:,} messages failed ({share:.0f} %) " + (
            "of the trial batch." if self.circuit is Circuit.HALF_OPEN else f"within {minutes}."
        )
        return Breaker(Circuit.OPEN, window, now, reason)


def _noted(window: tuple[Batch, ...], good: int, failed: int, now: datetime) -> tuple[Batch, ...]:
    """The window with one batch more, and without what is too old."""
    slots = {batch.at: batch for batch in window if abs(now - batch.at) <= WINDOW}
    at = now.replace(second=now.second // _SLOT_SECONDS * _SLOT_SECONDS, microsecond=0)
    before = slots.get(at, Batch(at, 0, 0))
    slots[at] = Batch(at, before.good + good, before.failed + failed)
    return tuple(slots.values())
