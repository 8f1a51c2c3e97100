"""Which topic is to blame when a worker fails: Spark tells of nothing but the text of what was raised.

A worker that takes too long for the rows of one topic, as when a payload sends its reader round in circles, gives up,
too. So of hundreds of topics that share a job the one that breaks it is known at once. This runs inside Spark's Python
workers.
"""

import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

TOPIC_SECONDS = 120
"""So long a worker works on rows of one topic at a time, which in a job that topics share takes a second or so."""

Item = TypeVar("Item")
_BLAMED = re.compile(r"\[topic ([a-z0-9_]+)\] (.*)")


class TopicRowsFailed(Exception):
    """A worker has failed on the rows of one topic."""

    def __init__(self, topic: str, what: str) -> None:
        super().__init__(f"[topic {topic}] {what}")


@contextmanager
def topic_blamed(topic: str, seconds: float) -> Iterator[None]:
    """Whatever is raised names the topic whose rows are worked on; what goes on for longer than so long is ended."""
    try:
        with _limited(seconds):
            yield
    except TopicRowsFailed:
        raise
    except Exception as error:
        raise TopicRowsFailed(topic, f"{type(error).__name__}: {error}") from error


def each_blamed(items: Iterator[Item], topic: str, seconds: float) -> Iterator[Item]:
    """The same for each of the items that rows of a topic are made into, one at a time."""
    while True:
        with topic_blamed(topic, seconds):
            item = next(items, None)
        if item is None:
            return
        yield item


def blamed_in(text: str) -> tuple[str, str] | None:
    """The topic that the text of a fault blames, and what was wrong with its rows."""
    found = _BLAMED.search(text)
    return (found[1], found[2].strip()) if found else None


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    is_limited_already = signal.getitimer(signal.ITIMER_REAL)[0] > 0
    if is_limited_already or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGALRM, _give_up)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _give_up(_signal: int, _frame: object) -> None:
    raise TimeoutError("A worker took too long for its rows, and gave up.")
