"""The state store: checkpoints, fenced locks, gates, idempotency keys, tracked errors, deliveries, breakers, failures.

Every implementation passes one and the same test-suite: SQLite for one machine, DynamoDB on AWS. Every call is atomic.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum

from leanops.backoff import Failures
from leanops.ingestion.breaker import Breaker

LOCK_TTL = timedelta(minutes=5)
IDEMPOTENCY_TTL = timedelta(hours=24)


def utc_now() -> datetime:
    """The wall clock. A store takes another one in tests."""
    return datetime.now(UTC)


@dataclass(frozen=True)
class Checkpoint:
    """How far a pipeline has come. The commit it describes holds the same facts; this is the copy people can query."""

    pipeline: str
    kind: str
    last_snapshot: int | None
    last_ingestion_ts: int | None
    updated: datetime


@dataclass(frozen=True)
class Lock:
    """The right to work on `name` until `expires`. A later holder has a higher `fence`."""

    name: str
    owner: str
    fence: int
    expires: datetime


class LockLost(Exception):
    """The lock expired and may be somebody else's: whatever it protected must not be committed."""

    def __init__(self, lock: Lock) -> None:
        super().__init__(f"{lock.owner} no longer holds the lock {lock.name!r} (fence {lock.fence}).")
        self.lock = lock


class GateStatus(StrEnum):
    """Whether a topic is processed, and if not, for what reason."""

    READY = "READY"
    PAUSED = "PAUSED"
    ERROR = "ERROR"


@dataclass(frozen=True)
class Gate:
    """A topic's gate: while it is closed its data buffers in RAW."""

    processing_enabled: bool
    status: GateStatus
    reason: str | None = None


@dataclass(frozen=True)
class TrackedError:
    """A message or row that went wrong, until somebody or something puts it right."""

    error_id: str
    topic: str
    kind: str
    message: str
    first_seen: datetime
    last_seen: datetime
    occurrences: int
    resolved: datetime | None = None


class Table(StrEnum):
    """Where a delivery is committed to."""

    RAW = "raw"
    DEAD_LETTERS = "dead_letters"


@dataclass(frozen=True)
class Delivery:
    """Messages that were received and are about to be committed: noted before, counted after.

    One that is open has not been counted. Whether its commit succeeded is for the table to say, which names it.
    """

    delivery_id: str
    topic: str
    source: str
    """Where they came from, for people."""
    table: Table
    messages: Mapping[date, int]
    """How many there are of each publish day."""
    replays: tuple[str, ...] = ()
    """The dead letters that it brings to RAW. These were counted when they were received."""
    moves: Mapping[date, int] = field(default_factory=dict)
    """Of a replay: what each day gains or loses, where messages have another day in RAW than they were counted on."""

    @property
    def counts(self) -> Mapping[date, int]:
        """What it adds to the messages that were received of each day."""
        return self.moves if self.replays else self.messages


