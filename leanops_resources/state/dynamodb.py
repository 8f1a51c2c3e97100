"""The state store in one DynamoDB table, for many machines at once.

| pk | sk | item |
|---|---|---|
| `checkpoint#PIPELINE` | `kind#KIND` | a checkpoint |
| `lock#NAME` | `lock` | a lock; it stays when nobody holds it, since its fence only ever grows |
| `claim#KEY` | `claim` | an idempotency key, which DynamoDB removes some time after it has expired |
| `gate`, `breaker`, `failures` | `TOPIC` | a topic's gate, its breaker, its failures in a row |
| `error` | `error#ERROR_ID` | a tracked error, in the index `open` until it is resolved |
| `delivery` | `delivery#DELIVERY_ID` | an open delivery |
| `counter` | `delivery` | how many deliveries were opened: DynamoDB has no order of its own, and clocks differ |
| `received#TOPIC` | `2026-Q1` | how many messages of each day of a quarter were received |

A delivery is counted in one transaction, which writes 100 items at most: its own, and those of 99 quarters.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from hashlib import sha256
from typing import TypeVar

from leanops.backoff import Failures
from leanops.errors import StateStoreUnavailable
from leanops.ingestion.breaker import Breaker
from leanops_resources.state.dynamodb_table import EXPIRES_AT, OPEN, Item, ItemTable, Key
from leanops_resources.state.json_text import breaker_of, breaker_text, delivery_of, delivery_text
from leanops_resources.state.store import (
    IDEMPOTENCY_TTL,
    LOCK_TTL,
    Checkpoint,
    Delivery,
    Gate,
    GateStatus,
    Lock,
    LockLost,
    StateStore,
    TrackedError,
    utc_now,
)

_FREE = "attribute_not_exists(#expires) OR #expires <= :now"
_RELEASED = ""
"""Before any moment."""
_CLOCKS_DIFFER_BY = timedelta(hours=1)
_LONGEST_KEY = 1024
_AT_ONCE = 8
_MOST_QUARTERS = 99
Asked = TypeVar("Asked")
Answer = TypeVar("Answer")


class DynamoStateStore(StateStore):
    """One table, one conditional request per call. Nothing is asked of it before the first call."""

    def __init__(self, table: str, clock: Callable[[], datetime] = utc_now) -> None:
        self._table = ItemTable(table)
        self._clock = clock

    def create_table(self) -> None:
        """Make the table, unless it is there, and wait until it can be used."""
        self._table.create()

    def checkpoint(self, pipeline: str, kind: str) -> Checkpoint | None:
        found = self._table.get(_checkpoint_key(pipeline, kind))
        if found is None:
            return None
        return Checkpoint(pipeline, kind, found["last_snapshot"], found["last_ingestion_ts"], _moment(found["updated"]))

    def save_checkpoint(
        self, pipeline: str, kind: str, last_snapshot: int | None, last_ingestion_ts: int | None
    ) -> Checkpoint:
        saved = Checkpoint(pipeline, kind, last_snapshot, last_ingestion_ts, self._clock())
        self._table.put(
            _checkpoint_key(pipeline, kind),
            {
                "last_snapshot": last_snapshot,
                "last_ingestion_ts": last_ingestion_ts,
                "updated": _text(saved.updated),
            },
        )
        return saved

    def acquire(self, name: str, owner: str, ttl: timedelta = LOCK_TTL) -> Lock | None:
        now = self._clock()
        held = self._table.change(
            _lock_key(name),
            "#owner = :owner, #expires = :expires",
            {"owner": owner, "expires": _text(now + ttl), "now": _text(now), "one": 1},
            only_if=_FREE,
            then="ADD #fence :one",
        )
        return _lock(name, held) if held else None

    def acquire_many(self, names: Collection[str], owner: str, ttl: timedelta = LOCK_TTL) -> dict[str, Lock]:
        locks = _at_once(lambda name: self.acquire(name, owner, ttl), names)
        return {lock.name: lock for lock in locks if lock}

    def renew(self, lock: Lock, ttl: timedelta = LOCK_TTL) -> Lock:
        now = self._clock()
        held = self._table.change(
            _lock_key(lock.name),
            "#expires = :expires",
            {"expires": _text(now + ttl), "fence": lock.fence, "now": _text(now)},
            only_if="#fence = :fence AND #expires > :now",
        )
        if held is None:
            raise LockLost(lock)
        return _lock(lock.name, held)

    def renew_many(self, locks: Collection[Lock], ttl: timedelta = LOCK_TTL) -> dict[str, Lock]:
        def renew(lock: Lock) -> Lock | None:
            try:
                return self.renew(lock, ttl)
            except LockLost:
                return None

        return {lock.name: lock for lock in _at_once(renew, locks) if lock}

    def release(self, lock: Lock) -> None:
        values = {"released": _RELEASED, "fence": lock.fence}
        self._table.change(_lock_key(lock.name), "#expires = :released", values, only_if="#fence = :fence")

    def release_many(self, locks: Collection[Lock]) -> None:
        _at_once(self.release, locks)

    def holder(self, name: str) -> Lock | None:
        found = self._table.get(_lock_key(name))
        return _lock(name, found) if found and found["expires"] > _text(self._clock()) else None

    def gate(self, topic: str) -> Gate | None:
        found = self._table.get(Key("gate", topic))
        return _gate(found) if found else None

    def set_gate(self, topic: str, gate: Gate) -> None:
        self._table.put(
            Key("gate", topic),
            {"processing_enabled": gate.processing_enabled, "status": gate.status.value, "reason": gate.reason},
        )

    def gates(self) -> dict[str, Gate]:
        return {item["sk"]: _gate(item) for item in self._table.query("gate")}

    def claim(self, key: str, ttl: timedelta = IDEMPOTENCY_TTL) -> bool:
        now = self._clock()
        claimed = self._table.change(
            Key(_part("claim", key), "claim"),
            f"#expires = :expires, #{EXPIRES_AT} = :{EXPIRES_AT}",
            {
                "expires": _text(now + ttl),
                EXPIRES_AT: math.ceil((now + ttl + _CLOCKS_DIFFER_BY).timestamp()),
                "now": _text(now),
            },
            only_if=_FREE,
        )
        return claimed is not None

    def track_error(self, error_id: str, topic: str, kind: str, message: str) -> TrackedError:
        tracked = self._table.change(
            _error_key(error_id),
            f"#error_id = :error_id, #topic = if_not_exists(#topic, :topic), #kind = if_not_exists(#kind, :kind), "
            f"#message = :message, #first_seen = if_not_exists(#first_seen, :now), #last_seen = :now, "
            f"#{OPEN} = if_not_exists(#first_seen, :now)",
            {
                "error_id": error_id,
                "topic": topic,
                "kind": kind,
                "message": message,
                "now": _text(self._clock()),
                "one": 1,
            },
            then="REMOVE #resolved ADD #occurrences :one",
        )
        assert tracked is not None
        return _tracked(tracked)

    def track_errors(self, errors: Iterable[tuple[str, str, str, str]]) -> None:
        _at_once(lambda error: self.track_error(*error), errors)

    def resolve_error(self, error_id: str) -> bool:
        resolved = self._table.change(
            _error_key(error_id),
            "#resolved = :now",
            {"now": _text(self._clock())},
            only_if=f"attribute_exists(#{OPEN})",
            then=f"REMOVE #{OPEN}",
        )
        return resolved is not None

    def open_errors(self, topic: str | None = None) -> Sequence[TrackedError]:
        found = map(_tracked, self._table.query("error", index=OPEN))
        wanted = [error for error in found if topic in (None, error.topic)]
        return sorted(wanted, key=lambda error: (error.first_seen, error.error_id))

    def open_delivery(self, delivery: Delivery) -> None:
        self.note_deliveries([delivery])

    def note_deliveries(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            _require_countable(delivery)
        if not deliveries:
            return
        counted = self._table.change(
            Key("counter", "delivery"),
            "#latest = :latest",
            {"latest": deliveries[-1].delivery_id, "more": len(deliveries)},
            then="ADD #number :more",
        )
        assert counted is not None
        _at_once(lambda one: self._note(*one), enumerate(deliveries, counted["number"] - len(deliveries) + 1))

    def _note(self, number: int, delivery: Delivery) -> None:
        opened = self._table.change(
            _delivery_key(delivery.delivery_id),
            "#number = :number, #delivery = :delivery",
            {"number": number, "delivery": delivery_text(delivery)},
            only_if="attribute_not_exists(#number)",
        )
        if opened is None:
            raise ValueError(f"The delivery {delivery.delivery_id} is open already.")

    def open_deliveries(self, topic: str | None = None) -> Sequence[Delivery]:
        items = sorted(self._table.query("delivery"), key=lambda item: item["number"])
        found = (delivery_of(item["delivery"]) for item in items)
        return [delivery for delivery in found if topic in (None, delivery.topic)]

    def count_delivery(self, delivery_id: str) -> bool:
        key = _delivery_key(delivery_id)
        found = self._table.get(key)
        if found is None:
            return False
        return self._table.remove_and_add(key, _by_quarter(delivery_of(found["delivery"])))

    def count_deliveries(self, delivery_ids: Collection[str]) -> None:
        _at_once(self.count_delivery, delivery_ids)

    def drop_delivery(self, delivery_id: str) -> bool:
        return self._table.remove_and_add(_delivery_key(delivery_id), {})

    def received(self, topic: str) -> dict[date, int]:
        quarters = self._table.query(f"received#{topic}")
        days = {name: value for quarter in quarters for name, value in quarter.items() if name not in Key._fields}
        return {date.fromisoformat(day): days[day] for day in sorted(days)}

    def received_by_topic(self, topics: Collection[str]) -> dict[str, dict[date, int]]:
        return dict(zip(topics, _at_once(self.received, topics), strict=True))

    def breaker(self, topic: str) -> Breaker:
        found = self._table.get(Key("breaker", topic))
        return breaker_of(found["breaker"]) if found else Breaker()

    def save_breaker(self, topic: str, breaker: Breaker) -> None:
        self._table.put(Key("breaker", topic), {"breaker": breaker_text(breaker)})

    def save_breakers(self, breakers: Mapping[str, Breaker]) -> None:
        _at_once(lambda each: self.save_breaker(*each), breakers.items())

    def breakers(self) -> dict[str, Breaker]:
        return {item["sk"]: breaker_of(item["breaker"]) for item in self._table.query("breaker")}

    def note_failure(self, topic: str) -> Failures:
        noted = self._table.change(
            Key("failures", topic),
            "#last = :last",
            {"last": _text(self._clock()), "one": 1},
            then="ADD #count :one",
        )
        assert noted is not None
        return _failures(noted)

    def clear_failures(self, topic: str) -> None:
        self._table.remove_and_add(Key("failures", topic), {})

    def failures(self) -> dict[str, Failures]:
        return {item["sk"]: _failures(item) for item in self._table.query("failures")}


def _at_once(request: Callable[[Asked], Answer], asked: Iterable[Asked]) -> list[Answer]:
    """The answers to many requests. All of them are made, also when one of them fails."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return [each.result() for each in [pool.submit(request, one) for one in asked]]


