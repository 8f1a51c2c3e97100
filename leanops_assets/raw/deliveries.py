"""Double entry for what is received: a delivery is noted before its commit and counted after it.

    note ──► commit, which names the delivery ──► count ──► the source forgets the messages

Whoever dies in between leaves an open delivery. The next one to work on the topic asks the table whether it is there,
and counts it or drops it. So what was received is known whenever the process ended, and `queue_closed` can compare it
with what the tables hold.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Self, TypeVar
from uuid import uuid4

from leanops.names import Layer, table
from leanops_resources.state.lease import lease
from leanops_resources.state.store import Delivery, StateStore, Table

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table as IcebergTable

Result = TypeVar("Result")


def deliver(store: StateStore, delivery: Delivery, commit: Callable[[], Result]) -> Result:
    """Commit a delivery and count it. One that fails stays open until somebody asks the table."""
    store.open_delivery(delivery)
    result = commit()
    store.count_delivery(delivery.delivery_id)
    return result


def new_delivery(
    topic: str, source: str, into: Table, days: Iterable[date] | Mapping[date, int], replays: tuple[str, ...] = ()
) -> Delivery:
    """A delivery of messages that count on these days: the day of each, or how many there are of each day."""
    return Delivery(uuid4().hex, topic, source, into, dict(sorted(Counter(days).items())), replays)


def count_as_received(store: StateStore, topic: str, source: str, days: Mapping[date, int]) -> None:
    """Count messages that stand in the tables, and that nobody has noted before."""
    if days:
        deliver(store, new_delivery(topic, source, Table.RAW, days), lambda: None)


@contextmanager
def intake_of(catalog: "Catalog", store: StateStore, topic: str, holder: str, patience: timedelta) -> Iterator[None]:
    """Be the only one that brings messages of a topic in, with its books in order. `TopicBusy` if somebody else is."""
    with lease(store, lock_name(topic), holder, patience):
        put_in_order(catalog, store, topic, Books.of(store, [topic]))
        yield


def lock_name(topic: str) -> str:
    """The lock that whoever brings messages of a topic in has to hold."""
    return f"drain/{topic}"


@dataclass(frozen=True)
class Books:
    """What the state store knows of topics whose locks are held: one question each, however many topics there are."""

    open: Mapping[str, Sequence[Delivery]]
    """Deliveries that nobody has settled, by topic."""
    counted: frozenset[str]
    """The topics of which anything was ever counted."""

    @classmethod
    def of(cls, store: StateStore, topics: Collection[str]) -> Self:
        """The books of these topics."""
        opened: defaultdict[str, list[Delivery]] = defaultdict(list)
        for delivery in store.open_deliveries(*topics) if len(topics) == 1 else store.open_deliveries():
            opened[delivery.topic].append(delivery)
        received = store.received_by_topic(topics)
        return cls(opened, frozenset(topic for topic, days in received.items() if days))


def put_in_order(catalog: "Catalog", store: StateStore, topic: str, books: Books) -> "IcebergTable | None":
    """Settle what others have left of a topic, whose lock is held. Its RAW table, if it has one."""
    from leanops.tables import find_table

    # A table that cannot be read is found out here, where no message is to blame for it.
    raw = find_table(catalog, table(Layer.RAW, topic))
    opened = books.open.get(topic, ())
    _settle(catalog, store, topic, opened, raw)
    # What was settled just now may have been the first that was counted.
    if topic not in books.counted and not (opened and store.received(topic)):
        # What its tables held before anybody counted was received too.
        days = _messages_by_day(catalog, topic, raw)
        count_as_received(store, topic, "there before it was counted", days)
    return raw


def settle_open(catalog: "Catalog", store: StateStore, topic: str) -> None:
    """Count the open deliveries of a topic that have been committed, and drop the others."""
    from leanops.tables import find_table

    if opened := store.open_deliveries(topic):
        _settle(catalog, store, topic, opened, find_table(catalog, table(Layer.RAW, topic)))


def _settle(
    catalog: "Catalog", store: StateStore, topic: str, opened: Iterable[Delivery], raw: "IcebergTable | None"
) -> None:
    from leanops.raw import dead_letters
    from leanops.raw.table import has_delivery

    for delivery in opened:
        if delivery.table is Table.DEAD_LETTERS:
            is_there = dead_letters.has_delivery(catalog, topic, delivery.delivery_id)
        else:
            is_there = has_delivery(raw, delivery.delivery_id)
        if not is_there:
            store.drop_delivery(delivery.delivery_id)
            continue
        if delivery.replays:
            close_replayed(catalog, store, topic, delivery.replays)
        store.count_delivery(delivery.delivery_id)


def close_replayed(catalog: "Catalog", store: StateStore, topic: str, replays: Iterable[str]) -> None:
    """Dead letters that RAW has now are closed."""
    from leanops.raw.dead_letters import Outcome, update_dead_letters

    replays = list(replays)
    said = {"closed": datetime.now(UTC), "outcome": Outcome.REPLAYED.value}
    update_dead_letters(catalog, topic, dict.fromkeys(replays, said))
    store.resolve_errors(replays)


def messages_by_day(catalog: "Catalog", topic: str) -> Mapping[date, int]:
    """How many messages of each day stand in RAW and among the dead letters."""
    from leanops.tables import find_table

    return _messages_by_day(catalog, topic, find_table(catalog, table(Layer.RAW, topic)))


def _messages_by_day(catalog: "Catalog", topic: str, raw: "IcebergTable | None") -> Mapping[date, int]:
    from leanops.inventory import rows_by_day
    from leanops.raw.dead_letters import dead_letters_by_day

    return Counter(rows_by_day(raw) if raw else {}) + Counter(dead_letters_by_day(catalog, topic))
