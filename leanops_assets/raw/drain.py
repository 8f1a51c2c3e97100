"""Drain the sources of topics into RAW: receive, judge, commit, and only then let the source forget.

Many topics share one drain: all of them are received from in turn into one buffer, and when it holds 64 MB, or has
been filled for 300 s, or nothing more comes, each topic is committed. What goes wrong with one topic leaves the others
alone. A process that dies loses nothing: what it had not deleted is delivered again, and is a duplicate.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from leanops.concurrency import Concurrency
from leanops.errors import LeanOpsError, TopicBusy
from leanops.ingestion.breaker import TRIAL_MESSAGES, Breaker, Circuit
from leanops.ingestion.messages import QueueMessage
from leanops_assets.raw.deliveries import Books, lock_name, put_in_order
from leanops_assets.raw.group_commit import commit_group
from leanops_resources.dlq_archive import DlqArchive
from leanops_resources.sources.source import Source
from leanops_resources.state.lease import Leases, leases
from leanops_resources.state.store import Delivery, StateStore, Table

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table as IcebergTable

BUFFER_BYTES = 64 * 1024 * 1024
BUFFER_SECONDS = 300
_MESSAGE_BYTES = 256
"""What a message takes in memory beside its body."""
_ROUND_MESSAGES = 20_000
_RECEIVERS = 16
_GROUP_TOPICS = 32
_GROUP_BYTES = BUFFER_BYTES // 4
_NO_PATIENCE = timedelta(0)


@dataclass
class Drained:
    """What a drain has done with one topic."""

    topic: str
    source: str
    landed: Counter[date] = field(default_factory=Counter)
    """Rows that came to RAW, by publish day."""
    dead: Counter[date] = field(default_factory=Counter)
    """Dead letters, by the day that they count on."""
    given_back: int = 0
    not_deleted: int = 0
    commits: int = 0
    skipped: str | None = None
    """Why nothing was received: another drain is at it, or its circuit is open."""
    problem: str | None = None
    """What ended it before its source was empty. What had been received comes again."""

    def count(self, delivery: Delivery) -> None:
        """Add what a delivery has brought."""
        brought = self.landed if delivery.table is Table.RAW else self.dead
        brought.update(delivery.messages)

    @property
    def days(self) -> list[date]:
        return sorted({*self.landed, *self.dead})


@dataclass(frozen=True)
class Intake:
    """What a drain needs of the outside."""

    catalog: "Catalog"
    store: StateStore
    archive: DlqArchive
    first_day: date
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    patience: timedelta = _NO_PATIENCE
    """How long to wait for another drain of the same topic."""
    concurrency: Concurrency = field(default_factory=Concurrency)
    """How many topics are worked on at a time."""


def drain(
    intake: Intake,
    sources: Iterable[Source],
    holder: str,
    buffer_bytes: int = BUFFER_BYTES,
    buffer_seconds: float = BUFFER_SECONDS,
) -> list[Drained]:
    """Drain all `sources` until they are empty."""
    # A topic that is named twice is drained once.
    topics = list({source.topic: TopicDrain(intake, source) for source in sources}.values())
    with ExitStack() as stack, ThreadPoolExecutor(_RECEIVERS, "receive") as receivers:
        active = _begin(intake, topics, holder, stack)
        while active:
            begun = time.monotonic()
            free = buffer_bytes
            while hungry := [topic for topic in active if topic.is_hungry]:
                list(receivers.map(partial(TopicDrain.receive, most_bytes=free // len(hungry) + 1), hungry))
                free = buffer_bytes - sum(topic.buffered for topic in active)
                if free <= 0 or time.monotonic() - begun >= buffer_seconds:
                    break
            for group in _groups(active):
                commit_group(intake, group, receivers)
            active = [topic for topic in active if topic.may_go_on]
    return [topic.drained for topic in topics]


def _begin(intake: Intake, topics: "Sequence[TopicDrain]", holder: str, stack: ExitStack) -> "list[TopicDrain]":
    """Those of the topics that this drain may receive from, and nobody else does meanwhile."""
    try:
        names = [lock_name(topic.name) for topic in topics]
        held = stack.enter_context(leases(intake.store, names, holder, intake.patience))
        books = Books.of(intake.store, [topic.name for topic in topics])
        breakers = intake.store.breakers()
    except Exception as error:  # noqa: BLE001 - it is told of each topic, as whatever else is wrong with it
        for topic in topics:
            topic.fail(error)
        return []
    intake.concurrency.map(lambda topic: topic.begin(held, books, breakers.get(topic.name, Breaker())), topics)
    return [topic for topic in topics if topic.may_go_on]


def _groups(topics: "Iterable[TopicDrain]") -> "Iterator[list[TopicDrain]]":
    """Topics that are committed together.

    Whoever dies over a group has its messages delivered again: a small one is a short moment.
    """
    group: list[TopicDrain] = []
    for topic in topics:
        if group and (len(group) == _GROUP_TOPICS or sum(each.buffered for each in group) >= _GROUP_BYTES):
            yield group
            group = []
        group.append(topic)
    if group:
        yield group


class TopicDrain:
    """One topic in a drain."""

    def __init__(self, intake: Intake, source: Source) -> None:
        self._intake = intake
        self.source = source
        self.name = source.topic
        self._buffer: list[QueueMessage] = []
        self.buffered = 0
        self.is_empty = False
        self.drained = Drained(source.topic, source.name)
        self.breaker = Breaker()
        self.raw: IcebergTable | None = None
        """Its table as it was loaded or committed to last, or None if it is to be loaded."""
        self._held: Leases | None = None

    @property
    def may_go_on(self) -> bool:
        return not (self.is_empty or self.drained.problem or self.drained.skipped)

    def begin(self, held: Leases, books: Books, breaker: Breaker) -> None:
        """Put its books in order, and see whether it may be received from."""
        self._held = held
        try:
            self.require_lock()
            self.raw = put_in_order(self._intake.catalog, self._intake.store, self.name, books)
            self.breaker = breaker.at(self._intake.now())
        except TopicBusy as error:
            self.drained.skipped = str(error)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with one topic, the others go on
            self.fail(error)
        if self.breaker.circuit is Circuit.OPEN:
            waiting = f"Messages wait in {self.drained.source}."
            self.drained.skipped = f"Its circuit is open: {self.breaker.reason} {waiting}"

    def require_lock(self) -> None:
        """Whoever has lost the lock commits nothing: the messages are another drain's by now."""
        assert self._held is not None
        self._held.lock(lock_name(self.name))

    def fail(self, error: Exception) -> None:
        """Say what ended it before its source was empty."""
        self.drained.problem = str(error) if isinstance(error, LeanOpsError) else f"{type(error).__name__}: {error}"

    @property
    def is_hungry(self) -> bool:
        """Whether it may receive more before the next commit: a trial is one batch."""
        is_trial = self.breaker.circuit is Circuit.HALF_OPEN
        return self.may_go_on and not (is_trial and self._buffer)

    def receive(self, most_bytes: int) -> None:
        """Take the next messages into the buffer."""
        most = TRIAL_MESSAGES if self.breaker.circuit is Circuit.HALF_OPEN else _ROUND_MESSAGES
        try:
            messages = self.source.receive(most, most_bytes)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with one topic, the others go on
            self.fail(error)
            return
        self.is_empty = not messages
        self._buffer += messages
        self.buffered += sum(len(message.body) + _MESSAGE_BYTES for message in messages)

    def take_buffer(self) -> list[QueueMessage]:
        """What was received since the last commit. The buffer is empty then."""
        messages, self._buffer, self.buffered = self._buffer, [], 0
        return messages
