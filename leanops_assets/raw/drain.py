"""Drain the sources of topics into RAW: receive, judge, commit, and only then let the source forget.

Many topics share one drain: all of them are received from in turn into one buffer, and when it holds 64 MB, or has
been filled for 300 s, or nothing more comes, each topic is committed. What goes wrong with one topic leaves the others
alone. A process that dies loses nothing: what it had not deleted is delivered again, and is a duplicate.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, TypeVar

from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from leanops.errors import DiskFull, LeanOpsError, TopicBusy
from leanops.ingestion.bisection import bisect
from leanops.ingestion.breaker import TRIAL_MESSAGES, Breaker, Circuit
from leanops.ingestion.faults import Fault, classify
from leanops.ingestion.messages import QueueMessage
from leanops.ingestion.processor import DeadLetter, Processed, Record, process
from leanops.names import Layer, table
from leanops.raw.table import DELIVERY
from leanops_assets.raw.deliveries import deliver, lock_name, new_delivery, put_in_order
from leanops_resources.dlq_archive import DlqArchive
from leanops_resources.sources.source import Source
from leanops_resources.state.lease import Leases, leases
from leanops_resources.state.store import StateStore, Table

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

BUFFER_BYTES = 64 * 1024 * 1024
BUFFER_SECONDS = 300
_MESSAGE_BYTES = 256
"""What a message takes in memory beside its body."""
_ROUND_MESSAGES = 20_000
_RECEIVERS = 16
_NO_PATIENCE = timedelta(0)
Result = TypeVar("Result")


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


def drain(
    intake: Intake,
    sources: Iterable[Source],
    holder: str,
    buffer_bytes: int = BUFFER_BYTES,
    buffer_seconds: float = BUFFER_SECONDS,
) -> list[Drained]:
    """Drain all `sources` until they are empty."""
    # A topic that is named twice is drained once.
    topics = list({source.topic: _Topic(intake, source) for source in sources}.values())
    with ExitStack() as stack, ThreadPoolExecutor(_RECEIVERS, "receive") as pool:
        names = [lock_name(topic.drained.topic) for topic in topics]
        try:
            held = stack.enter_context(leases(intake.store, names, holder, intake.patience))
        except Exception as error:  # noqa: BLE001 - it is told of each topic, as whatever else is wrong with it
            for topic in topics:
                topic.drained.problem = _told(error)
            return [topic.drained for topic in topics]
        active = [topic for topic in topics if topic.begin(held)]
        while active:
            begun = time.monotonic()
            free = buffer_bytes
            while hungry := [topic for topic in active if topic.is_hungry]:
                list(pool.map(partial(_Topic.receive, most_bytes=free // len(hungry) + 1), hungry))
                free = buffer_bytes - sum(topic.buffered for topic in active)
                if free <= 0 or time.monotonic() - begun >= buffer_seconds:
                    break
            for topic in active:
                topic.commit()
            active = [topic for topic in active if topic.may_go_on]
    return [topic.drained for topic in topics]


class _Topic:
    """One topic in a drain."""

    def __init__(self, intake: Intake, source: Source) -> None:
        self._intake = intake
        self._source = source
        self._buffer: list[QueueMessage] = []
        self.buffered = 0
        self.is_empty = False
        self.drained = Drained(source.topic, source.name)
        self._breaker = Breaker()
        self._held: Leases | None = None

    @property
    def may_go_on(self) -> bool:
        return not (self.is_empty or self.drained.problem or self.drained.skipped)

    def begin(self, held: Leases) -> bool:
        """Whether this drain may receive from the topic, and nobody else does meanwhile."""
        intake, topic = self._intake, self.drained.topic
        self._held = held
        try:
            self._require_lock()
            put_in_order(intake.catalog, intake.store, topic)
            self._breaker = intake.store.breaker(topic).at(intake.now())
        except TopicBusy as error:
            self.drained.skipped = str(error)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with one topic, the others go on
            self.drained.problem = _told(error)
        if self._breaker.circuit is Circuit.OPEN:
            waiting = f"Messages wait in {self.drained.source}."
            self.drained.skipped = f"Its circuit is open: {self._breaker.reason} {waiting}"
        return self.may_go_on

    def _require_lock(self) -> None:
        """Whoever has lost the lock commits nothing: the messages are another drain's by now."""
        assert self._held is not None
        self._held.lock(lock_name(self.drained.topic))

    @property
    def is_hungry(self) -> bool:
        """Whether it may receive more before the next commit: a trial is one batch."""
        is_trial = self._breaker.circuit is Circuit.HALF_OPEN
        return self.may_go_on and not (is_trial and self._buffer)

    def receive(self, most_bytes: int) -> None:
        """Take the next messages into the buffer."""
        most = TRIAL_MESSAGES if self._breaker.circuit is Circuit.HALF_OPEN else _ROUND_MESSAGES
        try:
            messages = self._source.receive(most, most_bytes)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with one topic, the others go on
            self.drained.problem = _told(error)
            return
        self.is_empty = not messages
        self._buffer += messages
        self.buffered += sum(len(message.body) + _MESSAGE_BYTES for message in messages)

    def commit(self) -> None:
        """Bring the buffer to RAW and the dead letters, and let the source forget it."""
        messages, self._buffer, self.buffered = self._buffer, [], 0
        if not messages:
            return
        try:
            self._commit(messages)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with one topic, the others go on
            self.drained.problem = _told(error)

    def _commit(self, messages: Sequence[QueueMessage]) -> None:
        intake, drained, now = self._intake, self.drained, self._intake.now()
        done = process(messages, intake.first_day, now)
        self._bury(done.dead_letters)
        poison = Processed()
        found = bisect(done.records, lambda records: self._land(records, now))
        failed = ((record.message, error) for record, error in found.poison)
        poison.fail(failed, (record.message for record in found.untried), intake.first_day, now)
        self._bury(poison.dead_letters)
        if failures := [failure.message for failure in (*done.failures, *poison.failures)]:
            self._source.give_back(failures)
            drained.given_back += len(failures)
        landed = [record.message for records in found.results for record in records]
        dead = [letter.message for letter in (*done.dead_letters, *poison.dead_letters)]
        drained.not_deleted += self._source.delete([*landed, *dead])
        drained.commits += 1
        self._note(len(landed), len(messages) - len(landed), now)

    def _land(self, records: Sequence[Record], now: datetime) -> Sequence[Record]:
        from leanops.raw.landing import land
        from leanops.raw.table import has_delivery
        from leanops.tables import find_table

        self._require_lock()
        intake, topic = self._intake, self.drained.topic
        envelopes = [record.envelope for record in records]
        days = (envelope.publish_time.date() for envelope in envelopes)
        delivery = new_delivery(topic, self.drained.source, Table.RAW, days)
        said = {DELIVERY: delivery.delivery_id, "leanops.landed-from": self.drained.source}
        attempts = count()

        def commit() -> None:
            # A commit whose answer was lost may have succeeded.
            if next(attempts) and has_delivery(find_table(intake.catalog, table(Layer.RAW, topic)), said[DELIVERY]):
                return
            land(intake.catalog, topic, lambda: [envelopes], now, said)

        deliver(intake.store, delivery, lambda: _retried(commit))
        self.drained.landed += Counter(delivery.messages)
        return records

    def _bury(self, letters: Sequence[DeadLetter]) -> None:
        """Archive, note and commit dead letters; those that were delivered again are known already."""
        from leanops.raw.dead_letters import already_dead, save_dead_letters

        intake, topic = self._intake, self.drained.topic
        if not letters:
            return
        self._require_lock()
        known = already_dead(intake.catalog, topic, [letter.dead_letter_id for letter in letters])
        new = {letter.dead_letter_id: letter for letter in letters if letter.dead_letter_id not in known}
        if not new:
            return
        archived = _retried(lambda: intake.archive.put_many(new.values()))
        intake.store.track_errors((each, topic, letter.fault.value, letter.reason) for each, letter in new.items())
        days = (letter.day for letter in new.values())
        delivery = new_delivery(topic, self.drained.source, Table.DEAD_LETTERS, days)
        deliver(
            intake.store,
            delivery,
            lambda: save_dead_letters(
                intake.catalog, new.values(), archived, self.drained.source, delivery.delivery_id
            ),
        )
        self.drained.dead += Counter(delivery.messages)

    def _note(self, good: int, failed: int, now: datetime) -> None:
        """Tell the breaker how it went."""
        before, self._breaker = self._breaker, self._breaker.after(good, failed, now)
        self._intake.store.save_breaker(self.drained.topic, self._breaker)
        if self._breaker.circuit is Circuit.OPEN and before.circuit is not Circuit.OPEN:
            self.drained.skipped = f"Its circuit opened: {self._breaker.reason}"


def _retried(work: Callable[[], Result]) -> Result:
    """Work that the outside may refuse for a moment. A full disk stays full."""
    again = retry_if_exception(lambda error: classify(error) is Fault.TRANSIENT and not isinstance(error, DiskFull))
    patience = Retrying(retry=again, stop=stop_after_attempt(4), wait=wait_random_exponential(0.1, max=5), reraise=True)
    return patience(work)


def _told(error: Exception) -> str:
    return str(error) if isinstance(error, LeanOpsError) else f"{type(error).__name__}: {error}"
