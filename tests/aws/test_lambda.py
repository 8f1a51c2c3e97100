"""The way through a Firehose: the Lambda behind the queues, and the transform, on a server that speaks like AWS."""

import json
import subprocess
import sys
import time
from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from hashlib import md5
from typing import Any
from uuid import uuid4

import boto3
import pyarrow as pa
import pytest

from leanops.errors import SettingsInvalid, TopicNameInvalid
from leanops.home import Home
from leanops.ingestion.breaker import TRIAL_MESSAGES, Breaker, Circuit
from leanops.raw.dead_letters import DEAD_LETTERS, DEAD_LETTERS_SCHEMA, ensure_dead_letters_table, find_dead_letters
from leanops.raw.files import ARROW_SCHEMA
from leanops.raw.landing import land_file
from leanops.raw.numbering import number_rows
from leanops.raw.table import RAW_SCHEMA, ensure_raw_table
from leanops.settings import Settings
from leanops_lambda import firehose, ingest, transform
from leanops_resources import s3
from leanops_resources.catalog import LocalCatalog
from leanops_resources.dlq_archive import dlq_archive
from leanops_resources.state import dynamodb_table
from leanops_resources.state.dynamodb import DynamoStateStore
from tests.aws.conftest import Server
from tests.faulty_proxy import Answer, Proxy, Request, cuts_the_answer_off, proxy_to, refuses, refuses_records

STREAM, ARRIVED, LETTERS, STATE = "leanops-raw", "arrived", "letters", "state"
ARN = "arn:aws:sqs:eu-central-1:123456789012:shop-orders"
ARRIVAL = 1_772_000_000_123


@dataclass
class Context:
    """What Lambda says of an invocation."""

    seconds: float = 30
    aws_request_id: str = "8f3c2c9e-invocation"

    def get_remaining_time_in_millis(self) -> int:
        return int(self.seconds * 1000)


IN_A_HURRY = Context(seconds=ingest.RESERVE_SECONDS + 1)


@pytest.fixture(scope="module")
def proxy_of_module(aws_server: Server) -> Iterator[Proxy]:
    clients = (firehose._client, dynamodb_table._client, s3.client)
    for client in clients:
        client.cache_clear()
    with proxy_to(aws_server.url) as proxy:
        yield proxy
    for client in clients:
        client.cache_clear()


@dataclass
class Aws:
    """The deployment, as tests look at it."""

    proxy: Proxy
    s3: Any

    @property
    def store(self) -> DynamoStateStore:
        return DynamoStateStore(STATE)

    def forwarded(self) -> list[bytes]:
        """What the Firehose has taken, record by record."""
        found = self.s3.list_objects_v2(Bucket=ARRIVED).get("Contents", ())
        return [
            line
            for each in found
            for line in self.s3.get_object(Bucket=ARRIVED, Key=each["Key"])["Body"].read().splitlines(keepends=True)
        ]

    def forwarded_ids(self) -> list[str]:
        """The messages that the Firehose has taken as they came, by their handles."""
        documents = map(json.loads, self.forwarded())
        return sorted(document["messageId"] for document in documents if ingest.DEAD_LETTER not in document)

    def letters(self) -> list[dict[str, Any]]:
        """The rows of dead letters that the Firehose has taken."""
        documents = map(json.loads, self.forwarded())
        return [document[ingest.DEAD_LETTER] for document in documents if ingest.DEAD_LETTER in document]


@pytest.fixture(scope="module")
def clients(aws_server: Server) -> dict[str, Any]:
    session = boto3.Session("key", "secret", region_name="us-east-1")
    return {name: session.client(name, endpoint_url=aws_server.url) for name in ("s3", "firehose")}


@pytest.fixture
def deployed(
    aws: Server, proxy_of_module: Proxy, clients: dict[str, Any], home: Home, monkeypatch: pytest.MonkeyPatch
) -> Aws:
    """Buckets, state and a Firehose that keeps what was put into it in a bucket."""
    proxy_of_module.forget()
    monkeypatch.setenv("AWS_ENDPOINT_URL_FIREHOSE", proxy_of_module.url)
    monkeypatch.setenv("LEANOPS_QUEUE_PREFIX", "shop-")
    monkeypatch.setenv("LEANOPS_FIREHOSE", STREAM)
    monkeypatch.setenv("LEANOPS_STATE", f"dynamodb:{STATE}")
    monkeypatch.setenv("LEANOPS_DLQ_ARCHIVE", f"s3://{LETTERS}/dead")
    for bucket in (ARRIVED, LETTERS):
        clients["s3"].create_bucket(Bucket=bucket)
    clients["firehose"].create_delivery_stream(
        DeliveryStreamName=STREAM,
        ExtendedS3DestinationConfiguration={
            "RoleARN": "arn:aws:iam::123456789012:role/firehose",
            "BucketARN": f"arn:aws:s3:::{ARRIVED}",
        },
    )
    DynamoStateStore(STATE).create_table()
    return Aws(proxy_of_module, clients["s3"])