def _part(kind: str, text: str) -> str:
    """A text of any length in a key: one that is too long stands there as its digest."""
    part = f"{kind}#{text}"
    return part if len(part.encode()) <= _LONGEST_KEY else f"{kind} by digest#{sha256(text.encode()).hexdigest()}"


def _checkpoint_key(pipeline: str, kind: str) -> Key:
    return Key(_part("checkpoint", pipeline), _part("kind", kind))


def _lock_key(name: str) -> Key:
    return Key(_part("lock", name), "lock")


def _error_key(error_id: str) -> Key:
    return Key("error", _part("error", error_id))


def _delivery_key(delivery_id: str) -> Key:
    return Key("delivery", _part("delivery", delivery_id))


def _require_countable(delivery: Delivery) -> None:
    quarters = len(_by_quarter(delivery))
    if quarters > _MOST_QUARTERS:
        raise StateStoreUnavailable(
            f"The messages of delivery {delivery.delivery_id} are of {quarters} quarters of years, and DynamoDB "
            f"counts those of {_MOST_QUARTERS} at once.",
            "Deliver the messages of fewer years at a time.",
        )


def _by_quarter(delivery: Delivery) -> Mapping[Key, Mapping[str, int]]:
    """What a delivery adds to which items."""
    quarters: dict[Key, dict[str, int]] = defaultdict(dict)
    for day, messages in delivery.counts.items():
        quarter = Key(f"received#{delivery.topic}", f"{day.year:04}-Q{(day.month + 2) // 3}")
        quarters[quarter][day.isoformat()] = messages
    return quarters


def _text(moment: datetime) -> str:
    """Fixed width and UTC, so that texts compare like the moments they stand for."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _lock(name: str, item: Item) -> Lock:
    return Lock(name, item["owner"], item["fence"], _moment(item["expires"]))


def _gate(item: Item) -> Gate:
    return Gate(item["processing_enabled"], GateStatus(item["status"]), item["reason"])


def _failures(item: Item) -> Failures:
    return Failures(item["count"], _moment(item["last"]))


def _tracked(item: Item) -> TrackedError:
    return TrackedError(
        item["error_id"],
        item["topic"],
        item["kind"],
        item["message"],
        _moment(item["first_seen"]),
        _moment(item["last_seen"]),
        item["occurrences"],
    )
