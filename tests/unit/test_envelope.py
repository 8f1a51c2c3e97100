import json
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leanops.raw.envelope import Envelope, EnvelopeMalformed, parse_envelope

FIRST_DAY = date(2025, 1, 1)
NOW = datetime(2026, 1, 31, 8, 15, tzinfo=UTC)
PUBLISHED = "2026-01-30T12:00:00Z"


def line(payload: str = "{}", **fields: Any) -> bytes:
    """An envelope around the payload's very text."""
    fields = {"message_id": "m1", "publish_time": PUBLISHED, **fields}
    return f'{json.dumps(fields)[:-1]}, "payload": {payload}}}'.encode()


def parse(content: bytes) -> Envelope:
    return parse_envelope(content, FIRST_DAY, NOW)


def refusal(content: bytes) -> str:
    with pytest.raises(EnvelopeMalformed) as caught:
        parse(content)
    return str(caught.value)


OBJECTS = [
    "{}",
    "{ }",
    '{"a": 123456789012345678901234567890}',
    '{"a": 0.1234567890123456789012345}',
    '{"a": 1.10, "b": 1e5, "c": -0, "d": 1.0E+05, "e": 1e9999}',
    '{"z": 1, "a": 2, "m": {"y": 1, "b": 2}}',
    '{"a": 1, "a": 2}',
    '{  "a"\t:  [1 ,2 , { } ]  }',
    '{"a": "é 漢 🦊", "\\u00e9": "\\u00e9 \\ud83e\\udd8a \\/ \\n"}',
    '{"a": "\\u0000"}',
    '{"a": "\u2028\u00a0\ufeff"}',
    '{"a": null, "b": true, "c": []}',
    '{"": ""}',
    '{"payload": "}", "message_id": "other"}',
]

STRINGS = [
    # as it stands in the line, as it lands
    ('""', ""),
    ('"not JSON at all"', "not JSON at all"),
    ('"{\\"a\\": 1.10}"', '{"a": 1.10}'),
    ('"\\u00e9\\ud83e\\udd8a\\n\\t\\\\"', "é🦊\n\t\\"),
    ('"[1, 2]"', "[1, 2]"),
    ('" x "', " x "),
    ('"\\u0000"', "\0"),
]

TIMES = [
    # publish_time, as it is stored
    ("2026-01-30T12:00:00Z", datetime(2026, 1, 30, 12, tzinfo=UTC)),
    ("2026-01-30T12:00:00+00:00", datetime(2026, 1, 30, 12, tzinfo=UTC)),
    ("2026-01-30T12:00:00", datetime(2026, 1, 30, 12, tzinfo=UTC)),  # no offset means UTC
    ("2026-01-30 12:00:00", datetime(2026, 1, 30, 12, tzinfo=UTC)),
    ("2026-01-30T01:00:00+02:00", datetime(2026, 1, 29, 23, tzinfo=UTC)),
    ("2026-01-30T22:00:00-05:30", datetime(2026, 1, 31, 3, 30, tzinfo=UTC)),
    ("2026-01-30T12:00:00.123456Z", datetime(2026, 1, 30, 12, 0, 0, 123456, tzinfo=UTC)),
    ("2026-01-30", datetime(2026, 1, 30, tzinfo=UTC)),
    ("2025-01-01T00:00:00Z", datetime(2025, 1, 1, tzinfo=UTC)),  # the first moment of the first day
    ("2024-12-31T23:00:00-01:00", datetime(2025, 1, 1, tzinfo=UTC)),
    ("2026-02-01T08:15:00Z", datetime(2026, 2, 1, 8, 15, tzinfo=UTC)),  # a day ahead to the second
    ("2026-02-01T09:15:00+01:00", datetime(2026, 2, 1, 8, 15, tzinfo=UTC)),
]

NO_TIMES = [
    # publish_time, what is said to it
    ("", "is no ISO 8601 time"),
    (" ", "is no ISO 8601 time"),
    ("yesterday", "is no ISO 8601 time"),
    ("1769847300", "is no ISO 8601 time"),
    ("2026-02-30T12:00:00Z", "is no ISO 8601 time"),
    ("2026-01-30T25:00:00Z", "is no ISO 8601 time"),
    ("30.01.2026", "is no ISO 8601 time"),
    ("2026-01-30T12:00:00+99:00", "is no ISO 8601 time"),
    ("0001-01-01T00:00:00+01:00", "is no ISO 8601 time"),
    ("9999-12-31T23:59:59-01:00", "is no ISO 8601 time"),
    ("2024-12-31T23:59:59.999999Z", "before the platform's first day, 2025-01-01"),
    ("2025-01-01T00:59:59+01:00", "before the platform's first day"),
    ("1970-01-01T00:00:00Z", "before the platform's first day"),
    ("2026-02-01T08:15:00.000001Z", "more than a day ahead"),
    ("2026-02-01T08:15:00-00:01", "more than a day ahead"),
    ("9999-12-31T00:00:00Z", "more than a day ahead"),
]

