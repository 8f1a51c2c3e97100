"""The processor: every message of a batch may land, goes back, or is a dead letter, and always for the same reason."""

import json
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leanops.errors import TopicNameInvalid
from leanops.ingestion.bisection import MOST_POISON
from leanops.ingestion.faults import MOST_RECEIVES, Fault
from leanops.ingestion.messages import QueueMessage, message_of_sqs_record, topic_of_queue
from leanops.ingestion.processor import DeadLetter, Parse, Processed, process
from leanops.raw.envelope import Envelope, parse_envelope

FIRST_DAY = date(2025, 1, 1)
NOW = datetime(2026, 1, 31, 8, 15, tzinfo=UTC)
TODAY = NOW.date()
ARN = "arn:aws:sqs:eu-central-1:123456789012:"


def body(
    message_id: Any = "m1", publish_time: Any = "2026-01-30T12:00:00Z", payload: Any = None, **others: Any
) -> bytes:
    fields = {"message_id": message_id, "publish_time": publish_time, "payload": payload or {}, **others}
    return json.dumps(fields).encode()


def message(content: bytes, handle: str = "h1", receives: int = 1) -> QueueMessage:
    return QueueMessage("orders", handle, content, receives)


def processed(*bodies: bytes, parse: Parse = parse_envelope, receives: int = 1) -> Processed:
    messages = [message(content, str(number), receives) for number, content in enumerate(bodies)]
    return process(messages, FIRST_DAY, NOW, parse)


def dead_letter(content: bytes) -> DeadLetter:
    """What becomes of a message that cannot land."""
    done = processed(content)
    assert (done.records, done.failures) == ([], [])
    (letter,) = done.dead_letters
    return letter


# From queues to messages


@pytest.mark.parametrize(
    ("name", "prefix", "topic"),
    [
        ("orders", "", "orders"),
        ("leanops-orders", "leanops-", "orders"),
        ("leanops-orders.fifo", "leanops-", "orders"),
        ("orders.fifo", "", "orders"),
        ("a_1", "", "a_1"),
        ("orders_orders", "orders_", "orders"),
    ],
)
def test_a_topics_queue_is_called_after_it(name: str, prefix: str, topic: str) -> None:
    assert topic_of_queue(ARN + name, prefix) == topic


@pytest.mark.parametrize(
    ("arn", "prefix"),
    [
        (ARN + "leanops-orders", ""),
        (ARN + "Orders", ""),
        (ARN + "orders.fifo.fifo", ""),
        (ARN + "leanops-", "leanops-"),
        (ARN + "leanops-.fifo", "leanops-"),
        (ARN + "dlq_errors", ""),
        (ARN, ""),
        ("", ""),
        (ARN + "../orders", ""),
    ],
)
def test_a_queue_whose_name_no_topic_can_have_is_refused(arn: str, prefix: str) -> None:
    with pytest.raises(TopicNameInvalid, match=r"cannot be a topic's name|table of the platform itself"):
        topic_of_queue(arn, prefix)


@pytest.mark.parametrize("name", ["orders", "staging_orders", "leanop", "", "orders_prod_"])
def test_a_queue_of_another_deployment_is_refused(name: str) -> None:
    with pytest.raises(TopicNameInvalid, match="none of this deployment's, whose queues' names begin with 'prod_'"):
        topic_of_queue(ARN + name, "prod_")


def test_a_record_of_an_event_is_a_message() -> None:
    record = {
        "messageId": "059f36b4-87a3-44ab-83d2-661975830a7d",
        "receiptHandle": "AQEBwJnKyrHigUMZj6rYigCgxlaS3SLy0a...",
        "body": "é 漢 \ud800",
        "attributes": {"ApproximateReceiveCount": "3", "SentTimestamp": "1545082649183"},
        "messageAttributes": {},
        "eventSource": "aws:sqs",
        "eventSourceARN": f"{ARN}leanops-orders",
        "awsRegion": "eu-central-1",
    }
    expected = QueueMessage("orders", record["messageId"], b"\xc3\xa9 \xe6\xbc\xa2 \xed\xa0\x80", 3)
    assert message_of_sqs_record(record, "leanops-") == expected
    del record["attributes"]
    assert message_of_sqs_record(record, "leanops-") == expected._replace(receives=1)


# What may land


