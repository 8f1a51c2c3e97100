"""The first line of the ledger: what was received is in RAW, among the dead letters, or still in flight.

    queue = RAW + dead letters + in flight

What was received is counted when it is received (`deliveries.py`); RAW and the dead letters are counted in their
tables. A dead letter that was replayed is in RAW and no longer counts as one; one that was discarded still does.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Self

from leanops.names import Layer, table
from leanops_resources.state.store import StateStore

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog


@dataclass(frozen=True)
class QueueAccount:
    """The account of one publish day of a topic."""

    topic: str
    day: date
    received: int = 0
    """Messages that were received and counted."""
    uncounted: int = 0
    """Messages of deliveries that are on their way, or whose commit nobody has asked for yet."""
    raw: int = 0
    dead_letters: int = 0

    @property
    def in_flight(self) -> int:
        """Messages that were received and stand nowhere yet."""
        return self.received + self.uncounted - self.raw - self.dead_letters

    @property
    def closes(self) -> bool:
        """Whether every message stands somewhere, but for those on their way; and none came from nowhere."""
        return 0 <= self.in_flight <= self.uncounted

    @property
    def accounted(self) -> float:
        """How many percent of the messages that were received have a fate, or are on their way to it."""
        came_in = self.received + self.uncounted
        lost = max(0, self.in_flight - self.uncounted)
        return 100.0 * (came_in - lost) / came_in if came_in else 100.0

    @property
    def numbers(self) -> dict[str, float | int | bool]:
        """What it says, by the names that these numbers have wherever they are shown or kept."""
        return {
            "received": self.received + self.uncounted,
            "raw": self.raw,
            "dead_letters": self.dead_letters,
            "in_flight": self.in_flight,
            "accounted_percent": round(self.accounted, 4),
            "closed": self.closes,
        }

    @property
    def problem(self) -> str | None:
        """What does not add up, for people."""
        if self.closes:
            return None
        if self.in_flight < 0:
            return f"{-self.in_flight:,} messages stand in RAW or among the dead letters that nobody has received."
        return f"{self.in_flight - self.uncounted:,} messages were received, and are neither in RAW nor dead letters."


def queue_accounts(
    catalog: "Catalog", store: StateStore, topic: str, days: Collection[date] | None = None
) -> list[QueueAccount]:
    """The accounts of a topic's days, all of them or some. Drawn up from metadata; no Spark is woken."""
    from leanops.inventory import rows_by_day
    from leanops.tables import find_table

    books = QueueBooks.of(catalog, store, [topic])
    found = find_table(catalog, table(Layer.RAW, topic))
    accounts = books.accounts(topic, rows_by_day(found) if found else {})
    return [account for account in accounts if days is None or account.day in days]


@dataclass(frozen=True)
class QueueBooks:
    """What was received of topics, and what of it are dead letters: one question each, however many topics."""

    uncounted: Mapping[str, Mapping[date, int]]
    received: Mapping[str, Mapping[date, int]]
    dead_letters: Mapping[str, Mapping[date, int]]

    @classmethod
    def of(cls, catalog: "Catalog", store: StateStore, topics: Collection[str]) -> Self:
        """The books of these topics."""
        from leanops.raw.dead_letters import dead_letters_by_topic

        uncounted: dict[str, Counter[date]] = {topic: Counter() for topic in topics}
        for delivery in store.open_deliveries(*topics) if len(topics) == 1 else store.open_deliveries():
            if delivery.topic in uncounted and not delivery.replays:
                uncounted[delivery.topic].update(delivery.messages)
        return cls(uncounted, store.received_by_topic(topics), dead_letters_by_topic(catalog, topics))

    def accounts(self, topic: str, raw: Mapping[date, int]) -> list[QueueAccount]:
        """The accounts of a topic, of which RAW holds so many rows of each day."""
        uncounted, received, dead = self.uncounted[topic], self.received[topic], self.dead_letters[topic]
        return [
            QueueAccount(topic, day, *(days.get(day, 0) for days in (received, uncounted, raw, dead)))
            for day in sorted({*received, *uncounted, *raw, *dead})
        ]
