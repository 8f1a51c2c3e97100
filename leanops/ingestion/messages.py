"""A message as its queue hands it out, before anybody has looked into it."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from leanops.errors import TopicNameInvalid
from leanops.names import topic_name

_FIFO = ".fifo"


class QueueMessage(NamedTuple):
    """A message of a topic. Its handle is what its source knows it by, the same each time that it is delivered."""

    topic: str
    handle: str
    body: bytes
    receives: int = 1
    """How often it has been handed out, this time included."""


def topic_of_queue(arn: str, prefix: str = "") -> str:
    """The topic whose queue this is: the last part of the ARN, without the deployment's prefix.

    `arn:aws:sqs:eu-central-1:123456789012:leanops-orders` is the queue of `orders` where the prefix is `leanops-`.
    """
    name = arn.rpartition(":")[2]
    if not name.startswith(prefix):
        raise TopicNameInvalid(
            f"The queue {name!r} is none of this deployment's, whose queues' names begin with {prefix!r}.",
            "Send it to the deployment that it belongs to, or set LEANOPS_QUEUE_PREFIX.",
        )
    return topic_name(name.removeprefix(prefix).removesuffix(_FIFO))


def message_of_sqs_record(record: Mapping[str, Any], prefix: str = "") -> QueueMessage:
    """A record of an SQS event, as Lambda and Pipes hand it over."""
    return QueueMessage(
        topic=topic_of_queue(record["eventSourceARN"], prefix),
        handle=record["messageId"],
        body=record["body"].encode("utf-8", "surrogatepass"),
        receives=int(record.get("attributes", {}).get("ApproximateReceiveCount", 1)),
    )
