"""What a source of messages can do: hand them out, and forget them when RAW has them.

A message that was received is neither gone nor given to others for a while. Only `delete` ends it: whoever dies before
that gets it again.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from leanops.ingestion.messages import QueueMessage


class Source(ABC):
    """The messages of one topic, on their way in. A source is used by one drain at a time."""

    topic: str
    name: str
    """What people call it: a folder, or a queue."""

    @abstractmethod
    def receive(self, most: int, most_bytes: int) -> Sequence[QueueMessage]:
        """The next messages, at most so many, and few beyond so many bytes; none when the source is empty."""

    @abstractmethod
    def delete(self, messages: Sequence[QueueMessage]) -> int:
        """Forget these, which have been received and committed; how many could not be deleted and will come again."""

    @abstractmethod
    def give_back(self, messages: Sequence[QueueMessage]) -> None:
        """Let these, which have been received, come again after a while, the longer the more often they have come."""

    @abstractmethod
    def waiting(self) -> int:
        """How many messages wait, as well as the source knows: 0 only if there are none."""


class Sources(ABC):
    """The sources of all topics."""

    name: str
    """What people call them together."""

    @abstractmethod
    def topics(self) -> Sequence[str]:
        """The topics that have anything waiting."""

    @abstractmethod
    def of(self, topic: str) -> Source:
        """A topic's source."""
