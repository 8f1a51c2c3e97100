"""How long a topic that failed is left alone: twice as long after each failure in a row, and never for good."""

from dataclasses import dataclass
from datetime import datetime, timedelta

LONGEST = timedelta(hours=6)
_MOST_DOUBLINGS = 20


@dataclass(frozen=True)
class Failures:
    """How often the builds of a topic have failed in a row, and when the last of them did."""

    count: int
    last: datetime

    def tried_again(self, tick: timedelta) -> datetime:
        """When the topic is due again: 2, 4, 8 … ticks after its last failure."""
        return self.last + min(tick * (1 << min(self.count, _MOST_DOUBLINGS)), LONGEST)
