"""From an injection to whatever carries its messages: all at once, or at the scenario's pace."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from random import Random
from typing import NamedTuple, Protocol

from leanops.errors import disk_faults_named
from leanops.injector.expectation import Expectation, Truth
from leanops.injector.generator import messages
from leanops.injector.injection import Injection
from leanops.injector.plan import Kind
from leanops.landing_file import write_into_place
from leanops.progress import Advance, unseen

MOST_AT_ONCE = 20_000
"""How many messages go into one file, at most."""

_PARTS = 5
_BEAT_SECONDS = 0.25


class Feed(Protocol):
    """Carries messages of a topic, in their order."""

    def send(self, topic: str, bodies: Sequence[bytes]) -> None: ...


class FolderFeed:
    """Files with a line for each message, `{topic}/{name}-000001.ndjson` and so on. They are whole when they appear."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = name
        self._sent: Counter[str] = Counter()

    def send(self, topic: str, bodies: Sequence[bytes]) -> None:
        self._sent[topic] += 1
        path = self._folder / topic / f"{self._name}-{self._sent[topic]:06}.ndjson"
        with disk_faults_named(path.parent):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_into_place(path, b"".join(body + b"\n" for body in bodies))


class Fed(NamedTuple):
    """What a topic was fed, and what its tables must hold now."""

    kinds: Counter[Kind]
    expectation: Expectation


class _Stream:
    """The messages of a topic on their way."""

    def __init__(self, injection: Injection, topic: str, past: Sequence[Injection]) -> None:
        before = [each for each in past if topic in each.topics]
        has_contract = all(each.contracts[topic] for each in (*before, injection))
        self._topic = topic
        self._truth = Truth(topic, has_contract)
        for each in before:
            for message in messages(each, topic):
                self._truth.add(message)
        self._messages = messages(injection, topic)
        self._kinds: Counter[Kind] = Counter()

    def send(self, feed: Feed, most: int) -> int:
        """Feed so many messages, or as many as there are left; how many it were."""
        part = list(islice(self._messages, most))
        if part:
            feed.send(self._topic, [message.body for message in part])
        for message in part:
            self._kinds[message.kind] += 1
            self._truth.add(message)
        return len(part)

    def fed(self) -> Fed:
        return Fed(self._kinds, self._truth.expectation())


def feed_at_once(
    injection: Injection, past: Sequence[Injection], feed: Feed, advance: Advance = unseen
) -> Iterator[Fed]:
    """Feed one topic after another, each in parts of different sizes. `past` has been fed before."""
    most = max(1, min(MOST_AT_ONCE, injection.messages_of_a_topic // _PARTS))
    for topic in injection.topics:
        cuts = Random(injection.mark(topic))  # noqa: S311 - no secret, and the same each time
        stream = _Stream(injection, topic, past)
        while sent := stream.send(feed, cuts.randint(max(1, most // 2), most)):
            advance(sent)
        yield stream.fed()


def feed_paced(
    injection: Injection,
    past: Sequence[Injection],
    feed: Feed,
    advance: Advance = unseen,
    clock: Callable[[], float] = time.monotonic,
    wait: Callable[[float], None] = time.sleep,
) -> Iterator[Fed]:
    """Feed all topics side by side, at the scenario's rate."""
    streams = [_Stream(injection, topic, past) for topic in injection.topics]
    start, sent = clock(), 0
    while sent < injection.messages_of_a_topic:
        wait(_BEAT_SECONDS)
        due = _due(injection, clock() - start)
        for stream in streams:
            advance(stream.send(feed, due - sent))
        sent = due
    for stream in streams:
        yield stream.fed()


def _due(injection: Injection, elapsed: float) -> int:
    """How many messages of a topic are due after so many seconds."""
    due = 0
    for number in injection.days:
        day = injection.scenario.days[number - 1]
        messages_of_day, rate = injection.scenario.messages_of(day), injection.scenario.rate_of(day)
        due += max(0, min(messages_of_day, int(elapsed * rate)))
        elapsed -= messages_of_day / rate
    return due
