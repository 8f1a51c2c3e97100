"""The transform inside the Firehose: each record becomes a row, and says which table it is for.

Handler: `leanops_lambda.transform.handler`. A message goes to its topic's RAW table, a dead letter to `dlq_errors`. A
record that can be neither is `ProcessingFailed`: the Firehose keeps it, as it came, in its error bucket.

Lambda's answer may have 6 MB. Records whose rows no longer fit are put back into the Firehose, which brings them again,
and are `Dropped` here; when even that fails they are `ProcessingFailed` too. With the 1 MB that a Firehose gathers by
default before it asks for a transform it does not come to that.
"""

import logging
import time
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, NamedTuple

import msgspec

from leanops.errors import LeanOpsError
from leanops.ingestion.messages import message_of_sqs_record
from leanops.ingestion.processor import Record, process
from leanops.names import RAW_DB, Layer, table
from leanops.settings import Settings
from leanops_lambda.burial import archive_of, bury
from leanops_lambda.firehose import Firehose
from leanops_lambda.iceberg_json import iceberg_json
from leanops_lambda.ingest import DEAD_LETTER, RESERVE_SECONDS, Context
from leanops_resources.dlq_archive import DlqArchive
from leanops_resources.state.store import StateStore
from leanops_resources.state.stores import state_store

DEAD_LETTERS = (RAW_DB, "dlq_errors")
_MOST_BYTES = 6_000_000
# What an answer without a row takes, of which there may be one for each record.
_LEAST_BYTES = 150
# What a record can do wrong that is no forwarded message: another shape, or a queue of no topic.
_SHAPELESS = (msgspec.DecodeError, ValueError, LookupError, TypeError, AttributeError, LeanOpsError)
_log = logging.getLogger(__name__)


def handler(event: Mapping[str, Any], context: Context) -> dict[str, Any]:
    """Make rows of the records of a Firehose."""
    settings = Settings.load()
    transform = _Transform(settings, event["invocationId"], datetime.now(UTC))
    answers = {record["recordId"]: transform.answer(record) for record in event["records"]}
    room = _MOST_BYTES - _LEAST_BYTES * len(answers)
    excess: dict[str, bytes] = {}
    for record in event["records"]:
        name = record["recordId"]
        size = len(msgspec.json.encode(answers[name]))
        if size > room:
            excess[name] = b64decode(record["data"])
        else:
            room -= size
    answers |= _put_back(excess, settings, context)
    return {"records": list(answers.values())}


def _put_back(records: Mapping[str, bytes], settings: Settings, context: Context) -> dict[str, dict[str, Any]]:
    """Let the Firehose bring records again."""
    if not records:
        return {}
    deadline = time.monotonic() + context.get_remaining_time_in_millis() / 1000 - RESERVE_SECONDS
    refused = Firehose(settings.firehose, deadline).put_all(records) if settings.firehose else records
    return {
        name: {"recordId": name, "result": "ProcessingFailed" if name in refused else "Dropped"} for name in records
    }


class _Row(NamedTuple):
    """A row, and the table that it is for."""

    table: tuple[str, str]
    row: Mapping[str, Any]


@dataclass(frozen=True)
class _Transform:
    """What one invocation works with."""

    settings: Settings
    invocation: str
    now: datetime

    @cached_property
    def _store(self) -> StateStore:
        return state_store(self.settings)

    @cached_property
    def _archive(self) -> DlqArchive:
        return archive_of(self.settings)

    def answer(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """What becomes of a record."""
        try:
            made = self._made(record)
        except _SHAPELESS as error:
            _log.warning("%s becomes no row: %s: %s", record["recordId"], type(error).__name__, error)
            return {"recordId": record["recordId"], "result": "ProcessingFailed"}
        database, name = made.table
        routing = {"destinationDatabaseName": database, "destinationTableName": name, "operation": "insert"}
        return {
            "recordId": record["recordId"],
            "result": "Ok",
            "data": b64encode(msgspec.json.encode(iceberg_json(made.row)) + b"\n").decode(),
            "metadata": {"otfMetadata": routing},
        }

    def _made(self, record: Mapping[str, Any]) -> _Row:
        sent = msgspec.json.decode(b64decode(record["data"], validate=True))
        if DEAD_LETTER in sent:
            return _Row(DEAD_LETTERS, sent[DEAD_LETTER])
        message = message_of_sqs_record(sent, self.settings.queue_prefix or "")
        done = process([message], self.settings.first_day, self.now)
        for good in done.records:
            return _raw_row(good, record["approximateArrivalTimestamp"] // 1000)
        for letter in done.dead_letters:
            source = sent["eventSourceARN"].rpartition(":")[2]
            return _Row(DEAD_LETTERS, bury(letter, self._archive, self._store, source, self.invocation, self.now))
        raise ValueError(done.failures[0].reason)


def _raw_row(record: Record, arrived: int) -> _Row:
    """A row of RAW, as far as it is known here: its landing_seq comes later (`leanops.raw.numbering`)."""
    topic, envelope = record.message.topic, record.envelope
    row = {
        "message_id": envelope.message_id,
        "topic_name": topic,
        "json_payload": envelope.payload,
        "ingestion_ts": arrived if envelope.ingestion_ts is None else envelope.ingestion_ts,
        "publish_time": envelope.publish_time,
        "idempotency_key": envelope.idempotency_key,
    }
    return _Row(table(Layer.RAW, topic), row)