MALFORMED = [
    # line, what is said to it
    (b"", "truncated"),
    (b"x", "JSON is malformed"),
    (b"null", "Expected object, got null"),
    (b"5", "Expected object, got int"),
    (b"[]", "Expected object, got array"),
    (b'"text"', "Expected object, got str"),
    (b"[" + line() + b"]", "Expected object, got array"),
    (b"{}", "there is no message_id"),
    (b'{"message_id": "m1"}', "there is no publish_time"),
    (f'{{"message_id": "m1", "publish_time": "{PUBLISHED}"}}'.encode(), "there is no payload"),
    (f'{{"publish_time": "{PUBLISHED}", "payload": {{}}}}'.encode(), "there is no message_id"),
    (line(message_id=""), "message_id is blank"),
    (line(message_id=" \t\n"), "message_id is blank"),
    (line(message_id="\u00a0\u2003"), "message_id is blank"),
    (line(message_id=None), "Expected str, got null in message_id"),
    (line(message_id=5), "Expected str, got int in message_id"),
    (line(message_id=["a"]), "Expected str, got array in message_id"),
    (line(publish_time=None), "Expected str, got null in publish_time"),
    (line(publish_time=1769847300), "Expected str, got int in publish_time"),
    (line(idempotency_key=5), "got int in idempotency_key"),
    (line(Message_Id="m1"), "there is no place for Message_Id"),
    (line(topic="orders"), "there is no place for topic"),
    (line("[]"), "payload is neither a string nor an object"),
    (line('[{"a": 1}]'), "payload is neither a string nor an object"),
    (line("null"), "payload is neither a string nor an object"),
    (line("5"), "payload is neither a string nor an object"),
    (line("true"), "payload is neither a string nor an object"),
    (line('{"a": 1,}'), "trailing comma"),
    (line("{'a': 1}"), "JSON is malformed"),
    (line('{"a": 01}'), "invalid number"),
    (line('{"a": NaN}'), "JSON is malformed"),
    (line('{"a": "\t"}'), "JSON is malformed"),
    (line('{"a": 1'), "truncated"),
    (line()[:-1], "truncated"),
    (line()[:20], "truncated"),
    (line() + b"x", "trailing characters"),
    (line() + b" " + line(), "trailing characters"),
    (b"\xef\xbb\xbf" + line(), "JSON is malformed"),
    (line().decode().encode("utf-16"), "JSON is malformed"),
    (line(message_id="?").replace(b"?", b"\xff"), "not UTF-8 (byte 0xff)"),
    (line('{"a": "?"}').replace(b"?", b"\xff"), "payload: the text is not UTF-8 (byte 0xff)"),
    (line('"?"').replace(b"?", b"\xc3("), "payload: the text is not UTF-8 (byte 0xc3)"),
    (line('{"a": "?"}').replace(b"?", b"\xed\xa0\x80"), "payload: the text is not UTF-8"),
    (line(message_id="\ud800"), "surrogate"),
    (line('"\\ud800 and more"'), "JSON is malformed"),
    (line('{"a":' * 100_000 + "1" + "}" * 100_000), "nested too deeply"),
    (line('{"a":' + "[" * 100_000 + "]" * 100_000 + "}"), "nested too deeply"),
    (line(topic={"a": {}}).replace(b"{}", b"[" * 100_000 + b"]" * 100_000, 1), "no place for topic"),
    (line(ingestion_ts=-1), "ingestion_ts is -1, not seconds since 1970"),
    (line(ingestion_ts=1769847300000), "not seconds since 1970"),  # milliseconds
    (line(ingestion_ts=2**63), "not seconds since 1970"),
    (line(ingestion_ts=10**30), "not seconds since 1970"),
    (line(ingestion_ts=1.5), "got float in ingestion_ts"),
    (line(ingestion_ts=True), "got bool in ingestion_ts"),
    (line(ingestion_ts="1769847300"), "got str in ingestion_ts"),
]


def short(value: object) -> str | None:
    return repr(value[:40]) if isinstance(value, bytes) else None


def test_an_envelope_reads_as_it_was_sent() -> None:
    assert parse(line('{"a": 1}', ingestion_ts=1769847300, idempotency_key="k1")) == Envelope(
        message_id="m1",
        publish_time=datetime(2026, 1, 30, 12, tzinfo=UTC),
        payload='{"a": 1}',
        ingestion_ts=1769847300,
        idempotency_key="k1",
    )


