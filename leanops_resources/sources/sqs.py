"""Messages in SQS: a queue for each topic, called by the deployment's prefix and the topic's name.

A message that was received is hidden for a while, and comes again unless it is deleted meanwhile. Nothing is asked of
SQS before the first call.
"""

import random
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache, partial
from math import ceil
from typing import Any, NamedTuple

from boto3.session import Session  # type: ignore[import-untyped]
from botocore.config import Config  # type: ignore[import-untyped]
from botocore.exceptions import BotoCoreError, ClientError  # type: ignore[import-untyped]
from tenacity import Retrying, retry_if_result, stop_after_attempt, wait_random_exponential

from leanops.errors import QueueUnavailable
from leanops.ingestion.faults import Fault, classify
from leanops.ingestion.messages import QueueMessage
from leanops.names import is_topic
from leanops_resources.sources.source import Source, Sources
from leanops_resources.whole_answers import only_whole_answers

# A buffer lives for up to 300 s from its first message, and its commit may take a minute. The queue's own 300 s would
# let messages come again while they are being committed.
HIDDEN_SECONDS = 300 + 60

_AT_ONCE = 8
_MOST_IN_ONE_CALL = 10
_LARGEST_BYTES = 256 * 1024
_PAGE = 1000
_LONGEST_PAUSE = 300
_ATTEMPTS = 4
_FIFO = ".fifo"
_WAITING = "ApproximateNumberOfMessages"
_ON_THEIR_WAY = ("ApproximateNumberOfMessagesNotVisible", "ApproximateNumberOfMessagesDelayed")
_NO_QUEUE = ("AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist")
_PATIENCE = Config(
    connect_timeout=3,
    # Longer than the longest poll.
    read_timeout=25,
    retries={"mode": "standard", "total_max_attempts": 3},
    # A drain receives from several queues at once, with several calls each.
    max_pool_connections=64,
)
_HINT = (
    "Check the credentials, AWS_DEFAULT_REGION, AWS_ENDPOINT_URL and LEANOPS_QUEUE_PREFIX, and that they may list "
    "queues, read their attributes, and receive, delete and change the visibility of messages. Nothing was lost: what "
    "was received comes again."
)
_Entry = dict[str, Any]


class _Answer(NamedTuple):
    """What came of one call."""

    messages: Sequence[QueueMessage]
    fault: QueueUnavailable | None = None


class SqsSource(Source):
    """The queue of one topic. One that is not there, or not yet, is empty."""

    def __init__(self, topic: str, queue: str, wait_seconds: int = 1) -> None:
        self.topic = topic
        self.name = queue
        # A poll that waits asks all servers of SQS: when it finds nothing, there is nothing. One of 0 s asks a few.
        self._wait_seconds = wait_seconds
        self._known_url: str | None = None
        self._receipts: dict[str, str] = {}

    def receive(self, most: int, most_bytes: int) -> Sequence[QueueMessage]:
        """A fault ends it, and is raised only if nothing was received before: else the next call will meet it."""
        if not (url := self._url()):
            return []
        messages: list[QueueMessage] = []
        calls, largest = 1, 0
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            while most > 0 and most_bytes > 0:
                bytes_in_one_call = _MOST_IN_ONE_CALL * (largest or _LARGEST_BYTES)
                calls = min(calls, ceil(most / _MOST_IN_ONE_CALL), ceil(most_bytes / bytes_in_one_call))
                answers = list(pool.map(partial(self._receive, url), _shares(most, calls)))
                received = [each for answer in answers for each in answer.messages]
                messages += received
                fault = next((answer.fault for answer in answers if answer.fault), None)
                if fault and not messages:
                    raise fault
                if fault or not all(answer.messages for answer in answers):
                    break
                most -= len(received)
                most_bytes -= sum(len(message.body) for message in received)
                largest = max(largest, *(len(message.body) for message in received))
                # An empty queue is asked by one long poll, not by many.
                calls = min(2 * calls, _AT_ONCE)
        return messages

    def delete(self, messages: Sequence[QueueMessage]) -> int:
        return self._in_tens("delete_message_batch", list(self._entries(messages).values()))

    def give_back(self, messages: Sequence[QueueMessage]) -> None:
        """Where that fails they come again all the same, when they are no longer hidden."""
        receives = {message.handle: message.receives for message in messages}
        entries = self._entries(messages).items()
        later = [{**entry, "VisibilityTimeout": _pause(receives[handle])} for handle, entry in entries]
        self._in_tens("change_message_visibility_batch", later)

    def waiting(self) -> int:
        url = self._url()
        return _count(self.name, url, _WAITING, *_ON_THEIR_WAY) if url else 0

    def _url(self) -> str | None:
        for name in () if self._known_url else (self.name, self.name + _FIFO):
            with _asking(self.name, *_NO_QUEUE) as sqs:
                self._known_url = sqs.get_queue_url(QueueName=name)["QueueUrl"]
                break
        return self._known_url

    def _receive(self, url: str, most: int) -> _Answer:
        try:
            with _asking(self.name, *_NO_QUEUE) as sqs:
                answer = sqs.receive_message(
                    QueueUrl=url,
                    MaxNumberOfMessages=most,
                    WaitTimeSeconds=self._wait_seconds,
                    VisibilityTimeout=HIDDEN_SECONDS,
                    MessageSystemAttributeNames=["ApproximateReceiveCount"],
                )
                return _Answer([self._message(each) for each in answer.get("Messages", ())])
        except QueueUnavailable as fault:
            return _Answer((), fault)
        return _Answer(())

    def _message(self, received: dict[str, Any]) -> QueueMessage:
        handle = received["MessageId"]
        # Only the receipt of the last delivery is sure to delete a message.
        self._receipts[handle] = received["ReceiptHandle"]
        body = received["Body"].encode("utf-8", "surrogatepass")
        return QueueMessage(self.topic, handle, body, int(received["Attributes"]["ApproximateReceiveCount"]))

    def _entries(self, messages: Sequence[QueueMessage]) -> dict[str, _Entry]:
        """An entry of a batch for each message, however often it is among them. Their receipts are used up."""
        handles = dict.fromkeys(message.handle for message in messages)
        receipts = {handle: self._receipts.pop(handle, None) for handle in handles}
        return {handle: {"Id": handle, "ReceiptHandle": receipt} for handle, receipt in receipts.items() if receipt}

    def _in_tens(self, operation: str, entries: Sequence[_Entry]) -> int:
        """Do something to messages, ten in one call; to how many it could not be done."""
        parts = [entries[i : i + _MOST_IN_ONE_CALL] for i in range(0, len(entries), _MOST_IN_ONE_CALL)]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return sum(pool.map(partial(self._batch, operation), parts))

    def _batch(self, operation: str, entries: Sequence[_Entry]) -> int:
        refused = 0
        left = list(entries)

        def attempt() -> list[_Entry]:
            nonlocal left, refused
            failed = self._failed(operation, left)
            again = {each["Id"] for each in failed if not each["SenderFault"]}
            refused += len(failed) - len(again)
            left = [entry for entry in left if entry["Id"] in again]
            return left

        Retrying(
            retry=retry_if_result(bool),
            stop=stop_after_attempt(_ATTEMPTS),
            wait=wait_random_exponential(0.1, max=2),
            retry_error_callback=lambda _: None,
        )(attempt)
        return refused + len(left)

    def _failed(self, operation: str, entries: Sequence[_Entry]) -> Sequence[dict[str, Any]]:
        """Which entries of a batch failed. When the whole call fails for a moment, all of them did."""
        try:
            with _asking(self.name) as sqs:
                answer = getattr(sqs, operation)(QueueUrl=self._url(), Entries=entries)
        except QueueUnavailable as error:
            if classify(error) is not Fault.TRANSIENT:
                raise
            return [{"Id": entry["Id"], "SenderFault": False} for entry in entries]
        failed: Sequence[dict[str, Any]] = answer.get("Failed", ())
        return failed


