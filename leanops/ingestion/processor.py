"""The processor: from a batch of queue messages to what may land, what goes back, and what is a dead letter.

It is a function of its arguments alone. The Lambda behind a queue, the transform inside a Firehose and the drain of RAW
all call it, so a message is judged the same way whichever way it takes.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from hashlib import sha256
from typing import NamedTuple

import msgspec

from leanops.ingestion.bisection import bisect
from leanops.ingestion.faults import MOST_RECEIVES, Fault
from leanops.ingestion.messages import QueueMessage
from leanops.raw.envelope import Envelope, EnvelopeMalformed, parse_envelope

_LONGEST_REASON = 1000
_FURTHEST_AHEAD = timedelta(days=1)


class Record(NamedTuple):
    """A message that may land in RAW."""

    message: QueueMessage
    envelope: Envelope


class Failure(NamedTuple):
    """A message that goes back to its queue, to be tried again."""

    message: QueueMessage
    reason: str


@dataclass(frozen=True)
class DeadLetter:
    """A message that will not land as it is: why, and what could be read of it all the same."""

    message: QueueMessage
    fault: Fault
    reason: str
    day: date
    """The day that it counts on: its publish day, or the day of its reception where RAW could not have that."""
    message_id: str | None = None
    idempotency_key: str | None = None

    @property
    def dead_letter_id(self) -> str:
        """The same each time that the message is delivered."""
        source = f"{self.message.topic}\n{self.message.handle}\n".encode("utf-8", "surrogatepass")
        return sha256(source + self.message.body).hexdigest()[:32]


@dataclass
class Processed:
    """What becomes of each message of a batch: it is in exactly one of the three."""

    records: list[Record] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    dead_letters: list[DeadLetter] = field(default_factory=list)

    def fail(
        self,
        poison: Iterable[tuple[QueueMessage, Exception]],
        untried: Iterable[QueueMessage],
        first_day: date,
        now: datetime,
    ) -> None:
        """What failed for an unknown reason goes back; poison that has come too often is a dead letter."""
        for message, error in poison:
            reason = f"{type(error).__name__}: {error}"
            if message.receives < MOST_RECEIVES:
                self.failures.append(Failure(message, _short(reason)))
            else:
                self.dead_letters.append(_dead_letter(message, Fault.UNKNOWN, reason, first_day, now))
        self.failures += [Failure(message, "Too many messages of its batch failed before it.") for message in untried]


Parse = Callable[[bytes, date, datetime], Envelope]


def process(
    messages: Sequence[QueueMessage], first_day: date, now: datetime, parse: Parse = parse_envelope
) -> Processed:
    """Judge every message of a batch. One that makes the reading itself fail is found by halving."""

    def read(batch: Sequence[QueueMessage]) -> tuple[list[Record], list[DeadLetter]]:
        records: list[Record] = []
        malformed: list[DeadLetter] = []
        for message in batch:
            try:
                records.append(Record(message, parse(message.body, first_day, now)))
            except EnvelopeMalformed as error:
                malformed.append(_dead_letter(message, Fault.MALFORMED, str(error), first_day, now))
        return records, malformed

    done = Processed()
    found = bisect(messages, read)
    for records, malformed in found.results:
        done.records += records
        done.dead_letters += malformed
    done.fail(found.poison, found.untried, first_day, now)
    return done


class _Readable(msgspec.Struct):
    """What may be readable of a message that is no envelope."""

    message_id: object = None
    idempotency_key: object = None
    publish_time: object = None


def _dead_letter(message: QueueMessage, fault: Fault, reason: str, first_day: date, now: datetime) -> DeadLetter:
    try:
        readable = msgspec.json.decode(message.body, type=_Readable)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        readable = _Readable()
    published = _publish_day(readable.publish_time, first_day, now)
    return DeadLetter(
        message=message,
        fault=fault,
        reason=_short(reason),
        day=published or max(now.astimezone(UTC).date(), first_day),
        message_id=_text(readable.message_id),
        idempotency_key=_text(readable.idempotency_key),
    )


def _publish_day(publish_time: object, first_day: date, now: datetime) -> date | None:
    """The day that a message says it was published on, if RAW could have it on that day."""
    if not isinstance(publish_time, str):
        return None
    try:
        moment = datetime.fromisoformat(publish_time)
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return moment.date() if first_day <= moment.date() and moment <= now + _FURTHEST_AHEAD else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value.strip() else None


def _short(reason: str) -> str:
    """A reason may quote the message, which may be large."""
    return reason if len(reason) <= _LONGEST_REASON else f"{reason[: _LONGEST_REASON - 1]}…"
