"""Dagster's event log in SQLite, which stores the events of a step together, and nothing that is said twice.

Dagster's own makes an engine, a connection and all its statements anew for every event, and waits for the disk each
time: 8 to 10 ms of a step's time, and a topic has 40 events a tick. Here the connections stay open, and events that
nobody waits for are stored together, each kind by one statement: 0.3 ms. The files are the same, row by row.

| event | stored |
|---|---|
| of a step that goes well (`_MAY_WAIT`) | with the next that may not wait, or after half a second |
| a line, a failure, a run's status, whatever else | at once, after those that wait |

Whatever is read through the log is read after what waits is stored. A process that is killed loses the events of its
last half second at most, and none of a failure.

What is known of an asset is in its materialisation; that the output which it was made from holds the same once more,
a third of a run's file, is left out. And events are stored compressed: they are long and much alike, and a tick of 700
topics wrote 200 MB of them.
"""

import atexit
import os
import sys
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import groupby
from pathlib import Path
from typing import Any, Self
from weakref import WeakSet

import sqlalchemy as db
from dagster import DagsterEventType
from dagster._core.events.log import EventLogEntry
from dagster._core.storage.event_log.schema import AssetCheckExecutionsTable, SqlEventLogStorageTable
from dagster._core.storage.event_log.sqlite.sqlite_event_log import INDEX_SHARD_NAME, SqliteEventLogStorage
from dagster._core.storage.sqlite import SQLITE_BUSY_TIMEOUT_SECONDS
from dagster._serdes import ConfigurableClassData
from sqlalchemy.pool import StaticPool

from leanops.errors import LeanOpsError
from leanops_resources.event_rows import (
    LEFT_TO_DAGSTER,
    MIRRORED,
    OF_ASSETS,
    OF_CHECKS,
    UPSERT_ASSETS,
    EventRow,
    asset_entries,
    check_entries,
    compress,
    update_checks,
    updates_planned,
    without_repetition,
)
from leanops_resources.surroundings import surroundings_named

_KEPT_OPEN = 4
"""Each run has a file of its own; the UI looks at many."""

_MAY_WAIT = frozenset(
    {
        DagsterEventType.STEP_START,
        DagsterEventType.STEP_INPUT,
        DagsterEventType.LOADED_INPUT,
        DagsterEventType.STEP_OUTPUT,
        DagsterEventType.HANDLED_OUTPUT,
        DagsterEventType.STEP_SUCCESS,
        DagsterEventType.ASSET_MATERIALIZATION,
        DagsterEventType.ASSET_OBSERVATION,
        DagsterEventType.ASSET_CHECK_EVALUATION,
    }
)
_MOST_WAITING = 200
_LONGEST_WAIT = 0.5
"""Seconds until the UI sees that a long step has begun."""

# A run of 350 topics begins with 3,500 events of what it is going to do, which Dagster stores one by one unless it is
# told otherwise by its environment.
os.environ.setdefault("DAGSTER_EVENT_BATCH_SIZE", "500")