@pytest.mark.parametrize("fields", [{}, {"ingestion_ts": None, "idempotency_key": None}])
def test_ingestion_time_and_idempotency_key_are_optional(fields: dict[str, None]) -> None:
    envelope = parse(line(**fields))
    assert (envelope.ingestion_ts, envelope.idempotency_key) == (None, None)


@pytest.mark.parametrize("payload", OBJECTS)
def test_the_text_of_an_object_is_kept_to_the_letter(payload: str) -> None:
    assert parse(line(payload)).payload == payload
    assert parse(line(f" \t{payload} ")).payload == payload


@pytest.mark.parametrize(("written", "landed"), STRINGS)
def test_a_payload_sent_as_a_string_is_that_string(written: str, landed: str) -> None:
    assert parse(line(written)).payload == landed


@pytest.mark.parametrize("position", ["first", "last"])
def test_the_order_of_the_envelopes_keys_does_not_matter(position: str) -> None:
    keys = [b'"message_id": "m1"', f'"publish_time": "{PUBLISHED}"'.encode(), b'"payload": {"a": 1}']
    keys = keys[::-1] if position == "first" else keys
    assert parse(b"{" + b", ".join(keys) + b"}") == parse(line('{"a": 1}'))


@pytest.mark.parametrize("message_id", ["m", " m ", "é漢🦊", "0", "null", "x" * 100_000, "../x", "a\nb"])
def test_a_message_id_is_any_text_that_is_not_blank(message_id: str) -> None:
    assert parse(line(message_id=message_id)).message_id == message_id


@pytest.mark.parametrize(("text", "moment"), TIMES)
def test_a_publish_time_is_stored_in_utc(text: str, moment: datetime) -> None:
    stored = parse(line(publish_time=text)).publish_time
    assert stored == moment
    assert stored.utcoffset() == timedelta(0)


@pytest.mark.parametrize(("text", "says"), NO_TIMES)
def test_a_publish_time_that_no_day_can_be_materialised_for_is_malformed(text: str, says: str) -> None:
    assert says in refusal(line(publish_time=text))


def test_the_day_ahead_is_counted_from_now_in_whatever_zone_now_is_told() -> None:
    elsewhere = NOW.astimezone(timezone(timedelta(hours=14)))
    ahead = line(publish_time="2026-02-01T08:15:00Z")
    assert parse_envelope(ahead, FIRST_DAY, elsewhere) == parse_envelope(ahead, FIRST_DAY, NOW)


@pytest.mark.parametrize("seconds", [0, 1, 1769847300, 253402214400])
def test_an_ingestion_time_is_in_whole_seconds_since_1970(seconds: int) -> None:
    assert parse(line(ingestion_ts=seconds)).ingestion_ts == seconds


@pytest.mark.parametrize(("content", "says"), MALFORMED, ids=short)
def test_a_line_that_is_no_envelope_is_refused_in_words(content: bytes, says: str) -> None:
    message = refusal(content)
    assert says in message
    assert message.endswith(".")
    assert "`" not in message
    assert len(message) < 300


def test_a_payload_that_is_nested_too_deeply_may_be_sent_as_a_string() -> None:
    deep = '{"a":' * 100_000 + "1" + "}" * 100_000
    assert parse(line(json.dumps(deep))).payload == deep


_TEXT = st.text("aZ09_ .-\"'`\\/{}[]:,\n\r\t\0\x1f\x7f\u00a0é漢🦊\u2028\ufeff\uffff\U0010ffff", max_size=8)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=8,
)


@given(
    document=st.dictionaries(_TEXT, _VALUES, max_size=4),
    ascii_only=st.booleans(),
    indent=st.sampled_from([None, 0, 1, "\t"]),
    separators=st.sampled_from([(",", ":"), (", ", ": "), (" ,", " :\t")]),
)
def test_any_object_comes_out_to_the_letter(
    document: dict[str, Any], ascii_only: bool, indent: int | str | None, separators: tuple[str, str]
) -> None:
    text = json.dumps(document, ensure_ascii=ascii_only, indent=indent, separators=separators)
    assert parse(line(text)).payload == text
    assert parse(line(json.dumps(text))).payload == text


@given(st.binary() | _TEXT.map(str.encode) | _VALUES.map(lambda value: json.dumps(value).encode()))
def test_whatever_else_arrives_is_malformed_and_nothing_worse(content: bytes) -> None:
    with pytest.raises(EnvelopeMalformed):
        parse(content)
