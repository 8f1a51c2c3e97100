"""How many things are worked on at once: as many as it pays to.

Tables on a local disk keep one thread busy: four of them take no less time, and a third more of the processor. Tables
far away have a thread wait for nearly all of its time. So work begins in one thread, and goes on in many once it was
found to wait.
"""

import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

MANY_THREADS = 16
_MEASURED = 4
_WAITS = 4
"""What takes so many times as long as it works does wait: on a busy machine all that works takes twice as long."""


class Concurrency:
    """What was found out about the waiting of one kind of work."""

    def __init__(self, threads: int = 1) -> None:
        self.threads = threads

    def map(self, work: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
        """What is made of each item, in their order."""
        todo, done = list(items), list[Result]()
        while self.threads == 1 and len(done) < len(todo):
            done += self._measured(work, todo[len(done) : len(done) + _MEASURED])
        if len(done) < len(todo):
            with ThreadPoolExecutor(min(self.threads, len(todo) - len(done))) as pool:
                done += pool.map(work, todo[len(done) :])
        return done

    def _measured(self, work: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
        begun, begun_here = time.perf_counter(), time.thread_time()
        done = [work(each) for each in items]
        if time.perf_counter() - begun > _WAITS * (time.thread_time() - begun_here):
            self.threads = MANY_THREADS
        return done
