"""Work on a batch of which one message may be poison: the others are done, and the one is found."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from leanops.ingestion.faults import Fault, classify

MOST_POISON = 16
"""So many messages of one batch may be poison. When more are, it is not they that are wrong."""

Message = TypeVar("Message")
Result = TypeVar("Result")


@dataclass
class Bisected(Generic[Message, Result]):
    """What came of the parts that worked, and the messages that were alone when it failed."""

    results: list[Result] = field(default_factory=list)
    poison: list[tuple[Message, Exception]] = field(default_factory=list)
    untried: list[Message] = field(default_factory=list)
    """Messages of parts that failed too, and were given up, because too much had failed before them."""


def bisect(messages: Sequence[Message], work: Callable[[Sequence[Message]], Result]) -> Bisected[Message, Result]:
    """Do `work` on all messages at once; where it fails for an unknown reason, on each half of them, and so on.

    A transient fault is raised: it is none of the messages' doing.
    """
    done: Bisected[Message, Result] = Bisected()
    parts = [messages] if messages else []
    while parts:
        part = parts.pop()
        try:
            done.results.append(work(part))
        except Exception as error:
            if classify(error) is Fault.TRANSIENT:
                raise
            if len(done.poison) == MOST_POISON:
                done.untried += part
            elif len(part) == 1:
                done.poison.append((part[0], error))
            else:
                middle = len(part) // 2
                # The first half is worked on next: what is first in the queue lands first.
                parts += [part[middle:], part[:middle]]
    return done
