"""The whole way on AWS, by real clients: queues, a bucket for dead letters, state in DynamoDB; and RAW here."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pytest

from leanops.home import Home
from leanops.names import Layer, table
from leanops.raw.dead_letters import find_dead_letters
from leanops.raw.files import ARROW_SCHEMA
from leanops.raw.table import ensure_raw_table
from leanops_assets.raw.queue_ledger import queue_accounts
from leanops_resources.catalog import LocalCatalog
from leanops_resources.sources import sqs
from leanops_resources.state.dynamodb import DynamoStateStore
from tests.aws.conftest import Server
from tests.conftest import Said
from tests.draining import envelope

Leanops = Callable[..., Said]
PREFIX, LETTERS, STATE = "shop-", "letters", "leanops-state"
DAY = date(2025, 3, 1)


@pytest.fixture
def deployed(aws: Server, home: Home, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    sqs._client.cache_clear()
    boto3.client("s3").create_bucket(Bucket=LETTERS)
    DynamoStateStore(STATE).create_table()
    monkeypatch.setenv("LEANOPS_QUEUE_PREFIX", PREFIX)
    monkeypatch.setenv("LEANOPS_DLQ_ARCHIVE", f"s3://{LETTERS}/dead")
    monkeypatch.setenv("LEANOPS_STATE", f"dynamodb:{STATE}")
    yield home
    sqs._client.cache_clear()


def send(topic: str, *bodies: bytes) -> str:
    client = boto3.client("sqs")
    url: str = client.create_queue(QueueName=PREFIX + topic)["QueueUrl"]
    for body in bodies:
        client.send_message(QueueUrl=url, MessageBody=body.decode())
    return url


def waiting(url: str, hidden: bool = False) -> int:
    """How many messages a queue holds, those in somebody's hands included or not."""
    names = ["ApproximateNumberOfMessages", *(["ApproximateNumberOfMessagesNotVisible"] if hidden else ())]
    found = boto3.client("sqs").get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
    return sum(map(int, found.values()))


def rows_of(said: Said) -> dict[str, dict[str, Any]]:
    return {row["topic"]: row for row in map(json.loads, said.out.splitlines())}


def landed(home: Home, topic: str) -> Counter[str]:
    raw = LocalCatalog(home).load().load_table(table(Layer.RAW, topic))
    return Counter(raw.scan().to_arrow()["message_id"].to_pylist())


def test_messages_go_from_their_queues_to_raw_and_dead_letters_to_a_bucket_and_back(
    deployed: Home, leanops: Leanops, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bad = b'{"message_id": "b1", "publish_time": "never", "payload": {}}'
    orders = send("orders", *(envelope(f"o{number}", note="x" * 100) for number in range(25)), bad)
    large = send("payments", envelope("huge", text="x" * 250_000), envelope("huge", text="x" * 250_000))

    # Cut off between commit and deletion: nothing is lost, and what comes again is a copy.
    receipts: list[tuple[str, str]] = []

    def cut_off(source: sqs.SqsSource, _: object) -> int:
        receipts.extend((source.name, receipt) for receipt in source._receipts.values())
        raise ConnectionError("cut off")

    with monkeypatch.context() as patch:
        patch.setattr(sqs.SqsSource, "delete", cut_off)
        said = leanops("drain", "--json")
    first = rows_of(said)
    assert said.exit_code == 1
    assert (first["orders"]["landed"], first["orders"]["dead_letters"]) == (25, 1)
    assert first["orders"]["said"] == "ConnectionError: cut off"
    assert waiting(orders, hidden=True) == 26
    # What happens by itself when they have been hidden for long enough.
    for queue, receipt in receipts:
        url = orders if queue.endswith("orders") else large
        boto3.client("sqs").change_message_visibility(QueueUrl=url, ReceiptHandle=receipt, VisibilityTimeout=0)
    assert waiting(orders) == 26
    second = rows_of(leanops("drain", "--json"))
    assert (second["orders"]["landed"], second["orders"]["dead_letters"]) == (25, 0)
    assert waiting(orders, hidden=True) == waiting(large, hidden=True) == 0
    assert landed(deployed, "orders") == Counter({f"o{number}": 2 for number in range(25)})
    assert set(landed(deployed, "payments")) == {"huge"}

    # The body is in the bucket, the error in DynamoDB, the row in Iceberg.
    catalog, store = LocalCatalog(deployed).load(), DynamoStateStore(STATE)
    (letter,) = find_dead_letters(catalog, "orders")
    bucket, _, key = letter["body_archive"].removeprefix("s3://").partition("/")
    assert bucket == LETTERS
    assert boto3.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read() == bad
    assert [error.error_id for error in store.open_errors("orders")] == [letter["dead_letter_id"]]

    # It is mended, and replayed once.
    mended = tmp_path / "mended.json"
    mended.write_bytes(envelope("b1"))
    for _ in range(2):
        said = leanops("dlq", "replay", letter["dead_letter_id"], "--with", mended)
        assert said.exit_code == 0, said.err
    assert landed(deployed, "orders")["b1"] == 1
    assert store.open_errors("orders") == []
    for topic in ("orders", "payments"):
        accounts = queue_accounts(catalog, store, topic)
        assert accounts
        assert all(account.closes and not account.in_flight for account in accounts)
    assert leanops("drain").out == "Nothing waits.\n"


def test_rows_that_a_firehose_has_written_get_their_numbers_and_are_counted(
    deployed: Home, leanops: Leanops, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEANOPS_FIREHOSE", "leanops-raw")
    catalog = LocalCatalog(deployed).load()
    raw = ensure_raw_table(catalog, "orders")
    nothing = pa.Table.from_pylist([], ARROW_SCHEMA)
    moment = pa.scalar(DAY.isoformat()).cast(pa.date32()).cast(pa.timestamp("us", "UTC")).as_py()
    rows = [{"message_id": f"f{number}", "topic_name": "orders", "publish_time": moment} for number in range(3)]
    raw.append(pa.concat_tables([nothing, pa.Table.from_pylist(rows, ARROW_SCHEMA)]))
    first = rows_of(leanops("drain", "--json"))
    assert (first["orders"]["landed"], first["orders"]["source"]) == (3, "Firehose")
    numbered = catalog.load_table(table(Layer.RAW, "orders")).scan().to_arrow()["landing_seq"].to_pylist()
    assert sorted(numbered) == [1, 2, 3]
    (account,) = queue_accounts(catalog, DynamoStateStore(STATE), "orders")
    assert (account.received, account.raw, account.closes) == (3, 3, True)
    assert leanops("drain").out == "Nothing waits.\n"
