"""The state store in one SQLite file, for one machine. Many processes may use it at once."""

import json
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

from filelock import FileLock

from leanops.backoff import Failures
from leanops.ingestion.breaker import Breaker
from leanops_resources.sqlite_faults import BUSY_SECONDS, named
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

_IF_DAMAGED = (
    "Stop what uses it and move the file away: it is made anew, and checkpoints are read back from the tables. Paused "
    "topics have to be paused again."
)
_SCHEMA_VERSION = 3
_SCHEMA = """
CREATE TABLE IF NOT EXISTS checkpoints (
    pipeline TEXT, kind TEXT, last_snapshot INTEGER, last_ingestion_ts INTEGER, updated TEXT NOT NULL,
    PRIMARY KEY (pipeline, kind));
CREATE TABLE IF NOT EXISTS locks (name TEXT PRIMARY KEY, owner TEXT, fence INTEGER NOT NULL, expires TEXT);
CREATE TABLE IF NOT EXISTS gates (
    topic TEXT PRIMARY KEY, processing_enabled INTEGER NOT NULL, status TEXT NOT NULL, reason TEXT);
CREATE TABLE IF NOT EXISTS idempotency_keys (key TEXT PRIMARY KEY, expires TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS idempotency_keys_by_expiry ON idempotency_keys (expires);
CREATE TABLE IF NOT EXISTS errors (
    error_id TEXT PRIMARY KEY, topic TEXT NOT NULL, kind TEXT NOT NULL, message TEXT NOT NULL,
    first_seen TEXT NOT NULL, last_seen TEXT NOT NULL, occurrences INTEGER NOT NULL, resolved TEXT);
CREATE TABLE IF NOT EXISTS deliveries (
    number INTEGER PRIMARY KEY, delivery_id TEXT NOT NULL UNIQUE, topic TEXT NOT NULL, delivery TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS received (
    topic TEXT, day TEXT, messages INTEGER NOT NULL, PRIMARY KEY (topic, day));
CREATE TABLE IF NOT EXISTS breakers (topic TEXT PRIMARY KEY, breaker TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS failures (topic TEXT PRIMARY KEY, count INTEGER NOT NULL, last TEXT NOT NULL);
"""