class SqsQueues(Sources):
    """The queues of all topics."""

    def __init__(self, prefix: str, wait_seconds: int = 1) -> None:
        self.name = f"{prefix}*"
        self._prefix = prefix
        self._wait_seconds = wait_seconds

    def topics(self) -> Sequence[str]:
        queues = self._queues()
        with ThreadPoolExecutor(2 * _AT_ONCE) as pool:
            counts = pool.map(lambda topic: _count(self._prefix + topic, queues[topic], _WAITING), queues)
            return sorted(topic for topic, count in zip(queues, counts, strict=True) if count)

    def of(self, topic: str) -> Source:
        return SqsSource(topic, self._prefix + topic, self._wait_seconds)

    def _queues(self) -> dict[str, str]:
        """The URL of each topic's queue. Queues whose names no topic can have are none of ours."""
        with _asking(self.name) as sqs:
            pages = sqs.get_paginator("list_queues").paginate(
                # Without a page's size SQS hands out a thousand, and does not say that there are more.
                QueueNamePrefix=self._prefix,
                PaginationConfig={"PageSize": _PAGE},
            )
            urls = [url for page in pages for url in page.get("QueueUrls", ())]
        named = ((url.rpartition("/")[2].removeprefix(self._prefix).removesuffix(_FIFO), url) for url in urls)
        # Of a topic that has both, the queue without `.fifo` is its queue.
        return {topic: url for topic, url in sorted(named, reverse=True) if is_topic(topic)}


def _count(queue: str, url: str, *attributes: str) -> int:
    """How many messages a queue holds; none when it went meanwhile."""
    with _asking(queue, *_NO_QUEUE) as sqs:
        found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=list(attributes))["Attributes"]
        return sum(int(found.get(attribute, 0)) for attribute in attributes)
    return 0


def _shares(most: int, calls: int) -> list[int]:
    """How many messages each call asks for, so that all of them together ask for no more than `most`."""
    return [min(_MOST_IN_ONE_CALL, most - i * _MOST_IN_ONE_CALL) for i in range(calls)]


def _pause(receives: int) -> int:
    """After how many seconds a message comes again: twice as long each time, and not all at the same moment."""
    longest = min(_LONGEST_PAUSE, 2 ** min(receives + 1, 10))
    return random.randint(longest // 2, longest)  # noqa: S311 - nobody gains by guessing it


@contextmanager
def _asking(queue: str, *answers: str) -> Iterator[Any]:
    """The client. A refusal that is one of `answers` ends the block; anything else is told by a named error."""
    try:
        yield _client()
    except ClientError as error:
        code, message = (error.response["Error"].get(part, "") for part in ("Code", "Message"))
        if code in answers:
            return
        raise _unavailable(queue, f"answered {code}: {message}") from error
    except BotoCoreError as error:
        raise _unavailable(queue, f"cannot be reached: {error}") from error


def _unavailable(queue: str, what: str) -> QueueUnavailable:
    return QueueUnavailable(f"The queue {queue} {what.strip().rstrip('.')}.", _HINT)


@cache
def _client() -> Any:
    """One for the process, whatever the thread: it takes longer to make than most requests."""
    try:
        return only_whole_answers(Session().client("sqs", config=_PATIENCE))
    except ValueError as error:
        raise _unavailable("of any topic", f"cannot be reached: {error}") from error
