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
import threading
import zlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, Self
from weakref import WeakSet

import sqlalchemy as db
from dagster import AssetCheckEvaluation, DagsterEventType, DagsterInvariantViolationError
from dagster._core.definitions.asset_checks.asset_check_evaluation import AssetCheckEvaluationPlanned
from dagster._core.events import ASSET_CHECK_EVENTS, ASSET_EVENTS, EVENT_TYPE_TO_PIPELINE_RUN_STATUS
from dagster._core.events.log import EventLogEntry
from dagster._core.execution.plan.outputs import StepOutputData
from dagster._core.instance import RUNLESS_RUN_ID
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus
from dagster._core.storage.event_log.schema import AssetCheckExecutionsTable, AssetKeyTable, SqlEventLogStorageTable
from dagster._core.storage.event_log.sqlite.sqlite_event_log import INDEX_SHARD_NAME, SqliteEventLogStorage
from dagster._core.storage.sqlite import SQLITE_BUSY_TIMEOUT_SECONDS
from dagster._serdes import ConfigurableClassData
from sqlalchemy.dialects import sqlite
from sqlalchemy.pool import StaticPool

from leanops.errors import LeanOpsError
from leanops_resources.surroundings import surroundings_named

_KEPT_OPEN = 4
"""Each run has a file of its own; the UI looks at many."""

_RESULT = "result"

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

_OF_ASSETS = frozenset(
    {
        DagsterEventType.ASSET_MATERIALIZATION,
        DagsterEventType.ASSET_OBSERVATION,
        DagsterEventType.ASSET_MATERIALIZATION_PLANNED,
    }
)
_OF_CHECKS = frozenset({DagsterEventType.ASSET_CHECK_EVALUATION, DagsterEventType.ASSET_CHECK_EVALUATION_PLANNED})
_MIRRORED = _OF_ASSETS | _OF_CHECKS | EVENT_TYPE_TO_PIPELINE_RUN_STATUS.keys()
"""What Dagster stores in the index of all runs too."""

_LEFT_TO_DAGSTER = (ASSET_EVENTS | ASSET_CHECK_EVENTS) - _MIRRORED
"""What it stores in ways of its own that are not followed here."""

# A run of 350 topics begins with 3,500 events of what it is going to do, which Dagster stores one by one unless it is
# told otherwise by its environment.
os.environ.setdefault("DAGSTER_EVENT_BATCH_SIZE", "500")


class _Compressed(db.types.TypeDecorator[str]):
    """Text that is stored compressed, if it is not so yet. What was stored before it was is read as it is."""

    impl = db.Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: db.Dialect) -> Any:  # noqa: ARG002 - SQLAlchemy's signature
        return _compress(value) if isinstance(value, str) else value

    def process_result_value(self, value: Any, dialect: db.Dialect) -> str | None:  # noqa: ARG002 - likewise
        return zlib.decompress(value).decode() if isinstance(value, bytes) else value


def _compress(text: str) -> bytes:
    return zlib.compress(text.encode(), level=1)


# Dagster's tables are one set for the whole process, whose one event log this is.
for _column in (SqlEventLogStorageTable.c.event, AssetCheckExecutionsTable.c.evaluation_event):
    _column.type = _Compressed()


_SET_BY_EVENTS = ("last_materialization", "last_run_id", "last_materialization_timestamp")
_insert_asset = sqlite.insert(AssetKeyTable)
_UPSERT_ASSETS = _insert_asset.on_conflict_do_update(
    index_elements=["asset_key"],
    set_={name: db.func.coalesce(_insert_asset.excluded[name], AssetKeyTable.c[name]) for name in _SET_BY_EVENTS},
)
"""An event sets some of an asset's columns, and leaves the others as they are."""

_CHECK_KEY = ("asset_key", "check_name", "run_id", "partition")
_key = {name: db.bindparam(f"key_{name}", type_=AssetCheckExecutionsTable.c[name].type) for name in _CHECK_KEY}
_has_key = db.and_(*(AssetCheckExecutionsTable.c[name].is_not_distinct_from(value) for name, value in _key.items()))
_INSERT_UNPLANNED = AssetCheckExecutionsTable.insert().from_select(
    _CHECK_KEY, db.select(*_key.values()).where(~db.select(AssetCheckExecutionsTable.c.id).where(_has_key).exists())
)
_UPDATE_PLANNED = AssetCheckExecutionsTable.update().where(_has_key)