class SqliteStateStore(StateStore):
    """One file, one transaction per call."""

    def __init__(self, path: Path, clock: Callable[[], datetime] = utc_now) -> None:
        self._path = path
        self._clock = clock
        try:
            # Whoever is first turns the write-ahead log on; SQLite does not wait for its turn at that.
            with (
                FileLock(path.with_suffix(".lock"), timeout=BUSY_SECONDS),
                closing(sqlite3.connect(path, timeout=BUSY_SECONDS)) as db,
            ):
                db.execute("PRAGMA journal_mode = WAL")
        except sqlite3.DatabaseError as error:
            raise named(error, path, _IF_DAMAGED) from error
        with self._transaction() as db:
            if db.execute("PRAGMA user_version").fetchone()[0] < _SCHEMA_VERSION:
                for statement in _SCHEMA.split(";"):
                    db.execute(statement)
                db.execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(sqlite3.connect(self._path, timeout=BUSY_SECONDS, isolation_level=None)) as db:
                db.row_factory = sqlite3.Row
                db.execute("BEGIN IMMEDIATE")
                try:
                    yield db
                except BaseException:
                    # SQLite has rolled back by itself where the disk was full.
                    if db.in_transaction:
                        db.execute("ROLLBACK")
                    raise
                db.execute("COMMIT")
        except sqlite3.DatabaseError as error:
            raise named(error, self._path, _IF_DAMAGED) from error

    def checkpoint(self, pipeline: str, kind: str) -> Checkpoint | None:
        with self._transaction() as db:
            row = _one(db, "SELECT * FROM checkpoints WHERE pipeline = ? AND kind = ?", pipeline, kind)
        return Checkpoint(**{**row, "updated": _moment(row["updated"])}) if row else None

    def save_checkpoint(
        self, pipeline: str, kind: str, last_snapshot: int | None, last_ingestion_ts: int | None
    ) -> Checkpoint:
        saved = Checkpoint(pipeline, kind, last_snapshot, last_ingestion_ts, self._clock())
        with self._transaction() as db:
            db.execute(
                "INSERT OR REPLACE INTO checkpoints VALUES (?, ?, ?, ?, ?)",
                (pipeline, kind, last_snapshot, last_ingestion_ts, _text(saved.updated)),
            )
        return saved

    def acquire(self, name: str, owner: str, ttl: timedelta = LOCK_TTL) -> Lock | None:
        return self.acquire_many([name], owner, ttl).get(name)

    def acquire_many(self, names: Collection[str], owner: str, ttl: timedelta = LOCK_TTL) -> dict[str, Lock]:
        now = self._clock()
        locks = {}
        with self._transaction() as db:
            for name in names:
                row = _one(db, "SELECT * FROM locks WHERE name = ?", name)
                if row and row["expires"] is not None and _moment(row["expires"]) > now:
                    continue
                lock = Lock(name, owner, fence=row["fence"] + 1 if row else 1, expires=now + ttl)
                db.execute(
                    "INSERT OR REPLACE INTO locks VALUES (?, ?, ?, ?)", (name, owner, lock.fence, _text(lock.expires))
                )
                locks[name] = lock
        return locks

    def renew(self, lock: Lock, ttl: timedelta = LOCK_TTL) -> Lock:
        if renewed := self.renew_many([lock], ttl):
            return renewed[lock.name]
        raise LockLost(lock)

    def renew_many(self, locks: Collection[Lock], ttl: timedelta = LOCK_TTL) -> dict[str, Lock]:
        now = self._clock()
        renewed = {}
        with self._transaction() as db:
            for lock in locks:
                changed = db.execute(
                    "UPDATE locks SET expires = ? WHERE name = ? AND fence = ? AND expires > ?",
                    (_text(now + ttl), lock.name, lock.fence, _text(now)),
                )
                if changed.rowcount:
                    renewed[lock.name] = replace(lock, expires=now + ttl)
        return renewed

    def release(self, lock: Lock) -> None:
        self.release_many([lock])

    def release_many(self, locks: Collection[Lock]) -> None:
        with self._transaction() as db:
            db.executemany(
                "UPDATE locks SET expires = NULL WHERE name = ? AND fence = ?",
                [(lock.name, lock.fence) for lock in locks],
            )

    def holder(self, name: str) -> Lock | None:
        with self._transaction() as db:
            row = _one(db, "SELECT * FROM locks WHERE name = ? AND expires > ?", name, _text(self._clock()))
        return Lock(**{**row, "expires": _moment(row["expires"])}) if row else None

    def gate(self, topic: str) -> Gate | None:
        with self._transaction() as db:
            row = _one(db, "SELECT * FROM gates WHERE topic = ?", topic)
        return _gate(row) if row else None

    def set_gate(self, topic: str, gate: Gate) -> None:
        with self._transaction() as db:
            db.execute(
                "INSERT OR REPLACE INTO gates VALUES (?, ?, ?, ?)",
                (topic, gate.processing_enabled, gate.status.value, gate.reason),
            )

    def gates(self) -> dict[str, Gate]:
        with self._transaction() as db:
            return {row["topic"]: _gate(row) for row in db.execute("SELECT * FROM gates ORDER BY topic")}

    def claim(self, key: str, ttl: timedelta = IDEMPOTENCY_TTL) -> bool:
        now = self._clock()
        with self._transaction() as db:
            db.execute("DELETE FROM idempotency_keys WHERE expires <= ?", (_text(now),))
            claimed = db.execute("INSERT OR IGNORE INTO idempotency_keys VALUES (?, ?)", (key, _text(now + ttl)))
            return claimed.rowcount == 1

    def track_error(self, error_id: str, topic: str, kind: str, message: str) -> TrackedError:
        with self._transaction() as db:
            return self._track(db, (error_id, topic, kind, message))

    def track_errors(self, errors: Iterable[tuple[str, str, str, str]]) -> None:
        with self._transaction() as db:
            for error in errors:
                self._track(db, error)

    def _track(self, db: sqlite3.Connection, error: tuple[str, str, str, str]) -> TrackedError:
        now = _text(self._clock())
        row = db.execute(
            """INSERT INTO errors VALUES (?, ?, ?, ?, ?, ?, 1, NULL) ON CONFLICT (error_id) DO UPDATE SET
               message = excluded.message, last_seen = excluded.last_seen, occurrences = occurrences + 1,
               resolved = NULL RETURNING *""",
            (*error, now, now),
        ).fetchone()
        return _tracked(dict(row))

    def resolve_error(self, error_id: str) -> bool:
        with self._transaction() as db:
            changed = db.execute(
                "UPDATE errors SET resolved = ? WHERE error_id = ? AND resolved IS NULL",
                (_text(self._clock()), error_id),
            )
            return changed.rowcount == 1

    def resolve_errors(self, error_ids: Iterable[str]) -> None:
        now = _text(self._clock())
        with self._transaction() as db:
            db.executemany(
                "UPDATE errors SET resolved = ? WHERE error_id = ? AND resolved IS NULL",
                [(now, error_id) for error_id in error_ids],
            )

    def open_errors(self, topic: str | None = None) -> Sequence[TrackedError]:
        with self._transaction() as db:
            rows = db.execute(
                """SELECT * FROM errors WHERE resolved IS NULL AND (?1 IS NULL OR topic = ?1)
                   ORDER BY first_seen, error_id""",
                (topic,),
            )
            return [_tracked(dict(row)) for row in rows]

    def open_delivery(self, delivery: Delivery) -> None:
        self.note_deliveries([delivery])

    def note_deliveries(self, deliveries: Sequence[Delivery]) -> None:
        with self._transaction() as db:
            db.executemany(
                "INSERT INTO deliveries (delivery_id, topic, delivery) VALUES (?, ?, ?)",
                [(each.delivery_id, each.topic, delivery_text(each)) for each in deliveries],
            )

    def open_deliveries(self, topic: str | None = None) -> Sequence[Delivery]:
        with self._transaction() as db:
            rows = db.execute(
                "SELECT delivery FROM deliveries WHERE ?1 IS NULL OR topic = ?1 ORDER BY number", (topic,)
            )
            return [delivery_of(row["delivery"]) for row in rows]

    def count_delivery(self, delivery_id: str) -> bool:
        with self._transaction() as db:
            return _count(db, delivery_id)

    def count_deliveries(self, delivery_ids: Collection[str]) -> None:
        with self._transaction() as db:
            for delivery_id in delivery_ids:
                _count(db, delivery_id)

    def drop_delivery(self, delivery_id: str) -> bool:
        with self._transaction() as db:
            return db.execute("DELETE FROM deliveries WHERE delivery_id = ?", (delivery_id,)).rowcount == 1

    def received(self, topic: str) -> dict[date, int]:
        with self._transaction() as db:
            rows = db.execute("SELECT day, messages FROM received WHERE topic = ? ORDER BY day", (topic,))
            return {date.fromisoformat(row["day"]): row["messages"] for row in rows}

    def received_by_topic(self, topics: Collection[str]) -> dict[str, dict[date, int]]:
        received: dict[str, dict[date, int]] = {topic: {} for topic in topics}
        with self._transaction() as db:
            rows = db.execute(
                "SELECT * FROM received WHERE topic IN (SELECT value FROM json_each(?)) ORDER BY topic, day",
                (json.dumps(list(topics)),),
            )
            for row in rows:
                received[row["topic"]][date.fromisoformat(row["day"])] = row["messages"]
        return received

    def breaker(self, topic: str) -> Breaker:
        with self._transaction() as db:
            row = _one(db, "SELECT breaker FROM breakers WHERE topic = ?", topic)
        return breaker_of(row["breaker"]) if row else Breaker()

    def save_breaker(self, topic: str, breaker: Breaker) -> None:
        self.save_breakers({topic: breaker})

    def save_breakers(self, breakers: Mapping[str, Breaker]) -> None:
        with self._transaction() as db:
            db.executemany(
                "INSERT OR REPLACE INTO breakers VALUES (?, ?)",
                [(topic, breaker_text(breaker)) for topic, breaker in breakers.items()],
            )

    def breakers(self) -> dict[str, Breaker]:
        with self._transaction() as db:
            rows = db.execute("SELECT * FROM breakers ORDER BY topic")
            return {row["topic"]: breaker_of(row["breaker"]) for row in rows}

    def note_failure(self, topic: str) -> Failures:
        with self._transaction() as db:
            row = db.execute(
                """INSERT INTO failures VALUES (?, 1, ?) ON CONFLICT (topic) DO UPDATE SET
                   count = count + 1, last = excluded.last RETURNING *""",
                (topic, _text(self._clock())),
            ).fetchone()
        return _failures(row)

    def clear_failures(self, topic: str) -> None:
        with self._transaction() as db:
            db.execute("DELETE FROM failures WHERE topic = ?", (topic,))

    def failures(self) -> dict[str, Failures]:
        with self._transaction() as db:
            return {row["topic"]: _failures(row) for row in db.execute("SELECT * FROM failures ORDER BY topic")}