def test_a_good_message_may_land_as_it_is_read() -> None:
    content = body("m7", payload={"a": 1}, idempotency_key="k7")
    done = processed(content)
    (record,) = done.records
    assert record.message == message(content, "0")
    assert record.envelope == Envelope("m7", datetime(2026, 1, 30, 12, tzinfo=UTC), '{"a": 1}', None, "k7")
    assert (done.failures, done.dead_letters) == ([], [])


def test_no_messages_become_nothing() -> None:
    assert process([], FIRST_DAY, NOW) == Processed()


def test_a_message_of_256_kb_may_land() -> None:
    content = body(payload={"text": "x" * (256 * 1024)})[: 256 * 1024 - 3] + b'"}}'
    assert len(content) == 256 * 1024
    assert len(processed(content).records) == 1


def test_a_batch_keeps_its_order() -> None:
    done = processed(*(body(f"m{number}") if number % 3 else b"no envelope" for number in range(100)))
    assert [record.envelope.message_id for record in done.records] == [f"m{n}" for n in range(100) if n % 3]
    assert [letter.message.handle for letter in done.dead_letters] == [str(n) for n in range(100) if not n % 3]


# What is malformed


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "Input data was truncated."),
        (b" ", "Input data was truncated."),
        (b"\xff\xfe", "JSON is malformed: invalid character (byte 0)."),
        (b'{"message_id": "\xff"}', "the text is not UTF-8 (byte 0xff)."),
        (b"null", "Expected object, got null."),
        (b"[]", "Expected object, got array."),
        (b"{}", "there is no message_id."),
        (b'{"message_id": "m1"}', "there is no publish_time."),
        (b"[" * 300_000, "Expected object, got array."),
        (b'{"message_id": ' + b"[" * 300_000, "Expected str, got array in message_id."),
        (
            body("m1", payload={"a": 0}).replace(b"0}", b"[" * 300_000 + b"]" * 300_000 + b"}"),
            "the line is nested too deeply to be read; send the payload as a string.",
        ),
        (body(" "), "message_id is blank."),
        (body(publish_time="never"), "publish_time 'never' is no ISO 8601 time, such as 2026-01-31T08:15:00Z."),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_is_no_envelope_is_a_dead_letter_that_says_why(content: bytes, reason: str) -> None:
    letter = dead_letter(content)
    assert (letter.fault, letter.reason, letter.message.body) == (Fault.MALFORMED, reason, content)


@pytest.mark.parametrize("receives", [1, MOST_RECEIVES - 1, MOST_RECEIVES, 100])
def test_what_is_malformed_is_not_tried_again(receives: int) -> None:
    done = processed(b"no envelope", receives=receives)
    assert (len(done.dead_letters), done.failures) == (1, [])


def test_a_reason_is_short_however_much_it_quotes() -> None:
    letter = dead_letter(body(publish_time="9" * 250_000))
    assert len(letter.reason) == 1000
    assert letter.reason.startswith("publish_time '999")
    assert letter.reason.endswith("9…")


