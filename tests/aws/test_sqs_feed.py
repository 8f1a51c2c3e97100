"""Made-up messages in queues, on a server that speaks like SQS."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import boto3
import pytest
from typer import Typer
from typer.testing import CliRunner

from leanops.errors import QueueUnavailable
from leanops_cli.inject import inject
from leanops_resources.sqs_feed import MOST_BYTES_IN_ONE_CALL, QueueFeed, batches
from tests.aws.conftest import Server
from tests.conftest import PROJECT


def received(queue: str) -> list[str]:
    sqs: Any = boto3.client("sqs")
    url = sqs.get_queue_url(QueueName=queue)["QueueUrl"]
    bodies: list[str] = []
    while messages := sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages"):
        bodies += [message["Body"] for message in messages]
    return bodies


def test_messages_of_all_sizes_come_to_their_queue_which_is_created_for_them(aws: Server) -> None:
    bodies = [str(number).encode() * (40_000 if number % 5 == 0 else 1) for number in range(1, 48)]
    feed = QueueFeed("test-")
    feed.send("orders", bodies[:20])
    feed.send("orders", bodies[20:])
    assert Counter(received("test-orders")) == Counter(body.decode() for body in bodies)
    sqs: Any = boto3.client("sqs")
    url = sqs.get_queue_url(QueueName="test-orders")["QueueUrl"]
    attributes = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["VisibilityTimeout"])["Attributes"]
    assert attributes == {"VisibilityTimeout": "300"}


def test_a_call_carries_ten_messages_and_256_kb_at_most() -> None:
    bodies = [b"x" * size for size in (1, 100_000, 100_000, 100_000, MOST_BYTES_IN_ONE_CALL, *[1] * 25)]
    sizes = [[len(body) for body in batch] for batch in batches(bodies)]
    assert sizes == [[1, 100_000, 100_000], [100_000], [MOST_BYTES_IN_ONE_CALL], [1] * 10, [1] * 10, [1] * 5]


def test_what_a_queue_does_not_take_at_once_is_sent_again_and_nothing_else(
    aws: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed = QueueFeed("test-")
    whole, calls = feed._sqs.send_message_batch, Counter[str]()

    def throttled(**call: Any) -> Any:
        """The queue takes the entries with even numbers first, and the others when they come again."""
        taken = [entry for entry in call["Entries"] if calls[entry["Id"]] or int(entry["Id"]) % 2 == 0]
        calls.update(entry["Id"] for entry in call["Entries"])
        refused = [entry["Id"] for entry in call["Entries"] if entry not in taken]
        answer = whole(QueueUrl=call["QueueUrl"], Entries=taken)
        return {**answer, "Failed": [{"Id": name, "SenderFault": False, "Code": "Throttled"} for name in refused]}

    monkeypatch.setattr(feed._sqs, "send_message_batch", throttled)
    feed.send("orders", [b"0", b"1", b"2", b"3"])
    assert sorted(received("test-orders")) == ["0", "1", "2", "3"]
    assert calls == {"0": 1, "1": 2, "2": 1, "3": 2}


def test_a_queue_that_cannot_be_reached_is_named(aws: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(QueueUnavailable, match="The queue test-orders cannot be reached"):
        QueueFeed("test-").send("orders", [b"1"])


def test_the_command_feeds_queues(aws: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEANOPS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("LEANOPS_SCHEMAS", str(PROJECT / "schemas"))
    monkeypatch.setenv("LEANOPS_QUEUE_PREFIX", "test-")
    scenario = json.loads((PROJECT / "scenarios" / "dirty.json").read_bytes())
    (tmp_path / "small.json").write_text(json.dumps({**scenario, "seconds": 1}))
    app = Typer()
    app.command()(inject)
    said = CliRunner().invoke(app, [str(tmp_path / "small.json"), "--to", "queue", "--topic", "orders"])
    assert said.exit_code == 0, said.output
    expected = json.loads((tmp_path / "home" / "injected" / "expected" / "orders.json").read_bytes())
    bodies = received("test-orders")
    assert len(bodies) == expected["received"] == 150
    assert len(set(bodies)) == 150 - len(expected["duplicates"])
    assert not (tmp_path / "home" / "landing" / "orders").exists()