def envelope(message_id: str, payload: str = "{}", **fields: object) -> str:
    fields = {"message_id": message_id, "publish_time": "2026-01-31T08:15:00.123456+01:00", **fields}
    return f'{json.dumps(fields)[:-1]}, "payload": {payload}}}'


def sqs_record(body: str, arn: str = ARN, receives: int = 1, message_id: str | None = None) -> dict[str, Any]:
    """A record of an event, as AWS sends it."""
    return {
        "messageId": message_id or str(uuid4()),
        "receiptHandle": "AQEBwJnKyrHigUMZj6rYigCgxlaS3SLy0a" * 8,
        "body": body,
        "attributes": {
            "ApproximateReceiveCount": str(receives),
            "SentTimestamp": "1545082649183",
            "SenderId": "AIDAIENQZJOLO23YVJ4VO",
            "ApproximateFirstReceiveTimestamp": "1545082649185",
        },
        "messageAttributes": {},
        "md5OfBody": md5(body.encode("utf-8", "surrogatepass")).hexdigest(),
        "eventSource": "aws:sqs",
        "eventSourceARN": arn,
        "awsRegion": "eu-central-1",
    }


def invoke(records: Sequence[dict[str, Any]], context: Context | None = None) -> list[str]:
    """The messages that go back to their queue."""
    answer = ingest.handler({"Records": list(records)}, context or Context())
    assert answer.keys() == {"batchItemFailures"}
    assert all(item.keys() == {"itemIdentifier"} for item in answer["batchItemFailures"])
    return sorted(item["itemIdentifier"] for item in answer["batchItemFailures"])


def ids(records: Sequence[dict[str, Any]]) -> list[str]:
    return sorted(record["messageId"] for record in records)


def good(count: int) -> list[dict[str, Any]]:
    return [sqs_record(envelope(f"m{number}")) for number in range(count)]


def firehose_event(lines: Sequence[bytes]) -> dict[str, Any]:
    """An event for a transform, as AWS sends it."""
    return {
        "invocationId": "invocation-of-the-transform",
        "deliveryStreamArn": f"arn:aws:firehose:eu-central-1:123456789012:deliverystream/{STREAM}",
        "region": "eu-central-1",
        "records": [
            {
                "recordId": f"{place:056}",
                "approximateArrivalTimestamp": ARRIVAL,
                "data": b64encode(line).decode(),
            }
            for place, line in enumerate(lines)
        ],
    }


def transformed(lines: Sequence[bytes]) -> list[dict[str, Any]]:
    event = firehose_event(lines)
    answer: list[dict[str, Any]] = json.loads(json.dumps(transform.handler(event, Context())))["records"]
    assert [each["recordId"] for each in answer] == [record["recordId"] for record in event["records"]]
    return answer


def row_of(answer: dict[str, Any]) -> dict[str, Any]:
    data = b64decode(answer["data"])
    assert (answer["result"], data.count(b"\n"), data[-1:]) == ("Ok", 1, b"\n")
    row: dict[str, Any] = json.loads(data)
    return row


def table_of(answer: dict[str, Any]) -> tuple[str, str]:
    routing = answer["metadata"]["otfMetadata"]
    assert routing.keys() == {"destinationDatabaseName", "destinationTableName", "operation"}
    assert routing["operation"] == "insert"
    return routing["destinationDatabaseName"], routing["destinationTableName"]


# The Lambda behind the queues