@pytest.mark.parametrize(
    ("content", "message_id", "idempotency_key"),
    [
        (b"", None, None),
        (b"no envelope", None, None),
        (b'["m1"]', None, None),
        (b'{"message_id": "m1"}', "m1", None),
        (b'{"message_id": "m1", "idempotency_key": "k1"}', "m1", "k1"),
        (b'{"message_id": "m1", "idempotency_key": 5}', "m1", None),
        (b'{"message_id": 5, "idempotency_key": "k1"}', None, "k1"),
        (b'{"message_id": "  ", "idempotency_key": ""}', None, None),
        (b'{"message_id": null, "idempotency_key": {"a": "b"}}', None, None),
        (b'{"message_id": "m1", "more": [1, {"message_id": "m2"}]}', "m1", None),
        (b'{"message_id": "m1", "more": "\xff"}', "m1", None),
        (b'{"message_id": "m1", "publish_time": "2026-01', None, None),
        (b'{"message_id": "m1", "publish_time": 1e999}', None, None),
        ('{"message_id": "é 🦊"}'.encode(), "é 🦊", None),
        (b'{"message_id": "\\ud800"}', None, None),
        (b'{"message_id": "m1", "publish_time": ' + b"[" * 300_000 + b"]" * 300_000 + b"}", None, None),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_dead_letter_knows_what_can_be_read_of_it(
    content: bytes, message_id: str | None, idempotency_key: str | None
) -> None:
    letter = dead_letter(content)
    assert (letter.message_id, letter.idempotency_key) == (message_id, idempotency_key)


@pytest.mark.parametrize(
    ("publish_time", "day"),
    [
        ("2026-01-30T12:00:00Z", date(2026, 1, 30)),
        ("2026-01-30", date(2026, 1, 30)),
        ("2026-01-30T23:00:00-02:00", date(2026, 1, 31)),
        ("2026-01-30T01:00:00+02:00", date(2026, 1, 29)),
        ("2025-01-01T00:00:00Z", FIRST_DAY),
        ("2024-12-31T23:59:59Z", TODAY),
        ("1970-01-01", TODAY),
        # RAW has rows of up to a day ahead.
        ("2026-02-01T08:15:00Z", date(2026, 2, 1)),
        ("2026-02-01T08:15:01Z", TODAY),
        ("2999-01-01", TODAY),
        ("0001-01-01T00:00:00+14:00", TODAY),
        ("9999-12-31T23:59:59-14:00", TODAY),
        ("2026-02-30", TODAY),
        ("yesterday", TODAY),
        ("", TODAY),
        (1769774400, TODAY),
        (None, TODAY),
        (["2026-01-30"], TODAY),
    ],
)
def test_a_dead_letter_counts_on_its_publish_day_if_raw_could_have_it_there(publish_time: object, day: date) -> None:
    # What is wrong with it is its message_id, if nothing else is.
    assert dead_letter(body(5, publish_time)).day == day


def test_the_day_of_reception_is_that_of_utc() -> None:
    east = datetime.fromisoformat("2026-02-01T01:00:00+14:00")
    (letter,) = process([message(b"")], FIRST_DAY, east).dead_letters
    assert letter.day == date(2026, 1, 31)


def test_a_clock_that_stands_before_the_first_day_makes_no_day_before_it() -> None:
    (letter,) = process([message(body())], FIRST_DAY, datetime(1970, 1, 1, tzinfo=UTC)).dead_letters
    assert letter.day == FIRST_DAY


# What fails for an unknown reason


def refuse_poison(line: bytes, first_day: date, now: datetime) -> Envelope:
    """A parser with a bug that some messages meet."""
    if b"poison" in line:
        raise KeyError("a bug")
    return parse_envelope(line, first_day, now)


@pytest.mark.parametrize("receives", range(1, MOST_RECEIVES))
def test_poison_goes_back_until_it_has_come_too_often(receives: int) -> None:
    done = processed(body("m1"), body("poison"), b"no envelope", parse=refuse_poison, receives=receives)
    assert [record.envelope.message_id for record in done.records] == ["m1"]
    assert [(failure.message.handle, failure.reason) for failure in done.failures] == [("1", "KeyError: 'a bug'")]
    assert [letter.fault for letter in done.dead_letters] == [Fault.MALFORMED]


@pytest.mark.parametrize("receives", [MOST_RECEIVES, MOST_RECEIVES + 1, 100])
def test_poison_that_has_come_too_often_is_a_dead_letter(receives: int) -> None:
    content = body("poison", "2026-01-15T00:00:00Z", idempotency_key="k1")
    done = processed(body("m1"), content, parse=refuse_poison, receives=receives)
    (letter,) = done.dead_letters
    expected = DeadLetter(
        message(content, "1", receives), Fault.UNKNOWN, "KeyError: 'a bug'", date(2026, 1, 15), "poison", "k1"
    )
    assert letter == expected
    assert (len(done.records), done.failures) == (1, [])


def test_where_too_much_is_poison_the_rest_goes_back_however_often_it_has_come() -> None:
    done = processed(*[body("poison")] * 100, body("m1"), parse=refuse_poison, receives=MOST_RECEIVES)
    assert len(done.dead_letters) == MOST_POISON
    assert [failure.reason for failure in done.failures] == ["Too many messages of its batch failed before it."] * (
        101 - MOST_POISON
    )


def test_a_transient_fault_is_raised_for_the_whole_batch() -> None:
    def parse(line: bytes, first_day: date, now: datetime) -> Envelope:
        raise TimeoutError("The outside does not answer.")

    with pytest.raises(TimeoutError):
        processed(body("m1"), parse=parse)


def test_poison_of_later_work_counts_on_its_publish_day_too() -> None:
    poison = message(body("m1", "2026-01-15T00:00:00Z"), receives=MOST_RECEIVES)
    done = Processed()
    done.fail([(poison, ValueError("x" * 5000))], [message(body("m2"))], FIRST_DAY, NOW)
    (letter,) = done.dead_letters
    assert (letter.day, letter.message_id, len(letter.reason)) == (date(2026, 1, 15), "m1", 1000)
    assert [failure.message for failure in done.failures] == [message(body("m2"))]


# Dead letters have a name


def test_a_dead_letter_has_the_same_name_at_each_delivery() -> None:
    first = DeadLetter(message(b"x"), Fault.MALFORMED, "No.", TODAY)
    again = DeadLetter(message(b"x", receives=4), Fault.UNKNOWN, "Why?", FIRST_DAY, "m1", "k1")
    assert first.dead_letter_id == again.dead_letter_id
    assert len(first.dead_letter_id) == 32
    assert set(first.dead_letter_id) <= set("0123456789abcdef")


def test_another_message_has_another_name() -> None:
    messages = [
        QueueMessage("orders", "h1", b"x"),
        QueueMessage("orders", "h2", b"x"),
        QueueMessage("orders", "h1", b"y"),
        QueueMessage("orders", "h1", b""),
        QueueMessage("events", "h1", b"x"),
        QueueMessage("orders", "h1x", b""),
        QueueMessage("ordersh", "1", b"x"),
        QueueMessage("orders", "\udcff", b"x"),
    ]
    names = {DeadLetter(each, Fault.MALFORMED, "No.", TODAY).dead_letter_id for each in messages}
    assert len(names) == len(messages)


# Whatever comes

ENVELOPES = st.builds(
    body,
    st.sampled_from(["m1", "é", "", " ", 5, None, ["m1"]]),
    st.sampled_from(["2026-01-30T12:00:00Z", "2025-01-01", "2024-01-01", "2030-01-01", "never", "", 5, None]),
    st.sampled_from([{"a": 1}, "text", [1], 5, None]),
    idempotency_key=st.sampled_from(["k1", "", None, 5]),
)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """An envelope with something cut out of it or put into it."""
    content = draw(ENVELOPES)
    begin = draw(st.integers(0, len(content)))
    end = draw(st.integers(begin, min(len(content), begin + 20)))
    return content[:begin] + draw(st.binary(max_size=4)) + content[end:]


MESSAGES = st.lists(
    st.tuples(st.one_of(st.binary(max_size=50), ENVELOPES, mutated()), st.integers(1, 7)), max_size=20
).map(lambda found: [message(content, str(number), times) for number, (content, times) in enumerate(found)])


def moody_parse(line: bytes, first_day: date, now: datetime) -> Envelope:
    """A parser with many bugs."""
    if sum(line) % 5 == 0:
        raise KeyError(line[:10])
    return parse_envelope(line, first_day, now)


def fates(done: Processed) -> Counter[QueueMessage]:
    return Counter(
        [record.message for record in done.records]
        + [failure.message for failure in done.failures]
        + [letter.message for letter in done.dead_letters]
    )


@given(MESSAGES)
def test_every_message_has_exactly_one_fate(messages: Sequence[QueueMessage]) -> None:
    done = process(messages, FIRST_DAY, NOW)
    assert fates(done) == Counter(messages)
    assert done.failures == []
    for record in done.records:
        assert FIRST_DAY <= record.envelope.publish_time.date() <= TODAY + timedelta(days=1)
    for letter in done.dead_letters:
        assert FIRST_DAY <= letter.day <= TODAY + timedelta(days=1)
        assert letter.fault is Fault.MALFORMED
        assert letter.reason


@given(MESSAGES)
def test_every_message_has_exactly_one_fate_where_the_reading_itself_fails(messages: Sequence[QueueMessage]) -> None:
    done = process(messages, FIRST_DAY, NOW, moody_parse)
    assert fates(done) == Counter(messages)
    assert not [each for each in done.dead_letters if each.fault is Fault.UNKNOWN and each.message.receives < 5]


@given(MESSAGES)
def test_the_same_batch_becomes_the_same(messages: Sequence[QueueMessage]) -> None:
    before = list(messages)
    assert process(messages, FIRST_DAY, NOW, moody_parse) == process(messages, FIRST_DAY, NOW, moody_parse)
    assert messages == before


@given(MESSAGES)
def test_a_message_is_judged_alike_in_any_batch(messages: Sequence[QueueMessage]) -> None:
    together = process(messages, FIRST_DAY, NOW)
    alone = [process([each], FIRST_DAY, NOW) for each in messages]
    assert together.records == [record for done in alone for record in done.records]
    assert together.dead_letters == [letter for done in alone for letter in done.dead_letters]
