"""SQS as a source: queues on a server that speaks like AWS, and what goes wrong on the way to it."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import boto3
import pytest
from botocore.config import Config

from leanops.errors import QueueUnavailable
from leanops.ingestion.faults import Fault, classify
from leanops.ingestion.messages import QueueMessage
from leanops_resources.sources import sqs
from leanops_resources.sources.sqs import SqsQueues, SqsSource
from leanops_resources.whole_answers import only_whole_answers
from tests.aws.conftest import Server
from tests.faulty_proxy import Proxy, cuts_the_answer_off, loses_the_answer, proxy_to, refuses, refuses_entries

PREFIX = "shop-"
QUICKLY = 10
LARGEST = 256 * 1024
EVERYTHING = (100_000, 2**40)


@pytest.fixture(scope="module")
def proxy_of_module(aws_server: Server) -> Iterator[Proxy]:
    sqs._client.cache_clear()
    with proxy_to(aws_server.url) as proxy:
        yield proxy
    sqs._client.cache_clear()


@pytest.fixture
def proxy(proxy_of_module: Proxy, aws: Server, monkeypatch: pytest.MonkeyPatch) -> Proxy:
    """What stands between all sources and their queues."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", proxy_of_module.url)
    proxy_of_module.forget()
    return proxy_of_module


@pytest.fixture(scope="module")
def producer(aws_server: Server) -> Any:
    session = boto3.Session("key", "secret", region_name="us-east-1")
    return session.client("sqs", endpoint_url=aws_server.url)


@pytest.fixture
def direct(producer: Any, proxy: Proxy) -> Any:
    """How producers and other people reach the queues."""
    return producer


@pytest.fixture(scope="module")
def client_that_asks_once(proxy_of_module: Proxy) -> Any:
    once = sqs._PATIENCE.merge(Config(read_timeout=1, retries={"mode": "standard", "total_max_attempts": 1}))
    session = boto3.Session("key", "secret", region_name="us-east-1")
    return only_whole_answers(session.client("sqs", endpoint_url=proxy_of_module.url, config=once))