def test_good_messages_are_forwarded_as_they_came_and_nothing_goes_back(deployed: Aws) -> None:
    records = [
        sqs_record(envelope("m1", '{"n": 1.10, "text": "Größe 🎈"}')),
        sqs_record(envelope("m2", json.dumps("no JSON\n")), receives=3),
    ]
    assert invoke(records) == []
    assert [json.loads(line) for line in deployed.forwarded()] == [
        {
            "messageId": record["messageId"],
            "body": record["body"],
            "eventSourceARN": ARN,
            "attributes": {"ApproximateReceiveCount": receives},
        }
        for record, receives in zip(records, ("1", "3"), strict=True)
    ]
    assert deployed.letters() == []
    assert deployed.store.breaker("orders").circuit is Circuit.CLOSED


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("no envelope", "malformed"),
        ("", "truncated"),
        ('{"message_id": "\ud800", "publish_time": "2026-01-31T08:15:00Z", "payload": {}}', "not UTF-8"),
        (envelope("m", publish_time="yesterday"), "publish_time"),
        (envelope(" "), "message_id"),
    ],
)
def test_a_malformed_message_is_a_dead_letter_at_once_and_does_not_go_back(
    body: str, reason: str, deployed: Aws
) -> None:
    letter, fine = sqs_record(body), sqs_record(envelope("fine"))
    assert invoke([letter, fine]) == []
    assert deployed.forwarded_ids() == [fine["messageId"]]
    (row,) = deployed.letters()
    assert (row["topic_name"], row["source"], row["handle"]) == ("orders", "shop-orders", letter["messageId"])
    assert (row["fault"], row["receives"], row["delivery_id"]) == ("malformed", 1, Context().aws_request_id)
    assert reason in row["reason"]
    body_kept = dlq_archive(f"s3://{LETTERS}/dead").get(row["body_archive"])
    assert body_kept == body.encode("utf-8", "surrogatepass")
    (error,) = deployed.store.open_errors("orders")
    assert (error.error_id, error.kind, error.message) == (row["dead_letter_id"], "malformed", row["reason"])


def test_a_batch_may_hold_messages_of_several_queues(deployed: Aws) -> None:
    records = [
        sqs_record(envelope("m1")),
        sqs_record(envelope("m2"), arn=ARN.replace("orders", "events.fifo")),
        sqs_record("x", arn=ARN.replace("orders", "payments")),
    ]
    assert invoke(records) == []
    assert len(deployed.forwarded_ids()) == 2
    assert [row["topic_name"] for row in deployed.letters()] == ["payments"]


def test_an_empty_batch_has_no_failures(deployed: Aws) -> None:
    assert invoke([]) == []


def test_records_that_the_firehose_has_no_room_for_are_put_again(deployed: Aws) -> None:
    records = good(5)
    deployed.proxy.fail("PutRecordBatch", refuses_records(lambda data: b"m1" in data, "ServiceUnavailableException"))
    assert invoke(records) == []
    assert deployed.forwarded_ids() == ids(records)
    assert [len(asked["Records"]) for asked in deployed.proxy.asked("PutRecordBatch")] == [5, 1]


def test_records_that_there_is_never_room_for_go_back_alone_and_in_time(deployed: Aws) -> None:
    records = good(5)
    busy = refuses_records(lambda data: b"m1" in data, "ServiceUnavailableException")
    deployed.proxy.fail("PutRecordBatch", busy, times=100)
    began = time.monotonic()
    assert invoke(records, IN_A_HURRY) == [records[1]["messageId"]]
    assert time.monotonic() - began < IN_A_HURRY.seconds
    assert deployed.forwarded_ids() == ids(records[:1] + records[2:])


@pytest.mark.parametrize("fault", ["throttled", "broken", "cuts off"])
def test_a_call_that_fails_for_a_moment_is_made_again(fault: str, deployed: Aws) -> None:
    acts = {
        "throttled": refuses("ServiceUnavailableException", 503),
        "broken": refuses("InternalFailure", 500),
        "cuts off": cuts_the_answer_off,
    }
    records = good(3)
    deployed.proxy.fail("PutRecordBatch", acts[fault], times=2)
    assert invoke(records) == []
    assert set(deployed.forwarded_ids()) == set(ids(records))


