"""The Lambda behind the topics' queues: judge a batch, and forward it to the Firehose that takes it to RAW.

Handler: `leanops_lambda.ingest.handler`, with `ReportBatchItemFailures`: of a batch only what failed goes back to its
queue. Everything else has been taken by the Firehose when the handler ends, and Lambda deletes it.

    queue ──► judged ──► good: forwarded as it came ──► Firehose
                  │
                  └────► dead letter: body archived, error tracked, row forwarded ──► Firehose
"""

import logging
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any, Protocol

import msgspec

from leanops.errors import LeanOpsError, Problem, SettingsInvalid
from leanops.ingestion.bisection import bisect
from leanops.ingestion.breaker import TRIAL_MESSAGES, Circuit
from leanops.ingestion.faults import Fault, classify
from leanops.ingestion.messages import QueueMessage, message_of_sqs_record
from leanops.ingestion.processor import DeadLetter, Failure, Processed, process
from leanops.settings import Settings
from leanops_lambda.burial import archive_of, bury
from leanops_lambda.firehose import Firehose, in_calls
from leanops_lambda.iceberg_json import iceberg_json
from leanops_resources.dlq_archive import DlqArchive
from leanops_resources.state.store import StateStore
from leanops_resources.state.stores import state_store

DEAD_LETTER = "dead_letter"
"""The key under which a dead letter's row is forwarded. A message as it came has no such key."""

# What a batch needs after its last attempt: to note the breaker, and to answer.
RESERVE_SECONDS = 5
_AT_ONCE = 8
_log = logging.getLogger(__name__)


class Context(Protocol):
    """What Lambda says of an invocation."""

    aws_request_id: str

    def get_remaining_time_in_millis(self) -> int: ...


def handler(event: Mapping[str, Any], context: Context) -> dict[str, Any]:
    """Take in a batch of SQS records; which of them go back to their queue."""
    settings = Settings.load()
    records = {record["messageId"]: record for record in event["Records"]}
    by_topic: defaultdict[str, list[QueueMessage]] = defaultdict(list)
    for record in records.values():
        message = message_of_sqs_record(record, settings.queue_prefix or "")
        by_topic[message.topic].append(message)
    intake = _Intake(
        records=records,
        firehose=Firehose(
            _name_of_firehose(settings),
            time.monotonic() + context.get_remaining_time_in_millis() / 1000 - RESERVE_SECONDS,
        ),
        store=state_store(settings),
        archive=archive_of(settings),
        first_day=settings.first_day,
        invocation=context.aws_request_id,
        now=datetime.now(UTC),
    )
    back = [failure for topic, messages in by_topic.items() for failure in intake.take_in(topic, messages)]
    for failure in back:
        _log.warning("%s of %s goes back: %s", failure.message.handle, failure.message.topic, failure.reason)
    return {"batchItemFailures": [{"itemIdentifier": failure.message.handle} for failure in back]}


def _name_of_firehose(settings: Settings) -> str:
    if settings.firehose:
        return settings.firehose
    problem = Problem(Settings.variable("firehose"), "is not set.")
    raise SettingsInvalid("The environment", [problem], "Name the Firehose that this Lambda forwards to.")


@dataclass(frozen=True)
class _Intake:
    """What one invocation works with."""

    records: Mapping[str, Mapping[str, Any]]
    firehose: Firehose
    store: StateStore
    archive: DlqArchive
    first_day: date
    invocation: str
    now: datetime

    def take_in(self, topic: str, messages: Sequence[QueueMessage]) -> list[Failure]:
        """Take in messages of a topic as far as its circuit lets them pass; what goes back to the queue."""
        breaker = self.store.breaker(topic).at(self.now)
        passing = {Circuit.OPEN: 0, Circuit.HALF_OPEN: TRIAL_MESSAGES, Circuit.CLOSED: len(messages)}[breaker.circuit]
        tried, stopped = messages[:passing], messages[passing:]
        done = process(tried, self.first_day, self.now)
        good = self._forward(done)
        self._bury(done)
        if tried:
            self.store.save_breaker(topic, breaker.after(good, len(tried) - good, self.now))
        return [*done.failures, *(Failure(each, f"Its circuit is {breaker.circuit.value}.") for each in stopped)]

    def _forward(self, done: Processed) -> int:
        """Forward what is good; how much of it was taken. What was not has failed, or is a dead letter."""
        messages = {record.message.handle: record.message for record in done.records}
        forwarded = {handle: _as_it_came(self.records[handle]) for handle in messages}
        poison: list[tuple[QueueMessage, Exception]] = []
        untried: list[QueueMessage] = []
        busy: list[Failure] = []

        def put(handles: Sequence[str]) -> None:
            refused = self.firehose.put([forwarded[handle] for handle in handles])
            for place, error in refused.items():
                message = messages[handles[place]]
                if classify(error) is Fault.TRANSIENT:
                    busy.append(Failure(message, str(error)))
                else:
                    poison.append((message, error))

        for handles in in_calls(forwarded):
            found = bisect(handles, put)
            poison += [(messages[handle], error) for handle, error in found.poison]
            untried += [messages[handle] for handle in found.untried]
        done.failures += busy
        done.fail(poison, untried, self.first_day, self.now)
        return len(messages) - len(poison) - len(untried) - len(busy)

    def _bury(self, done: Processed) -> None:
        """Forward the rows of dead letters whose bodies are archived. Where that fails they go back as well."""
        letters = {letter.message.handle: letter for letter in done.dead_letters}
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            rows = dict(zip(letters, pool.map(self._row, letters.values()), strict=True))
        back = {handle: row for handle, row in rows.items() if isinstance(row, Failure)}
        buried = {handle: _line({DEAD_LETTER: row}) for handle, row in rows.items() if handle not in back}
        for handle, error in self.firehose.put_all(buried).items():
            back[handle] = Failure(letters[handle].message, str(error))
        done.failures += back.values()
        done.dead_letters = [letter for handle, letter in letters.items() if handle not in back]

    def _row(self, letter: DeadLetter) -> dict[str, Any] | Failure:
        """The row of a dead letter whose body is archived, or why that is not possible now."""
        if self.firehose.is_over:
            return Failure(letter.message, "There was no time left to archive it.")
        source = self.records[letter.message.handle]["eventSourceARN"].rpartition(":")[2]
        try:
            return iceberg_json(bury(letter, self.archive, self.store, source, self.invocation, self.now))
        except LeanOpsError as error:
            return Failure(letter.message, str(error))


def _as_it_came(record: Mapping[str, Any]) -> bytes:
    """What the transform needs of a record to judge it in the same way."""
    kept = {key: record[key] for key in ("messageId", "body", "eventSourceARN")}
    receives = record.get("attributes", {}).get("ApproximateReceiveCount", "1")
    return _line({**kept, "attributes": {"ApproximateReceiveCount": receives}})


def _line(document: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode(document) + b"\n"
