"""What a message looks like on its way in: one JSON object per line, around a payload that nobody has looked into.

    {"message_id": "…", "publish_time": "2026-01-31T08:15:00Z", "payload": {…} or "…"}

`ingestion_ts` (whole seconds since 1970) and `idempotency_key` are optional. The payload's text is kept to the letter:
it is not parsed here, so no number can change on the way.
"""

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

import msgspec

_FURTHEST_AHEAD = timedelta(days=1)
_LATEST_SECOND = int(datetime(9999, 12, 31, tzinfo=UTC).timestamp())


class EnvelopeMalformed(ValueError):
    """A line is no envelope. The message says why, in words for the producer."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """A message that may land."""

    message_id: str
    publish_time: datetime
    payload: str
    ingestion_ts: int | None
    idempotency_key: str | None


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    message_id: str
    publish_time: str
    payload: msgspec.Raw
    ingestion_ts: int | None = None
    idempotency_key: str | None = None


_decode_line = msgspec.json.Decoder(_Line).decode
_decode_text = msgspec.json.Decoder(str).decode


def parse_envelope(line: bytes, first_day: date, now: datetime) -> Envelope:
    """The envelope in `line`, or `EnvelopeMalformed`. Its publish day lies between `first_day` and tomorrow."""
    try:
        decoded = _decode_line(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise EnvelopeMalformed(_in_words(error)) from None
    if not decoded.message_id.strip():
        raise EnvelopeMalformed("message_id is blank.")
    if decoded.ingestion_ts is not None and not 0 <= decoded.ingestion_ts <= _LATEST_SECOND:
        raise EnvelopeMalformed(f"ingestion_ts is {decoded.ingestion_ts}, not seconds since 1970.")
    return Envelope(
        message_id=decoded.message_id,
        publish_time=_publish_time(decoded.publish_time, first_day, now),
        payload=_payload_text(decoded.payload),
        ingestion_ts=decoded.ingestion_ts,
        idempotency_key=decoded.idempotency_key,
    )


def _payload_text(payload: msgspec.Raw) -> str:
    """A payload sent as a string is that string; one sent as an object is its text as it stands in the line."""
    raw = bytes(payload)
    try:
        match raw[:1]:
            case b'"':
                return _decode_text(raw)
            case b"{":
                return raw.decode("utf-8")
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise EnvelopeMalformed(f"payload: {_in_words(error)}") from None
    raise EnvelopeMalformed("payload is neither a string nor an object.")


def _publish_time(text: str, first_day: date, now: datetime) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        raise EnvelopeMalformed(f"publish_time {text!r} is no ISO 8601 time, such as 2026-01-31T08:15:00Z.") from None
    if moment.date() < first_day:
        raise EnvelopeMalformed(f"publish_time {text} lies before the platform's first day, {first_day}.")
    if moment > now + _FURTHEST_AHEAD:
        raise EnvelopeMalformed(f"publish_time {text} lies more than a day ahead of now.")
    return moment


def _in_words(error: Exception) -> str:
    """The decoder's own sentence, in the words of envelopes."""
    match error:
        case UnicodeDecodeError():
            return f"the text is not UTF-8 (byte {error.object[error.start]:#04x})."
        case RecursionError():
            return "the line is nested too deeply to be read; send the payload as a string."
    text = str(error).replace("Object missing required field", "there is no")
    text = text.replace("Object contains unknown field", "there is no place for").replace(" - at `$.", " in `")
    return text.replace("`", "").rstrip(".") + "."
