"""Dagster's event log in SQLite, with connections that are used again, and nothing that is said twice.

Dagster's own makes an engine, a connection and all its statements anew for every event, and waits for the disk each
time: 8 to 10 ms, and a topic has 40 events a tick. Here an event takes 1 to 2 ms. The files are the same.

What is known of an asset is in its materialisation; that the output which it was made from holds the same once more,
a third of a run's file, is left out. And events are stored compressed: they are long and much alike, and a tick of 700
topics wrote 200 MB of them.
"""

import os
import threading
import zlib
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import sqlalchemy as db
from dagster._core.events.log import EventLogEntry
from dagster._core.execution.plan.outputs import StepOutputData
from dagster._core.storage.event_log.schema import AssetCheckExecutionsTable, SqlEventLogStorageTable
from dagster._core.storage.event_log.sqlite.sqlite_event_log import INDEX_SHARD_NAME, SqliteEventLogStorage
from dagster._core.storage.sqlite import SQLITE_BUSY_TIMEOUT_SECONDS
from dagster._serdes import ConfigurableClassData
from sqlalchemy.pool import StaticPool

from leanops_resources.surroundings import surroundings_named

_KEPT_OPEN = 4
"""Each run has a file of its own; the UI looks at many."""

_RESULT = "result"

# A run of 350 topics begins with 3,500 events of what it is going to do, which Dagster stores one by one unless it is
# told otherwise by its environment.
os.environ.setdefault("DAGSTER_EVENT_BATCH_SIZE", "500")


class _Compressed(db.types.TypeDecorator[str]):
    """Text that is stored compressed. What was stored before it was is read as it is."""

    impl = db.Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: db.Dialect) -> Any:  # noqa: ARG002 - SQLAlchemy's signature
        return None if value is None else zlib.compress(value.encode(), level=1)

    def process_result_value(self, value: Any, dialect: db.Dialect) -> str | None:  # noqa: ARG002 - likewise
        return zlib.decompress(value).decode() if isinstance(value, bytes) else value


# Dagster's tables are one set for the whole process, whose one event log this is.
for _column in (SqlEventLogStorageTable.c.event, AssetCheckExecutionsTable.c.evaluation_event):
    _column.type = _Compressed()


class SqliteEventLog(SqliteEventLogStorage):
    """One connection to each file, of which one is in use at a time."""

    def __init__(self, base_dir: str, inst_data: ConfigurableClassData | None = None) -> None:
        self._engines: OrderedDict[str, db.Engine] = OrderedDict()
        self._held: dict[str, db.Connection] = {}
        """The connections of the batch that is being stored, by file."""
        super().__init__(base_dir, inst_data)
        # A batch holds it while each of its events takes it again.
        self._db_lock = threading.RLock()  # type: ignore[assignment]  # it is used by `with` alone

    @classmethod
    def from_config_value(cls, inst_data: ConfigurableClassData | None, config_value: Any) -> Self:
        return cls(inst_data=inst_data, **config_value)

    def store_event(self, event: EventLogEntry) -> None:
        super().store_event(_without_repetition(event))

    def store_event_batch(self, events: Sequence[EventLogEntry]) -> None:
        """Store events in one transaction for each file."""
        with self._db_lock, ExitStack() as held:
            try:
                for shard in sorted({INDEX_SHARD_NAME, *(event.run_id for event in events)}):
                    self._held[shard] = held.enter_context(self._connect(shard))
                for event in events:
                    self.store_event(event)
            finally:
                self._held.clear()

    @cached_property
    def supports_asset_checks(self) -> bool:
        """Dagster opens another connection to look for the table, for every evaluation of a check: 0.8 ms each."""
        return bool(super().supports_asset_checks)

    def _has_asset_key_index_cols_on_connection(self, conn: db.Connection) -> bool:  # noqa: ARG002 - Dagster's signature
        """Dagster asks SQLite for the table's columns with every event of an asset: half of what storing it takes."""
        return True

    @contextmanager
    def _connect(self, shard: str) -> Iterator[db.Connection]:
        with surroundings_named(Path(self._base_dir)), self._db_lock:
            if shard in self._held:
                yield self._held[shard]
            else:
                with self._engine(shard).begin() as connection:
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
        for engine in self._engines.values():
            engine.dispose()
        super().dispose()


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