def test_when_the_firehose_does_not_answer_all_goes_back_in_time(
    deployed: Aws, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(firehose, "_PATIENCE", firehose._PATIENCE.merge(firehose.Config(read_timeout=1)))
    firehose._client.cache_clear()
    records = good(3)
    deployed.proxy.fail("PutRecordBatch", deployed.proxy.hangs, times=100)
    assert invoke(records, IN_A_HURRY) == ids(records)
    firehose._client.cache_clear()


def refuses_calls_with(poison: bytes) -> Any:
    """All records of a call are refused because of one of them."""

    def act(request: Request) -> Answer:
        if any(poison in b64decode(record["Data"]) for record in request.body["Records"]):
            return Answer(400, json.dumps({"__type": "InvalidArgumentException", "message": "A record."}).encode())
        return request.send(request.body)

    return act


def test_a_poison_message_is_found_and_goes_back_alone(deployed: Aws) -> None:
    records = good(20)
    deployed.proxy.fail("PutRecordBatch", refuses_calls_with(b'"m7'), times=100)
    assert invoke(records) == [records[7]["messageId"]]
    assert deployed.forwarded_ids() == ids(records[:7] + records[8:])
    assert deployed.letters() == []


def test_a_poison_message_that_has_come_too_often_is_a_dead_letter(deployed: Aws) -> None:
    records = [*good(3), sqs_record(envelope("poison"), receives=5)]
    deployed.proxy.fail("PutRecordBatch", refuses_calls_with(b'\\"poison'), times=100)
    assert invoke(records) == []
    assert deployed.forwarded_ids() == ids(records[:3])
    (row,) = deployed.letters()
    assert (row["message_id"], row["fault"], row["receives"]) == ("poison", "unknown", 5)
    assert "InvalidArgumentException" in row["reason"]


def test_a_record_that_is_refused_for_an_unknown_reason_goes_back_and_is_not_put_again(deployed: Aws) -> None:
    records = good(3)
    deployed.proxy.fail("PutRecordBatch", refuses_records(lambda data: b"m1" in data, "Odd"), times=100)
    assert invoke(records) == [records[1]["messageId"]]
    assert len(deployed.proxy.asked("PutRecordBatch")) == 1


def test_without_its_firehose_everything_goes_back_however_often_it_has_come(
    deployed: Aws, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEANOPS_FIREHOSE", "gone")
    records = [*good(20), sqs_record("malformed"), sqs_record(envelope("old"), receives=9)]
    assert invoke(records) == ids(records)
    assert deployed.forwarded() == []


def test_without_its_archive_a_dead_letter_goes_back_and_the_others_do_not(
    deployed: Aws, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEANOPS_DLQ_ARCHIVE", "s3://no-such-bucket/dead")
    records = [sqs_record("malformed"), *good(2)]
    assert invoke(records) == [records[0]["messageId"]]
    assert deployed.forwarded_ids() == ids(records[1:])
    assert deployed.letters() == []


def test_no_call_holds_more_than_a_firehose_takes(deployed: Aws) -> None:
    records = [*good(1_100), *(sqs_record(envelope(f"l{i}", json.dumps("x" * 250_000))) for i in range(20))]
    assert invoke(records) == []
    calls = [[b64decode(each["Data"]) for each in asked["Records"]] for asked in deployed.proxy.asked("PutRecordBatch")]
    assert max(map(len, calls)) == 500
    assert max(sum(map(len, call)) * 4 // 3 for call in calls) < 4 * 1024 * 1024
    assert deployed.forwarded_ids() == ids(records)


# The circuit breaker


def test_a_topic_of_which_most_fails_is_stopped(deployed: Aws) -> None:
    records = [sqs_record("malformed") for _ in range(30)]
    assert invoke(records) == []
    assert deployed.store.breaker("orders").circuit is Circuit.OPEN
    asked = len(deployed.proxy.requests)
    again = good(3)
    assert invoke(again) == ids(again)
    assert len(deployed.proxy.requests) == asked
    other = [sqs_record(envelope("m1"), arn=ARN.replace("orders", "events"))]
    assert invoke(other) == []


def test_after_its_pause_a_trial_batch_passes_and_closes_the_circuit(deployed: Aws) -> None:
    opened = Breaker(Circuit.OPEN, opened=datetime.now(UTC) - timedelta(minutes=2), reason="Enough.")
    deployed.store.save_breaker("orders", opened)
    records = good(TRIAL_MESSAGES + 5)
    assert invoke(records) == ids(records[TRIAL_MESSAGES:])
    assert deployed.forwarded_ids() == ids(records[:TRIAL_MESSAGES])
    assert deployed.store.breaker("orders").circuit is Circuit.CLOSED


# Wrong surroundings


def test_without_the_name_of_a_firehose_the_setting_is_named(deployed: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LEANOPS_FIREHOSE")
    with pytest.raises(SettingsInvalid, match="LEANOPS_FIREHOSE"):
        invoke(good(1))


def test_a_queue_of_no_topic_is_an_error_of_the_whole_batch(deployed: Aws) -> None:
    with pytest.raises(TopicNameInvalid, match="Orders"):
        invoke([sqs_record(envelope("m1"), arn=ARN.replace("orders", "Orders"))])


def test_the_lambdas_need_neither_dagster_nor_spark_nor_iceberg() -> None:
    heavy = ("dagster", "pyspark", "pyiceberg", "pyarrow", "pandas")
    script = f"""
import sys
import leanops_lambda.ingest, leanops_lambda.transform
import leanops_resources.state.dynamodb, leanops_resources.s3_dlq_archive
print([name for name in {heavy} if name in sys.modules])
"""
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert said.stdout.strip() == "[]"


# The transform inside the Firehose


def test_a_message_becomes_a_row_of_its_topics_raw_table(deployed: Aws) -> None:
    payload = '{"n": 123456789012345678901234567890, "d": 1.10, "text": "Größe \\u2028 🎈"}'
    invoke([sqs_record(envelope("m1", payload, idempotency_key="k1", ingestion_ts=1_740_830_400))])
    (answer,) = transformed(deployed.forwarded())
    assert table_of(answer) == ("iceberg_raw_db", "orders_staging")
    assert row_of(answer) == {
        "message_id": "m1",
        "topic_name": "orders",
        "json_payload": payload,
        "ingestion_ts": 1_740_830_400,
        "publish_time": 1_769_843_700_123_456,
        "idempotency_key": "k1",
    }


def test_a_message_without_a_time_of_its_own_has_come_when_it_came_to_the_firehose(deployed: Aws) -> None:
    invoke(good(1))
    (answer,) = transformed(deployed.forwarded())
    assert row_of(answer)["ingestion_ts"] == ARRIVAL // 1000
    assert row_of(answer)["idempotency_key"] is None


def test_a_dead_letter_becomes_a_row_of_the_table_of_dead_letters(deployed: Aws) -> None:
    invoke([sqs_record("malformed")])
    (answer,) = transformed(deployed.forwarded())
    assert table_of(answer) == DEAD_LETTERS == transform.DEAD_LETTERS
    row = row_of(answer)
    assert row == deployed.letters()[0]
    assert row["day"] == (datetime.now(UTC).date() - date(1970, 1, 1)).days
    assert abs(row["received"] / 1_000_000 - time.time()) < 60


def test_rows_have_only_columns_of_their_tables(deployed: Aws) -> None:
    invoke([sqs_record("malformed"), sqs_record(envelope("m1"))])
    rows = {table_of(answer): row_of(answer) for answer in transformed(deployed.forwarded())}
    good_row, letter = rows["iceberg_raw_db", "orders_staging"], rows[DEAD_LETTERS]
    assert good_row.keys() == {field.name for field in RAW_SCHEMA.fields} - {"landing_seq"}
    assert letter.keys() < {field.name for field in DEAD_LETTERS_SCHEMA.fields}


def test_a_message_that_comes_past_the_queues_is_judged_in_the_same_way(deployed: Aws) -> None:
    line = json.dumps({"messageId": "h1", "body": "malformed", "eventSourceARN": ARN}).encode()
    (answer,) = transformed([line])
    row = row_of(answer)
    assert table_of(answer) == DEAD_LETTERS
    assert (row["handle"], row["delivery_id"]) == ("h1", "invocation-of-the-transform")
    assert dlq_archive(f"s3://{LETTERS}/dead").get(row["body_archive"]) == b"malformed"
    assert [error.error_id for error in deployed.store.open_errors()] == [row["dead_letter_id"]]


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"no JSON",
        b"\xff\xfe",
        b"[]",
        b"17",
        b"{}",
        b'{"messageId": "h1", "body": 1, "eventSourceARN": "%s"}' % ARN.encode(),
        b'{"messageId": "h1", "body": "{}", "eventSourceARN": "arn:aws:sqs:x:1:shop-No Topic"}',
    ],
)
def test_a_record_that_is_no_message_is_left_to_the_firehoses_error_bucket(line: bytes, deployed: Aws) -> None:
    invoke(good(1))
    answers = transformed([line, *deployed.forwarded()])
    assert [answer["result"] for answer in answers] == ["ProcessingFailed", "Ok"]


def test_a_message_that_was_forwarded_twice_is_two_rows(deployed: Aws) -> None:
    records = good(1)
    invoke(records)
    invoke(records)
    answers = transformed(deployed.forwarded())
    assert [row_of(answer)["message_id"] for answer in answers] == ["m0", "m0"]


def test_rows_that_do_not_fit_into_the_answer_come_again(deployed: Aws) -> None:
    lines = [ingest._as_it_came(sqs_record(envelope(f"m{number}", json.dumps("x" * 250_000)))) for number in range(24)]
    event = firehose_event(lines)
    answer = transform.handler(event, Context())
    assert len(json.dumps(answer)) < 6 * 1024 * 1024
    results = [each["result"] for each in answer["records"]]
    assert set(results) == {"Ok", "Dropped"}
    assert results.count("Ok") >= 17
    assert sorted(deployed.forwarded()) == sorted(
        line for line, result in zip(lines, results, strict=True) if result == "Dropped"
    )


def test_rows_that_can_neither_be_answered_nor_put_back_are_left_to_the_error_bucket(
    deployed: Aws, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LEANOPS_FIREHOSE")
    lines = [ingest._as_it_came(sqs_record(envelope("m", json.dumps("x" * 250_000)))) for _ in range(24)]
    results = [each["result"] for each in transformed(lines)]
    assert set(results) == {"Ok", "ProcessingFailed"}
    assert deployed.forwarded() == []


# Both ways


def as_a_firehose_writes(rows: Sequence[dict[str, Any]], schema: pa.Schema) -> pa.Table:
    """The rows with the types of their table: numbers are moments and days."""
    given = [field for field in schema if any(field.name in row for row in rows)]
    columns = [
        pa.array([row.get(field.name) for row in rows], pa.int64()).cast(field.type)
        if pa.types.is_timestamp(field.type)
        else pa.array([row.get(field.name) for row in rows], pa.int32()).cast(field.type)
        if pa.types.is_date(field.type)
        else pa.array([row.get(field.name) for row in rows], field.type)
        for field in given
    ]
    return pa.Table.from_arrays(columns, schema=pa.schema(given))


def test_a_message_is_the_same_row_whichever_way_it_took(deployed: Aws, home: Home) -> None:
    catalog = LocalCatalog(home).load()
    bodies = [
        envelope("m1", '{"n": 1.10, "text": "Größe"}', idempotency_key="k1", ingestion_ts=1_740_830_400),
        envelope("m2", json.dumps('{"quoted": true}'), ingestion_ts=1_740_830_401),
        envelope("m3", publish_time="2026-02-28T23:59:59.999999Z", ingestion_ts=1_740_830_402),
    ]
    file = home.path / "envelopes.ndjson"
    file.write_text("\n".join(bodies), "utf-8")
    land_file(catalog, "orders", file, Settings.load().first_day)

    events = ensure_raw_table(catalog, "events")
    invoke([sqs_record(body, arn=ARN.replace("orders", "events")) for body in bodies])
    answers = transformed(deployed.forwarded())
    assert {table_of(answer) for answer in answers} == {events.name()}
    events.append(as_a_firehose_writes([row_of(answer) for answer in answers], ARROW_SCHEMA))
    assert number_rows(events) == 3

    def rows(topic: str) -> list[dict[str, Any]]:
        found = ensure_raw_table(catalog, topic).scan().to_arrow().drop_columns(["topic_name"]).to_pylist()
        return sorted(found, key=lambda row: row["landing_seq"])

    assert rows("events") == rows("orders")


def test_a_dead_letter_that_came_through_the_firehose_is_found_among_the_others(deployed: Aws, home: Home) -> None:
    catalog = LocalCatalog(home).load()
    invoke([sqs_record("malformed")])
    (answer,) = transformed(deployed.forwarded())
    table = ensure_dead_letters_table(catalog)
    table.append(as_a_firehose_writes([row_of(answer)], table.schema().as_arrow()))
    (row,) = find_dead_letters(catalog, "orders", only_open=True)
    assert (row["fault"], row["day"], row["replays"]) == ("malformed", datetime.now(UTC).date(), 0)
    assert row["dead_letter_id"] == deployed.letters()[0]["dead_letter_id"]
