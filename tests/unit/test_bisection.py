"""Work on batches that hold poison: the others are done, and the poison is found alone."""

from collections.abc import Callable, Sequence
from itertools import chain
from math import ceil, log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leanops.ingestion.bisection import MOST_POISON, bisect
from leanops.raw.envelope import EnvelopeMalformed


class Work:
    """Work that fails on a batch with any of the poison in it, and remembers what it was asked to do."""

    def __init__(self, poison: set[int], fault: Callable[[int], Exception] = KeyError) -> None:
        self.poison = poison
        self.fault = fault
        self.calls: list[list[int]] = []

    def __call__(self, batch: Sequence[int]) -> list[int]:
        self.calls.append(list(batch))
        for message in batch:
            if message in self.poison:
                raise self.fault(message)
        return list(batch)


POISONED = st.integers(0, 1000).flatmap(
    lambda n: st.tuples(st.just(n), st.sets(st.integers(0, max(0, n - 1)), max_size=MOST_POISON))
)


def test_a_batch_without_poison_is_worked_on_once() -> None:
    work = Work(set())
    done = bisect(range(1000), work)
    assert done.results == [list(range(1000))]
    assert (done.poison, done.untried, len(work.calls)) == ([], [], 1)


def test_no_messages_are_no_work() -> None:
    work = Work(set())
    done = bisect([], work)
    assert (done.results, done.poison, done.untried, work.calls) == ([], [], [], [])


@pytest.mark.parametrize(
    ("n", "poison", "calls"),
    [
        (1, {0}, [[0]]),
        (2, {0}, [[0, 1], [0], [1]]),
        (2, {1}, [[0, 1], [0], [1]]),
        (2, {0, 1}, [[0, 1], [0], [1]]),
        (3, {1}, [[0, 1, 2], [0], [1, 2], [1], [2]]),
        (4, {3}, [[0, 1, 2, 3], [0, 1], [2, 3], [2], [3]]),
    ],
)
def test_each_half_is_worked_on_the_first_half_first(n: int, poison: set[int], calls: list[list[int]]) -> None:
    work = Work(poison)
    done = bisect(range(n), work)
    assert work.calls == calls
    assert [message for message, _ in done.poison] == sorted(poison)


@given(POISONED)
def test_poison_is_found_alone_and_all_others_are_done_once_and_in_their_order(case: tuple[int, set[int]]) -> None:
    n, poison = case[0], case[1] & set(range(case[0]))
    work = Work(poison)
    done = bisect(range(n), work)
    assert list(chain(*done.results)) == [message for message in range(n) if message not in poison]
    assert [message for message, _ in done.poison] == sorted(poison)
    assert [error.args for _, error in done.poison] == [(message,) for message in sorted(poison)]
    assert done.untried == []
    assert len(work.calls) <= 1 + 2 * len(poison) * ceil(log2(max(n, 2)))


@given(st.integers(0, 300), st.integers(0, 300))
def test_when_more_are_poison_the_rest_is_not_tried(n: int, good: int) -> None:
    """The first messages are good, and then all are poison."""
    good = min(n, good)
    work = Work(set(range(good, n)))
    done = bisect(range(n), work)
    found = [message for message, _ in done.poison]
    assert list(chain(*done.results)) == list(range(good))
    assert found == list(range(good, min(n, good + MOST_POISON)))
    assert done.untried == list(range(good + len(found), n))
    assert len(work.calls) <= 1 + 2 * (MOST_POISON + 1) * ceil(log2(max(n, 2)))


def test_parts_that_are_good_are_done_behind_too_much_poison() -> None:
    done = bisect(range(1024), Work(set(range(64))))
    assert len(done.poison) == MOST_POISON
    assert done.untried == list(range(MOST_POISON, 64))
    assert list(chain(*done.results)) == list(range(64, 1024))


def test_a_transient_fault_is_raised_and_blamed_on_nobody() -> None:
    work = Work({500}, lambda _: TimeoutError("The outside does not answer."))
    with pytest.raises(TimeoutError, match="does not answer"):
        bisect(range(1000), work)
    assert len(work.calls) == 1


def test_a_transient_fault_is_raised_in_the_midst_of_the_search_too() -> None:
    work = Work({500, 900}, lambda message: KeyError() if message == 500 else TimeoutError("The outside"))
    with pytest.raises(TimeoutError, match="The outside"):
        bisect(range(1000), work)
    assert work.calls[-1][-1] == 999


def test_a_malformed_message_is_poison_to_work_that_meets_it() -> None:
    done = bisect(range(4), Work({2}, lambda _: EnvelopeMalformed("It has no payload.")))
    assert [(message, str(error)) for message, error in done.poison] == [(2, "It has no payload.")]


def test_what_ends_the_process_ends_the_work() -> None:
    def interrupted(_: Sequence[int]) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bisect(range(4), interrupted)