class StateStore(ABC):
    """What survives between runs."""

    @abstractmethod
    def checkpoint(self, pipeline: str, kind: str) -> Checkpoint | None:
        """The last checkpoint of a pipeline, or None before its first."""

    @abstractmethod
    def save_checkpoint(
        self, pipeline: str, kind: str, last_snapshot: int | None, last_ingestion_ts: int | None
    ) -> Checkpoint:
        """Put a pipeline's checkpoint where it is now."""

    @abstractmethod
    def acquire(self, name: str, owner: str, ttl: timedelta = LOCK_TTL) -> Lock | None:
        """The lock on `name` with a fence higher than any before, or None while somebody else holds it."""

    def acquire_many(self, names: Collection[str], owner: str, ttl: timedelta = LOCK_TTL) -> dict[str, Lock]:
        """The locks on those of `names` that are free, by name."""
        return {name: lock for name in names if (lock := self.acquire(name, owner, ttl))}

    @abstractmethod
    def renew(self, lock: Lock, ttl: timedelta = LOCK_TTL) -> Lock:
        """The same lock for longer. `LockLost` when it has expired or changed hands."""

    def renew_many(self, locks: Collection[Lock], ttl: timedelta = LOCK_TTL) -> dict[str, Lock]:
        """The same locks for longer, by name. Those that have expired or changed hands are not among them.

        After a fault of the store any of them may have been renewed.
        """
        renewed = {}
        for lock in locks:
            with suppress(LockLost):
                renewed[lock.name] = self.renew(lock, ttl)
        return renewed

    @abstractmethod
    def release(self, lock: Lock) -> None:
        """Let the lock go; nothing happens if it changed hands long ago."""

    def release_many(self, locks: Collection[Lock]) -> None:
        """Let the locks go; nothing happens to those that changed hands long ago."""
        for lock in locks:
            self.release(lock)

    @abstractmethod
    def holder(self, name: str) -> Lock | None:
        """The lock on `name` as whoever holds it has it, or None while nobody does."""

    @abstractmethod
    def gate(self, topic: str) -> Gate | None:
        """A topic's gate, or None while nobody has ever set it."""

    @abstractmethod
    def set_gate(self, topic: str, gate: Gate) -> None:
        """Open or close a topic's gate."""

    @abstractmethod
    def gates(self) -> dict[str, Gate]:
        """Every gate that was ever set, by topic."""

    @abstractmethod
    def claim(self, key: str, ttl: timedelta = IDEMPOTENCY_TTL) -> bool:
        """Whether this is the first claim of an idempotency key within `ttl`."""

    @abstractmethod
    def track_error(self, error_id: str, topic: str, kind: str, message: str) -> TrackedError:
        """Note an error; the same id again counts one more occurrence and opens it again."""

    def track_errors(self, errors: Iterable[tuple[str, str, str, str]]) -> None:
        """Note several errors: id, topic, kind and message of each."""
        for error in errors:
            self.track_error(*error)

    @abstractmethod
    def resolve_error(self, error_id: str) -> bool:
        """Close an error. False when there is no open one of that id."""

    def resolve_errors(self, error_ids: Iterable[str]) -> None:
        """Close several errors, those of them that are open."""
        for error_id in error_ids:
            self.resolve_error(error_id)

    @abstractmethod
    def open_errors(self, topic: str | None = None) -> Sequence[TrackedError]:
        """The errors that nobody has put right yet, oldest first."""

    @abstractmethod
    def open_delivery(self, delivery: Delivery) -> None:
        """Note a delivery that is about to be committed."""

    def note_deliveries(self, deliveries: Sequence[Delivery]) -> None:
        """Note several deliveries that are about to be committed."""
        for delivery in deliveries:
            self.open_delivery(delivery)

    @abstractmethod
    def open_deliveries(self, topic: str | None = None) -> Sequence[Delivery]:
        """Deliveries that were neither counted nor dropped, oldest first."""

    @abstractmethod
    def count_delivery(self, delivery_id: str) -> bool:
        """Add the messages of an open delivery to those received, and close it. False if it is not open.

        Those of a replay were counted when they were received as dead letters: nothing is added, but some may move to
        another day.
        """

    def count_deliveries(self, delivery_ids: Collection[str]) -> None:
        """Count several deliveries, those of them that are open."""
        for delivery_id in delivery_ids:
            self.count_delivery(delivery_id)

    @abstractmethod
    def drop_delivery(self, delivery_id: str) -> bool:
        """Forget an open delivery, of which nothing was committed. False if it is not open."""

    @abstractmethod
    def received(self, topic: str) -> dict[date, int]:
        """How many messages of a topic were received and committed, by publish day."""

    def received_by_topic(self, topics: Collection[str]) -> dict[str, dict[date, int]]:
        """How many messages of each of these topics were received and committed, by publish day."""
        return {topic: self.received(topic) for topic in topics}

    @abstractmethod
    def breaker(self, topic: str) -> Breaker:
        """A topic's circuit breaker; a closed one while nobody has ever saved it."""

    @abstractmethod
    def save_breaker(self, topic: str, breaker: Breaker) -> None:
        """Keep a topic's breaker."""

    def save_breakers(self, breakers: Mapping[str, Breaker]) -> None:
        """Keep the breakers of several topics."""
        for topic, breaker in breakers.items():
            self.save_breaker(topic, breaker)

    @abstractmethod
    def breakers(self) -> dict[str, Breaker]:
        """Every breaker that was ever saved, by topic."""

    @abstractmethod
    def note_failure(self, topic: str) -> Failures:
        """Count one more failure of a topic's builds."""

    @abstractmethod
    def clear_failures(self, topic: str) -> None:
        """Forget a topic's failures, now that it is built."""

    @abstractmethod
    def failures(self) -> dict[str, Failures]:
        """Every topic whose last build failed."""