def _count(db: sqlite3.Connection, delivery_id: str) -> bool:
    row = _one(db, "DELETE FROM deliveries WHERE delivery_id = ? RETURNING delivery", delivery_id)
    if row is None:
        return False
    delivery = delivery_of(row["delivery"])
    for day, messages in delivery.counts.items():
        db.execute(
            """INSERT INTO received VALUES (?, ?, ?) ON CONFLICT (topic, day) DO UPDATE SET
               messages = messages + excluded.messages""",
            (delivery.topic, day.isoformat(), messages),
        )
    return True


def _one(db: sqlite3.Connection, query: str, *parameters: str) -> dict[str, Any] | None:
    row = db.execute(query, parameters).fetchone()
    return dict(row) if row else None


def _text(moment: datetime) -> str:
    """Fixed width and UTC, so that texts compare like the moments they stand for."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _gate(row: Any) -> Gate:
    return Gate(bool(row["processing_enabled"]), GateStatus(row["status"]), row["reason"])


def _failures(row: Any) -> Failures:
    return Failures(row["count"], _moment(row["last"]))


def _tracked(row: dict[str, Any]) -> TrackedError:
    moments = {key: _moment(row[key]) for key in ("first_seen", "last_seen")}
    return TrackedError(**{**row, **moments, "resolved": _moment(row["resolved"]) if row["resolved"] else None})
