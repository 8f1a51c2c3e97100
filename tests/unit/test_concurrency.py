"""How many things are worked on at once."""

import threading
import time

import pytest

from leanops.concurrency import MANY_THREADS, Concurrency


def test_work_that_does_not_wait_stays_in_one_thread() -> None:
    def work(number: int) -> tuple[int, int]:
        return sum(range(100_000)) + number, threading.get_ident()

    found = Concurrency().map(work, range(20))
    assert [number - sum(range(100_000)) for number, _ in found] == [*range(20)]
    assert {thread for _, thread in found} == {threading.get_ident()}


def test_work_that_waits_goes_on_in_many_threads_and_keeps_its_order() -> None:
    met = threading.Barrier(MANY_THREADS, timeout=20)
    waiting = Concurrency()

    def work(number: int) -> int:
        if waiting.threads > 1:
            met.wait()
        else:
            time.sleep(0.05)
        return number

    count = 4 + MANY_THREADS
    assert waiting.map(work, range(count)) == [*range(count)]
    assert waiting.threads == MANY_THREADS
    # What was found out holds for what comes next.
    assert waiting.map(work, range(MANY_THREADS)) == [*range(MANY_THREADS)]


def test_what_fails_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        Concurrency().map(lambda number: 1 // number, [1, 0])
    with pytest.raises(ZeroDivisionError):
        Concurrency(threads=4).map(lambda number: 1 // number, [1, 0])
    assert Concurrency().map(str, []) == []
