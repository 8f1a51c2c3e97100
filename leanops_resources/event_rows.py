"""An event of Dagster's as rows of its tables, and the statements that store many of them as Dagster stores one.

These are Dagster's own tables, and no public way leads to them but one event at a time: 1 ms of CPU each, of which a
topic has 40 a tick. A test stores events of every kind both ways and compares all tables.
"""

import zlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import sqlalchemy as db
from dagster import AssetCheckEvaluation, DagsterEventType, DagsterInvariantViolationError
from dagster._core.definitions.asset_checks.asset_check_evaluation import AssetCheckEvaluationPlanned
from dagster._core.events import ASSET_CHECK_EVENTS, ASSET_EVENTS, EVENT_TYPE_TO_PIPELINE_RUN_STATUS
from dagster._core.events.log import EventLogEntry
from dagster._core.execution.plan.outputs import StepOutputData
from dagster._core.instance import RUNLESS_RUN_ID
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus
from dagster._core.storage.event_log.schema import AssetCheckExecutionsTable, AssetKeyTable, SqlEventLogStorageTable
from sqlalchemy.dialects import sqlite

_RESULT = "result"

OF_ASSETS = frozenset(
    {
        DagsterEventType.ASSET_MATERIALIZATION,
        DagsterEventType.ASSET_OBSERVATION,
        DagsterEventType.ASSET_MATERIALIZATION_PLANNED,
    }
)
OF_CHECKS = frozenset({DagsterEventType.ASSET_CHECK_EVALUATION, DagsterEventType.ASSET_CHECK_EVALUATION_PLANNED})
MIRRORED = OF_ASSETS | OF_CHECKS | EVENT_TYPE_TO_PIPELINE_RUN_STATUS.keys()
"""What Dagster stores in the index of all runs too."""

LEFT_TO_DAGSTER = (ASSET_EVENTS | ASSET_CHECK_EVENTS) - MIRRORED
"""What it stores in ways of its own that are not followed here."""


class _Compressed(db.types.TypeDecorator[str]):
    """Text that is stored compressed, if it is not so yet. What was stored before it was is read as it is."""

    impl = db.Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: db.Dialect) -> Any:  # noqa: ARG002 - SQLAlchemy's signature
        return compress(value) if isinstance(value, str) else value

    def process_result_value(self, value: Any, dialect: db.Dialect) -> str | None:  # noqa: ARG002 - likewise
        return zlib.decompress(value).decode() if isinstance(value, bytes) else value


def compress(text: str) -> bytes:
    """A text as it is stored."""
    return zlib.compress(text.encode(), level=1)


# Dagster's tables are one set for the whole process, whose one event log this is.
for _column in (SqlEventLogStorageTable.c.event, AssetCheckExecutionsTable.c.evaluation_event):
    _column.type = _Compressed()


_SET_BY_EVENTS = ("last_materialization", "last_run_id", "last_materialization_timestamp")
_insert_asset = sqlite.insert(AssetKeyTable)
UPSERT_ASSETS = _insert_asset.on_conflict_do_update(
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


class EventRow(NamedTuple):
    """An event as it is stored: its text, and the columns of its table, where the text is compressed."""

    event: EventLogEntry
    text: str
    columns: dict[str, Any]

    @property
    def kind(self) -> DagsterEventType | None:
        return self.event.dagster_event_type


def asset_entries(of_assets: Sequence[tuple[int, EventRow]]) -> list[dict[str, Any]]:
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


def updates_planned(row: EventRow) -> bool:
    """Whether an event may take the place of a check that its run has planned."""
    return row.kind is DagsterEventType.ASSET_CHECK_EVALUATION and row.event.run_id != RUNLESS_RUN_ID


def check_entries(event_id: int, row: EventRow) -> list[dict[str, Any]]:
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


def update_checks(index: db.Connection, entries: Sequence[dict[str, Any]]) -> None:
    """Put evaluations in the place of what was planned; what was not gets its row first."""
    keys = [{f"key_{name}": entry[name] for name in _CHECK_KEY} for entry in entries]
    index.execute(_INSERT_UNPLANNED, keys)
    values = [{name: value for name, value in entry.items() if name not in _CHECK_KEY} for entry in entries]
    updated = index.execute(_UPDATE_PLANNED, [key | value for key, value in zip(keys, values, strict=True)])
    if updated.rowcount > len(entries):
        raise DagsterInvariantViolationError("A check was planned twice.")


def without_repetition(event: EventLogEntry) -> EventLogEntry:
    """The event, without the metadata of an asset's output. The output of an op that makes no asset is the result."""
    said = event.dagster_event
    data = said.event_specific_data if said else None
    if said is None or not isinstance(data, StepOutputData) or data.output_name == _RESULT:
        return event
    return event._replace(dagster_event=said._replace(event_specific_data=data._replace(metadata={})))