@pytest.fixture
def impatient(client_that_asks_once: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The source asks once, and not for long."""
    monkeypatch.setattr(sqs, "_client", lambda: client_that_asks_once)


@pytest.fixture
def own_client(proxy: Proxy) -> Iterator[None]:
    """The client is made by this test, and used by no other."""
    sqs._client.cache_clear()
    yield
    sqs._client.cache_clear()


@pytest.fixture
def queue(direct: Any) -> str:
    """The URL of the queue of orders."""
    url: str = direct.create_queue(QueueName=f"{PREFIX}orders", Attributes={"VisibilityTimeout": "300"})["QueueUrl"]
    return url


@pytest.fixture
def source(queue: str) -> SqsSource:
    # This server serves one request at a time: polls that wait would wait for each other.
    return SqsSource("orders", f"{PREFIX}orders", wait_seconds=0)


def send(direct: Any, url: str, bodies: Sequence[str]) -> None:
    for start in range(0, len(bodies), 10):
        entries = [{"Id": str(i), "MessageBody": body} for i, body in enumerate(bodies[start : start + 10])]
        assert not direct.send_message_batch(QueueUrl=url, Entries=entries).get("Failed")


def let_them_come_again(direct: Any, source: SqsSource, url: str) -> None:
    """As when nobody has deleted them for six minutes."""
    for receipt in source._receipts.values():
        direct.change_message_visibility(QueueUrl=url, ReceiptHandle=receipt, VisibilityTimeout=0)


def bodies(messages: Sequence[QueueMessage]) -> list[bytes]:
    return sorted(message.body for message in messages)


# Topics


def test_topics_are_the_queues_that_have_messages_by_the_name_behind_the_prefix(direct: Any) -> None:
    for name in ("shop-orders", "shop-events", "shop-quiet", "other-payments"):
        url = direct.create_queue(QueueName=name)["QueueUrl"]
        send(direct, url, ["x"] if name != "shop-quiet" else [])
    assert SqsQueues(PREFIX).topics() == ["events", "orders"]
    assert SqsQueues("nobody-").topics() == []


@pytest.mark.parametrize("name", ["Orders", "orders-dlq", "1a", "errors", "dlq_errors", "a" * 65])
def test_a_queue_whose_name_no_topic_can_have_is_left_out(name: str, direct: Any, queue: str) -> None:
    for url in (queue, direct.create_queue(QueueName=PREFIX + name)["QueueUrl"]):
        send(direct, url, ["x"])
    assert SqsQueues(PREFIX).topics() == ["orders"]


def test_a_fifo_queue_is_a_topics_queue_too(direct: Any) -> None:
    attributes = {"FifoQueue": "true", "ContentBasedDeduplication": "true"}
    url = direct.create_queue(QueueName=f"{PREFIX}orders.fifo", Attributes=attributes)["QueueUrl"]
    for body in ("first", "second"):
        direct.send_message(QueueUrl=url, MessageBody=body, MessageGroupId="all")
    queues = SqsQueues(PREFIX, wait_seconds=0)
    assert queues.topics() == ["orders"]
    source = queues.of("orders")
    messages = source.receive(*EVERYTHING)
    assert [message.body for message in messages] == [b"first", b"second"]
    assert (source.delete(messages), source.waiting()) == (0, 0)


def test_however_many_pages_of_queues_there_are_all_are_found(
    direct: Any, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqs, "_PAGE", 3)
    names = [f"topic_{number}" for number in range(8)]
    for name in names:
        send(direct, direct.create_queue(QueueName=PREFIX + name)["QueueUrl"], ["x"])
    assert SqsQueues(PREFIX).topics() == names
    assert len(proxy.asked("ListQueues")) == 3


def test_a_queue_that_is_not_there_is_empty(direct: Any) -> None:
    source = SqsQueues(PREFIX).of("unheard_of")
    assert (source.topic, source.name) == ("unheard_of", "shop-unheard_of")
    assert (list(source.receive(*EVERYTHING)), source.waiting(), source.delete([])) == ([], 0, 0)


def test_a_queue_that_goes_meanwhile_is_empty(direct: Any, queue: str, source: SqsSource) -> None:
    send(direct, queue, ["x"])
    assert source.waiting() == 1
    direct.delete_queue(QueueUrl=queue)
    assert (list(source.receive(*EVERYTHING)), source.waiting()) == ([], 0)


# Receiving


def test_a_message_is_received_as_it_was_sent(direct: Any, queue: str, source: SqsSource) -> None:
    body = '{"message_id": "m1", "text": "Größe\\t🎈\u2028"}\n'
    sent = direct.send_message(QueueUrl=queue, MessageBody=body)
    (message,) = source.receive(*EVERYTHING)
    assert message == QueueMessage("orders", sent["MessageId"], body.encode(), receives=1)


@pytest.mark.parametrize("most", [1, 10, 11, 25, 80])
def test_no_more_messages_are_received_than_were_asked_for(
    most: int, direct: Any, queue: str, source: SqsSource
) -> None:
    send(direct, queue, [f"{number}" for number in range(43)])
    received = source.receive(most, 2**40)
    assert len(received) == min(most, 43)
    assert len({message.handle for message in received}) == len(received)


def test_receiving_ends_soon_after_there_are_enough_bytes(direct: Any, queue: str, source: SqsSource) -> None:
    send(direct, queue, ["x" * 1000] * 60)
    assert 25 <= len(source.receive(1000, 25_000)) <= 30


def test_messages_of_the_largest_size_come_whole(direct: Any, queue: str, source: SqsSource) -> None:
    sent = ["é" * (LARGEST // 2 - 1) + f"{number:02}" for number in range(12)]
    for body in sent:
        direct.send_message(QueueUrl=queue, MessageBody=body)
    received = source.receive(*EVERYTHING)
    assert bodies(received) == sorted(body.encode() for body in sent)
    assert {len(message.body) for message in received} == {LARGEST}


def test_of_the_largest_messages_no_more_than_one_call_too_many_are_received(
    direct: Any, queue: str, source: SqsSource
) -> None:
    for number in range(12):
        direct.send_message(QueueUrl=queue, MessageBody=f"{number:02}" + "x" * (LARGEST - 2))
    assert len(source.receive(1000, LARGEST)) <= 10


def test_an_empty_queue_is_asked_by_one_poll_that_waits(queue: str, proxy: Proxy) -> None:
    began = time.monotonic()
    assert list(SqsSource("orders", f"{PREFIX}orders", wait_seconds=1).receive(*EVERYTHING)) == []
    assert time.monotonic() - began >= 1
    (asked,) = proxy.asked("ReceiveMessage")
    assert asked["WaitTimeSeconds"] == 1


def test_a_message_is_hidden_for_longer_than_its_buffer_and_the_commit_take(
    direct: Any, queue: str, source: SqsSource, proxy: Proxy
) -> None:
    send(direct, queue, ["x"])
    source.receive(*EVERYTHING)
    assert {asked["VisibilityTimeout"] for asked in proxy.asked("ReceiveMessage")} == {360}
    assert list(source.receive(*EVERYTHING)) == []


def test_what_waits_is_visible_hidden_or_delayed(direct: Any, queue: str, source: SqsSource) -> None:
    send(direct, queue, ["a", "b", "c"])
    direct.send_message(QueueUrl=queue, MessageBody="later", DelaySeconds=60)
    source.receive(2, 2**40)
    assert source.waiting() == 4


def test_a_message_that_comes_three_times_is_the_same_each_time_and_goes_for_good(
    direct: Any, queue: str, source: SqsSource, proxy: Proxy
) -> None:
    send(direct, queue, ["x"])
    came = []
    for _ in range(3):
        came += source.receive(*EVERYTHING)
        newest = dict(source._receipts)
        let_them_come_again(direct, source, queue)
    assert [message.receives for message in came] == [1, 2, 3]
    assert len({(message.handle, message.body) for message in came}) == 1
    assert source.delete(came) == 0
    (asked,) = proxy.asked("DeleteMessageBatch")
    assert [entry["ReceiptHandle"] for entry in asked["Entries"]] == list(newest.values())
    assert source.waiting() == 0


# Deleting and giving back


def test_what_is_deleted_is_gone_and_only_that(direct: Any, queue: str, source: SqsSource) -> None:
    send(direct, queue, [f"{number}" for number in range(27)])
    received = source.receive(*EVERYTHING)
    assert source.delete(received[:13]) == 0
    assert source.waiting() == 14
    let_them_come_again(direct, source, queue)
    assert bodies(source.receive(*EVERYTHING)) == bodies(received[13:])


def test_what_was_deleted_before_can_be_deleted_again(direct: Any, queue: str, source: SqsSource) -> None:
    send(direct, queue, ["x"])
    received = source.receive(*EVERYTHING)
    assert (source.delete(received), source.delete(received)) == (0, 0)


@pytest.mark.parametrize("times", [1, 3])
def test_messages_that_the_server_fails_to_delete_are_deleted_again(
    times: int, direct: Any, queue: str, source: SqsSource, proxy: Proxy
) -> None:
    send(direct, queue, [f"{number}" for number in range(10)])
    proxy.fail("DeleteMessageBatch", refuses_entries(4, sender_fault=False), times=times)
    assert source.delete(source.receive(*EVERYTHING)) == 0
    assert source.waiting() == 0
    assert [len(asked["Entries"]) for asked in proxy.asked("DeleteMessageBatch")] == [10] + [4] * times


def test_messages_that_the_server_never_deletes_are_counted(
    direct: Any, queue: str, source: SqsSource, proxy: Proxy
) -> None:
    send(direct, queue, [f"{number}" for number in range(10)])
    proxy.fail("DeleteMessageBatch", refuses_entries(4, sender_fault=False), times=100)
    assert source.delete(source.receive(*EVERYTHING)) == 4
    assert source.waiting() == 4


def test_messages_whose_receipt_is_refused_are_counted_and_not_tried_again(
    direct: Any, queue: str, source: SqsSource, proxy: Proxy
) -> None:
    send(direct, queue, [f"{number}" for number in range(25)])
    received = source.receive(*EVERYTHING)
    proxy.fail("DeleteMessageBatch", refuses_entries(2, sender_fault=True))
    assert source.delete(received) == 2
    assert len(proxy.asked("DeleteMessageBatch")) == 3
    assert source.waiting() == 2


@pytest.mark.usefixtures("impatient")
def test_a_deletion_that_is_throttled_is_tried_again(direct: Any, queue: str, source: SqsSource, proxy: Proxy) -> None:
    send(direct, queue, ["x"])
    received = source.receive(*EVERYTHING)
    proxy.fail("DeleteMessageBatch", refuses("RequestThrottled"))
    assert (source.delete(received), source.waiting()) == (0, 0)


@pytest.mark.usefixtures("impatient")
def test_a_deletion_whose_answer_is_lost_is_done_all_the_same(
    direct: Any, queue: str, source: SqsSource, proxy: Proxy
) -> None:
    send(direct, queue, ["x"])
    received = source.receive(*EVERYTHING)
    proxy.fail("DeleteMessageBatch", loses_the_answer)
    source.delete(received)
    assert source.waiting() == 0


@pytest.mark.usefixtures("impatient")
def test_a_deletion_that_is_not_allowed_is_told(direct: Any, queue: str, source: SqsSource, proxy: Proxy) -> None:
    send(direct, queue, ["x"])
    received = source.receive(*EVERYTHING)
    proxy.fail("DeleteMessageBatch", refuses("AccessDeniedException", 403), times=100)
    with pytest.raises(QueueUnavailable, match="AccessDenied"):
        source.delete(received)
    assert source.waiting() == 1


def test_what_is_given_back_comes_again(
    direct: Any, queue: str, source: SqsSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqs, "_LONGEST_PAUSE", 0)
    send(direct, queue, [f"{number}" for number in range(12)])
    source.give_back(source.receive(*EVERYTHING))
    again = source.receive(*EVERYTHING)
    assert (len(again), {message.receives for message in again}) == (12, {2})
    assert (source.delete(again), source.waiting()) == (0, 0)


def test_what_is_given_back_waits_for_longer_the_more_often_it_has_come(
    direct: Any, queue: str, source: SqsSource, proxy: Proxy
) -> None:
    send(direct, queue, [f"{number}" for number in range(30)])
    received = source.receive(*EVERYTHING)
    counts = [1, 3, 20]
    again = [message._replace(receives=counts[place % 3]) for place, message in enumerate(received)]
    source.give_back(again)
    asked = {
        entry["Id"]: entry["VisibilityTimeout"]
        for request in proxy.asked("ChangeMessageVisibilityBatch")
        for entry in request["Entries"]
    }
    waits = {count: [asked[each.handle] for each in again if each.receives == count] for count in counts}
    for count, (least, most) in zip(counts, [(2, 4), (8, 16), (150, 300)], strict=True):
        assert all(least <= wait <= most for wait in waits[count])
    assert len(set(waits[20])) > 1


@pytest.mark.usefixtures("impatient")
def test_what_cannot_be_given_back_stays_hidden_and_is_not_lost(
    direct: Any, queue: str, source: SqsSource, proxy: Proxy
) -> None:
    send(direct, queue, ["x"])
    proxy.fail("ChangeMessageVisibilityBatch", refuses("ServiceUnavailable", 503), times=100)
    source.give_back(source.receive(*EVERYTHING))
    assert source.waiting() == 1


# What goes wrong on the way


FAULTS = {
    "throttled": "answered RequestThrottled",
    "broken": "answered InternalFailure",
    "hangs": "cannot be reached: Read timeout",
    "loses": "cannot be reached",
    "cuts off": "cannot be reached",
}


def fault_called(name: str, proxy: Proxy) -> Any:
    return {
        "throttled": refuses("RequestThrottled"),
        "broken": refuses("InternalFailure", 500),
        "hangs": proxy.hangs,
        "loses": loses_the_answer,
        "cuts off": cuts_the_answer_off,
    }[name]


def receive() -> Sequence[QueueMessage]:
    return SqsSource("orders", "shop-orders", wait_seconds=0).receive(*EVERYTHING)


def topics() -> Sequence[str]:
    return SqsQueues(PREFIX).topics()


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    ("operation", "call", "fault"),
    [
        *(("ReceiveMessage", receive, fault) for fault in FAULTS),
        *(("GetQueueUrl", receive, fault) for fault in ("broken", "cuts off")),
        *(("ListQueues", topics, fault) for fault in ("throttled", "cuts off")),
        *(("GetQueueAttributes", topics, fault) for fault in ("throttled", "cuts off")),
    ],
)
def test_a_fault_of_the_moment_is_told_by_name_and_known_to_pass(
    operation: str, call: Callable[[], object], fault: str, direct: Any, queue: str, proxy: Proxy
) -> None:
    send(direct, queue, ["x"])
    proxy.fail(operation, fault_called(fault, proxy))
    with pytest.raises(QueueUnavailable) as caught:
        call()
    assert FAULTS[fault] in caught.value.problem
    assert "shop-" in caught.value.problem
    assert "comes again" in caught.value.hint
    assert classify(caught.value) is Fault.TRANSIENT
    call()


@pytest.mark.usefixtures("impatient")
def test_a_queue_that_does_not_let_us_in_is_told_and_is_no_fault_of_the_moment(
    direct: Any, queue: str, source: SqsSource, proxy: Proxy
) -> None:
    proxy.fail("ReceiveMessage", refuses("AccessDeniedException", 403))
    with pytest.raises(QueueUnavailable, match="AccessDenied") as caught:
        source.receive(*EVERYTHING)
    assert classify(caught.value) is Fault.UNKNOWN


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("fault", ["throttled", "hangs", "cuts off"])
def test_what_was_received_before_a_fault_is_handed_out_and_nothing_is_lost(
    fault: str, direct: Any, queue: str, source: SqsSource, proxy: Proxy
) -> None:
    # One call, two at once, four at once: two of these fail.
    send(direct, queue, [f"{number:02}" for number in range(70)])
    proxy.fail("ReceiveMessage", fault_called(fault, proxy), after=4, times=2)
    first = source.receive(*EVERYTHING)
    assert len(first) == 50
    second = source.receive(*EVERYTHING)
    came = Counter(bodies([*first, *second]))
    assert set(came.values()) == {1}
    # What a broken answer held is hidden, and comes again later.
    assert len(came) == (50 if fault == "cuts off" else 70)
    assert (source.delete([*first, *second]), source.waiting()) == (0, 70 - len(came))


@pytest.mark.usefixtures("impatient")
def test_a_fault_that_stays_is_raised_by_the_call_that_receives_nothing(
    direct: Any, queue: str, source: SqsSource, proxy: Proxy
) -> None:
    send(direct, queue, [f"{number}" for number in range(20)])
    proxy.fail("ReceiveMessage", refuses("OverLimit", 403), after=1, times=100)
    assert len(source.receive(*EVERYTHING)) == 10
    with pytest.raises(QueueUnavailable, match="OverLimit"):
        source.receive(*EVERYTHING)


def test_a_client_with_its_usual_patience_gets_over_a_short_fault(
    direct: Any, queue: str, source: SqsSource, proxy: Proxy
) -> None:
    send(direct, queue, ["x"])
    proxy.fail("ReceiveMessage", refuses("RequestThrottled"))
    assert len(source.receive(*EVERYTHING)) == 1


def no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")


def no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")


def no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "nonsense")


def no_region(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_DEFAULT_REGION")


@pytest.mark.usefixtures("own_client")
@pytest.mark.parametrize("spoil", [no_credentials, no_server, no_address, no_region])
def test_queues_that_cannot_be_reached_are_told_by_name_and_soon(
    spoil: Callable[[pytest.MonkeyPatch], None], aws: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil(monkeypatch)
    began = time.monotonic()
    for call in (SqsQueues(PREFIX).topics, SqsQueues(PREFIX).of("orders").waiting):
        with pytest.raises(QueueUnavailable, match="AWS_ENDPOINT_URL") as caught:
            call()
        assert "cannot be reached: " in caught.value.problem
    assert time.monotonic() - began < 2 * QUICKLY
