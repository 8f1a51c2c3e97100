"""Feeds made-up messages to the queues of their topics, ten in one call. Queues that are not there are created."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

from boto3.session import Session  # type: ignore[import-untyped]
from botocore.config import Config  # type: ignore[import-untyped]
from botocore.exceptions import BotoCoreError, ClientError  # type: ignore[import-untyped]
from tenacity import Retrying, retry_if_result, stop_after_attempt, wait_random_exponential

from leanops.errors import QueueUnavailable

VISIBILITY_SECONDS = 300
MOST_IN_ONE_CALL = 10
MOST_BYTES_IN_ONE_CALL = 256 * 1024
_AT_ONCE = 8
_ATTEMPTS = 6
_NO_QUEUE = ("AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist")
_PATIENCE = Config(
    connect_timeout=3,
    read_timeout=20,
    retries={"mode": "standard", "total_max_attempts": 5},
    max_pool_connections=_AT_ONCE,
)
_HINT = (
    "Check the credentials, AWS_REGION, AWS_ENDPOINT_URL and LEANOPS_QUEUE_PREFIX, and that they may create queues and "
    "send to them. A part of the messages may have been sent: begin again with an empty queue and a new home."
)
_Entry = dict[str, str]


class QueueFeed:
    """The queues of all topics, called by the deployment's prefix and the topic's name."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._urls: dict[str, str] = {}
        try:
            self._sqs: Any = Session().client("sqs", config=_PATIENCE)
        except (BotoCoreError, ValueError) as error:
            raise QueueUnavailable(f"SQS cannot be reached: {error}.", _HINT) from error

    def send(self, topic: str, bodies: Sequence[bytes]) -> None:
        queue = self._prefix + topic
        url = self._urls.get(topic) or self._urls.setdefault(topic, self._url(queue))
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            # A list, so that what fails in a thread is raised here.
            list(pool.map(partial(self._send, queue, url), batches(bodies)))

    def _url(self, queue: str) -> str:
        with _faults_named(queue):
            try:
                found = self._sqs.get_queue_url(QueueName=queue)
            except ClientError as error:
                if error.response["Error"].get("Code") not in _NO_QUEUE:
                    raise
                found = self._sqs.create_queue(
                    QueueName=queue, Attributes={"VisibilityTimeout": str(VISIBILITY_SECONDS)}
                )
        return str(found["QueueUrl"])

    def _send(self, queue: str, url: str, bodies: Sequence[bytes]) -> None:
        left = [{"Id": str(number), "MessageBody": body.decode()} for number, body in enumerate(bodies)]

        def attempt() -> list[_Entry]:
            """Send what is left; what is left then."""
            nonlocal left
            with _faults_named(queue):
                failed = self._sqs.send_message_batch(QueueUrl=url, Entries=left).get("Failed", ())
            for each in failed:
                if each["SenderFault"]:
                    raise QueueUnavailable(f"The queue {queue} refused a message: {each.get('Message')}.", _HINT)
            again = {each["Id"] for each in failed}
            left = [entry for entry in left if entry["Id"] in again]
            return left

        Retrying(
            retry=retry_if_result(bool),
            stop=stop_after_attempt(_ATTEMPTS),
            wait=wait_random_exponential(0.1, max=5),
            retry_error_callback=lambda _: None,
        )(attempt)
        if left:
            raise QueueUnavailable(f"The queue {queue} did not take {len(left)} messages.", _HINT)


def batches(bodies: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    """As many messages as one call may carry."""
    batch: list[bytes] = []
    size = 0
    for body in bodies:
        if batch and (len(batch) == MOST_IN_ONE_CALL or size + len(body) > MOST_BYTES_IN_ONE_CALL):
            yield batch
            batch, size = [], 0
        batch.append(body)
        size += len(body)
    if batch:
        yield batch


@contextmanager
def _faults_named(queue: str) -> Iterator[None]:
    try:
        yield
    except ClientError as error:
        code, message = (error.response["Error"].get(part, "") for part in ("Code", "Message"))
        raise QueueUnavailable(f"The queue {queue} answered {code}: {message.rstrip('.')}.", _HINT) from error
    except BotoCoreError as error:
        raise QueueUnavailable(f"The queue {queue} cannot be reached: {str(error).rstrip('.')}.", _HINT) from error