class SqliteEventLog(SqliteEventLogStorage):
    """One connection to each file, of which one is in use at a time."""

    def __init__(self, base_dir: str, inst_data: ConfigurableClassData | None = None) -> None:
        self._engines: OrderedDict[str, db.Engine] = OrderedDict()
        self._tables: set[str] = set()
        self.forget_waiting()
        super().__init__(base_dir, inst_data)
        _LOGS.add(self)

    def forget_waiting(self) -> None:
        """Have nothing wait, in a new log or in a process that is forked from the one that stores it."""
        self._lock = threading.RLock()
        self._waiting: list[EventLogEntry] = []
        """Events of one run."""
        self._timer: threading.Timer | None = None
        self._fault: Exception | None = None
        """What went wrong in the timer's thread, until somebody is told."""

    @classmethod
    def from_config_value(cls, inst_data: ConfigurableClassData | None, config_value: Any) -> Self:
        return cls(inst_data=inst_data, **config_value)

    def store_event(self, event: EventLogEntry) -> None:
        kind = event.dagster_event_type
        with self._lock:
            if kind in LEFT_TO_DAGSTER:
                super().store_event(event)
                return
            if self._waiting and self._waiting[0].run_id != event.run_id:
                self.flush()
            self._waiting.append(without_repetition(event))
            may_wait = kind in _MAY_WAIT and event.step_key and len(self._waiting) < _MOST_WAITING
            if not may_wait or self._fault:
                self.flush()
            elif not self._timer:
                self._timer = threading.Timer(_LONGEST_WAIT, self._flush_late)
                self._timer.daemon = True
                self._timer.start()

    def store_event_batch(self, events: Sequence[EventLogEntry]) -> None:
        """Store the events of a run in one transaction for each file."""
        with self._lock:
            kinds = {event.dagster_event_type for event in events}
            if kinds & LEFT_TO_DAGSTER or len({event.run_id for event in events}) != 1:
                super().store_event_batch(events)
            else:
                self.flush()
                self._insert([without_repetition(event) for event in events])

    def flush(self) -> None:
        """Store what waits."""
        with self._lock:
            try:
                if self._waiting:
                    self._insert(self._waiting)
            except LeanOpsError:
                # No room, or a lock: it goes on waiting, and whoever stores or reads next tries again.
                raise
            except Exception:
                # The fault is one event's: the others are stored without it.
                waiting, self._waiting = self._waiting, []
                for event in waiting:
                    with suppress(Exception):
                        super().store_event(event)
                raise
            self._waiting = []
            if self._fault:
                fault, self._fault = self._fault, None
                raise fault

    def _flush_late(self) -> None:
        self._timer = None
        try:
            self.flush()
        except Exception as fault:  # noqa: BLE001 - it is raised to whoever stores or reads next
            self._fault = fault

    def _insert(self, events: Sequence[EventLogEntry]) -> None:
        """Store events of one run, and leave what Dagster leaves that stores them one by one."""
        rows = [self._row(event) for event in events]
        mirrored = [row for row in rows if row.kind in MIRRORED]
        run_id = events[0].run_id
        with self._open(INDEX_SHARD_NAME) as index, self._open(run_id) as run:
            run.execute(SqlEventLogStorageTable.insert(), [row.columns for row in rows])
            if mirrored:
                self._mirror(index, mirrored)
        # Dagster watches this file, if it is still there, while what is stored goes to that of its write-ahead log.
        with suppress(FileNotFoundError):
            os.utime(self.path_for_shard(run_id))

    def _row(self, event: EventLogEntry) -> EventRow:
        columns = self._event_to_row(event)
        text = columns["event"]
        return EventRow(event, text, {**columns, "event": compress(text)})

    def _mirror(self, index: db.Connection, rows: Sequence[EventRow]) -> None:
        """Store in the index what is asked for of all runs at once: of assets, of checks, and of runs' status."""
        index.execute(SqlEventLogStorageTable.insert(), [row.columns for row in rows])
        # SQLite numbers a row by one more than the largest number there is, and nobody else writes meanwhile.
        last = index.exec_driver_sql("SELECT last_insert_rowid()").scalar_one()
        numbered = list(enumerate(rows, start=last - len(rows) + 1))
        if of_assets := [(event_id, row) for event_id, row in numbered if row.kind in OF_ASSETS]:
            event_ids, stored = zip(*of_assets, strict=True)
            self._store_asset_event_tags(index, [row.event for row in stored], event_ids)
            index.execute(UPSERT_ASSETS, asset_entries(of_assets))
        of_checks = [(event_id, row) for event_id, row in numbered if row.kind in OF_CHECKS]
        for updates, some in groupby(of_checks, key=lambda each: updates_planned(each[1])):
            entries = [entry for event_id, row in some for entry in check_entries(event_id, row)]
            if updates:
                update_checks(index, entries)
            else:
                index.execute(AssetCheckExecutionsTable.insert(), entries)

    def has_table(self, table_name: str) -> bool:
        """Dagster opens another connection to look for a table, with every event of a check: 0.8 ms each."""
        if table_name not in self._tables and super().has_table(table_name):
            self._tables.add(table_name)
        return table_name in self._tables

    @contextmanager
    def _connect(self, shard: str) -> Iterator[db.Connection]:
        """All that Dagster reads, it reads through here."""
        with self._lock:
            self.flush()
            with self._open(shard) as connection:
                yield connection

    @contextmanager
    def _open(self, shard: str) -> Iterator[db.Connection]:
        with surroundings_named(Path(self._base_dir)), self._engine(shard).begin() as connection:
            yield connection

    def _engine(self, shard: str) -> db.Engine:
        if shard not in self._engines:
            engine = db.create_engine(
                self.conn_string_for_shard(shard),
                poolclass=StaticPool,
                connect_args={"timeout": SQLITE_BUSY_TIMEOUT_SECONDS, "check_same_thread": False},
            )
            db.event.listen(engine, "connect", _wait_for_no_disk)
            if shard not in self._initialized_dbs:
                self._initdb(engine)
                self._initialized_dbs.add(shard)
            self._engines[shard] = engine
            if len(self._engines) > _KEPT_OPEN:
                self._engines.popitem(last=False)[1].dispose()
        self._engines.move_to_end(shard)
        return self._engines[shard]

    def dispose(self) -> None:
        try:
            self.flush()
        finally:
            for engine in self._engines.values():
                engine.dispose()
            super().dispose()


_LOGS: WeakSet[SqliteEventLog] = WeakSet()


@atexit.register
def _flush_all() -> None:
    for log in list(_LOGS):
        try:
            log.flush()
        except LeanOpsError as fault:
            # Python would print where in the code it was raised, to people who have to make room.
            sys.stderr.write(f"error: {fault}\n")


def _leave_to_parent() -> None:
    for log in _LOGS:
        log.forget_waiting()


os.register_at_fork(after_in_child=_leave_to_parent)


def _wait_for_no_disk(connection: Any, _: Any) -> None:
    """Leave it to SQLite when what is logged reaches the disk.

    What a crash of the machine may lose is the last thing that was said of a run, never the tables' state.
    """
    connection.execute("PRAGMA synchronous=NORMAL")
