"""A topic's own rhythm: how long it has been silent, and for how long it may be before somebody should look."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

_ENOUGH = 5
_PATIENCE = 3
_LEAST = timedelta(hours=1)


@dataclass(frozen=True)
class Silence:
    """Since when nothing has landed, and how long that is usual; None while the rhythm is not known."""

    since: datetime
    lasts: timedelta
    usual: timedelta | None

    @property
    def is_too_long(self) -> bool:
        return self.usual is not None and self.lasts > self.usual


def silence(landings: Sequence[datetime], now: datetime, limit: timedelta | None = None) -> Silence | None:
    """How a topic's silence compares with the pauses between its landings; None if nothing has ever landed.

    Usual is three times the longest of all but the rarest pauses (one in twenty), and an hour at least. `limit`, where
    the contract has one, takes its place.
    """
    if not landings:
        return None
    moments = sorted(landings)
    pauses = sorted(later - earlier for earlier, later in pairwise(moments))
    if limit is None and len(pauses) >= _ENOUGH:
        limit = max(_LEAST, _PATIENCE * pauses[(len(pauses) - 1) * 19 // 20])
    return Silence(moments[-1], now - moments[-1], limit)