class _Row(NamedTuple):
    """An event as it is stored: its text, and the columns of its table, where the text is compressed."""

    event: EventLogEntry
    text: str
    columns: dict[str, Any]

    @property
    def kind(self) -> DagsterEventType | None:
        return self.event.dagster_event_type


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
            if kind in _LEFT_TO_DAGSTER:
                super().store_event(event)
                return
            if self._waiting and self._waiting[0].run_id != event.run_id:
                self.flush()
            self._waiting.append(_without_repetition(event))
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
            if kinds & _LEFT_TO_DAGSTER or len({event.run_id for event in events}) != 1:
                super().store_event_batch(events)
            else:
                self.flush()
                self._insert([_without_repetition(event) for event in events])

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
        mirrored = [row for row in rows if row.kind in _MIRRORED]
        run_id = events[0].run_id
        with self._open(INDEX_SHARD_NAME) as index, self._open(run_id) as run:
            run.execute(SqlEventLogStorageTable.insert(), [row.columns for row in rows])
            if mirrored:
                self._mirror(index, mirrored)
        # Dagster watches this file, if it is still there, while what is stored goes to that of its write-ahead log.
        with suppress(FileNotFoundError):
            os.utime(self.path_for_shard(run_id))

    def _row(self, event: EventLogEntry) -> _Row:
        columns = self._event_to_row(event)
        text = columns["event"]
        return _Row(event, text, {**columns, "event": _compress(text)})

    def _mirror(self, index: db.Connection, rows: Sequence[_Row]) -> None:
        """Store in the index what is asked for of all runs at once: of assets, of checks, and of runs' status."""
        index.execute(SqlEventLogStorageTable.insert(), [row.columns for row in rows])
        # SQLite numbers a row by one more than the largest number there is, and nobody else writes meanwhile.
        last = index.exec_driver_sql("SELECT last_insert_rowid()").scalar_one()
        numbered = list(enumerate(rows, start=last - len(rows) + 1))
        if of_assets := [(event_id, row) for event_id, row in numbered if row.kind in _OF_ASSETS]:
            event_ids, stored = zip(*of_assets, strict=True)
            self._store_asset_event_tags(index, [row.event for row in stored], event_ids)
            index.execute(_UPSERT_ASSETS, _asset_entries(of_assets))
        of_checks = [(event_id, row) for event_id, row in numbered if row.kind in _OF_CHECKS]
        for updates, some in groupby(of_checks, key=lambda each: _updates_planned(each[1])):
            entries = [entry for event_id, row in some for entry in _check_entries(event_id, row)]
            if updates:
                _update_checks(index, entries)
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
        log.flush()


def _leave_to_parent() -> None:
    for log in _LOGS:
        log.forget_waiting()


os.register_at_fork(after_in_child=_leave_to_parent)


def _asset_entries(of_assets: Sequence[tuple[int, _Row]]) -> list[dict[str, Any]]:
    """What the events, one after the other, leave in the table of assets."""
    entries: dict[str, dict[str, Any]] = {}
    for event_id, row in of_assets:
        key = row.columns["asset_key"]
        entry = entries.setdefault(key, {"asset_key": key, **dict.fromkeys(_SET_BY_EVENTS)})
        entry["last_materialization_timestamp"] = row.columns["timestamp"]
        if row.kind is not DagsterEventType.ASSET_OBSERVATION:
            entry["last_run_id"] = row.event.run_id
        if row.kind is DagsterEventType.ASSET_MATERIALIZATION:
            # An `EventLogRecord`, around the event as it is serialised already.
            entry["last_materialization"] = (
                f'{{"__class__": "EventLogRecord", "event_log_entry": {row.text}, "storage_id": {event_id}}}'
            )
    return list(entries.values())


def _updates_planned(row: _Row) -> bool:
    return row.kind is DagsterEventType.ASSET_CHECK_EVALUATION and row.event.run_id != RUNLESS_RUN_ID


def _check_entries(event_id: int, row: _Row) -> list[dict[str, Any]]:
    """What an event leaves in the table of checks: a row for each partition."""
    said = row.event.get_dagster_event().event_specific_data
    partitions: Iterable[str | None]
    if isinstance(said, AssetCheckEvaluationPlanned):
        status, target = AssetCheckExecutionRecordStatus.PLANNED, None
        partitions = said.partitions_subset.get_partition_keys() if said.partitions_subset else [None]
    else:
        assert isinstance(said, AssetCheckEvaluation)
        status = AssetCheckExecutionRecordStatus.SUCCEEDED if said.passed else AssetCheckExecutionRecordStatus.FAILED
        target, partitions = said.target_materialization_data, [said.partition]
    return [
        {
            "asset_key": said.asset_key.to_string(),
            "check_name": said.check_name,
            "run_id": row.event.run_id,
            "partition": partition,
            "execution_status": status.value,
            "evaluation_event": row.columns["event"],
            "evaluation_event_timestamp": row.columns["timestamp"],
            "evaluation_event_storage_id": event_id,
            "materialization_event_storage_id": target.storage_id if target else None,
        }
        for partition in partitions
    ]


def _update_checks(index: db.Connection, entries: Sequence[dict[str, Any]]) -> None:
    """Put evaluations in the place of what was planned; what was not gets its row first."""
    keys = [{f"key_{name}": entry[name] for name in _CHECK_KEY} for entry in entries]
    index.execute(_INSERT_UNPLANNED, keys)
    values = [{name: value for name, value in entry.items() if name not in _CHECK_KEY} for entry in entries]
    updated = index.execute(_UPDATE_PLANNED, [key | value for key, value in zip(keys, values, strict=True)])
    if updated.rowcount > len(entries):
        raise DagsterInvariantViolationError("A check was planned twice.")


def _without_repetition(event: EventLogEntry) -> EventLogEntry:
    """The event, without the metadata of an asset's output. The output of an op that makes no asset is the result."""
    said = event.dagster_event
    data = said.event_specific_data if said else None
    if said is None or not isinstance(data, StepOutputData) or data.output_name == _RESULT:
        return event
    return event._replace(dagster_event=said._replace(event_specific_data=data._replace(metadata={})))


def _wait_for_no_disk(connection: Any, _: Any) -> None:
    """Leave it to SQLite when what is logged reaches the disk.

    What a crash of the machine may lose is the last thing that was said of a run, never the tables' state.
    """
    connection.execute("PRAGMA synchronous=NORMAL")
