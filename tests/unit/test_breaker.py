"""The circuit breaker: when it opens, when it tries again, and what a clock can do to it."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leanops.ingestion.breaker import LEAST, PAUSE, WINDOW, Batch, Breaker, Circuit
from leanops_resources.state.json_text import breaker_of, breaker_text

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
OPEN = Breaker().after(0, 100, NOON)
TRIAL = OPEN.at(NOON + PAUSE)


def test_a_new_breaker_is_closed() -> None:
    assert Breaker().circuit is Circuit.CLOSED
    assert Breaker().at(NOON) == Breaker()


@pytest.mark.parametrize(
    ("batches", "circuit"),
    [
        ([(0, LEAST - 1)], Circuit.CLOSED),
        ([(0, LEAST)], Circuit.OPEN),
        ([(LEAST // 2, LEAST // 2)], Circuit.CLOSED),
        ([(500, 500)], Circuit.CLOSED),
        ([(499, 500)], Circuit.OPEN),
        ([(500, 499)], Circuit.CLOSED),
        ([(0, 10), (0, 9)], Circuit.CLOSED),
        ([(0, 10), (0, 10)], Circuit.OPEN),
        ([(100, 0), (0, 100)], Circuit.CLOSED),
        ([(100, 0), (0, 101)], Circuit.OPEN),
        ([(0, 19), (20, 0)], Circuit.CLOSED),
        ([(0, 0)] * 100, Circuit.CLOSED),
        ([(1000, 0)], Circuit.CLOSED),
    ],
)
def test_it_opens_when_more_than_half_of_enough_messages_fail(batches: list[tuple[int, int]], circuit: Circuit) -> None:
    breaker = Breaker()
    for number, (good, failed) in enumerate(batches):
        breaker = breaker.after(good, failed, NOON + number * SECOND)
    assert breaker.circuit is circuit
    assert (breaker.opened is None, breaker.reason is None) == (circuit is Circuit.CLOSED,) * 2


def test_it_says_why_it_opened() -> None:
    assert Breaker().after(500, 1500, NOON).reason == "1,500 of 2,000 messages failed (75 %) within 5 minutes."
    assert TRIAL.after(1, 9, NOON + PAUSE).reason == "9 of 10 messages failed (90 %) of the trial batch."
    assert OPEN.after(0, 5, NOON + SECOND).reason == "105 of 105 messages failed (100 %) within 5 minutes."


@pytest.mark.parametrize(
    ("later", "circuit"),
    [(WINDOW, Circuit.OPEN), (WINDOW + SECOND, Circuit.CLOSED), (-WINDOW, Circuit.OPEN), (-2 * WINDOW, Circuit.CLOSED)],
)
def test_a_window_forgets_what_is_older_whichever_way_the_clock_went(later: timedelta, circuit: Circuit) -> None:
    breaker = Breaker().after(0, LEAST - 1, NOON)
    assert breaker.after(0, 1, NOON + later).circuit is circuit


def test_good_messages_of_an_hour_ago_do_not_make_up_for_bad_ones_of_now() -> None:
    breaker = Breaker().after(100_000, 0, NOON - timedelta(hours=1))
    assert breaker.after(0, 20, NOON).circuit is Circuit.OPEN


@given(st.lists(st.tuples(st.integers(-1_000_000, 1_000_000), st.integers(0, 3)), max_size=300))
def test_a_window_has_few_parts_and_forgets_nothing_that_is_new(batches: list[tuple[int, int]]) -> None:
    """However many batches there are, and however the clock jumps, a breaker can be saved."""
    breaker, moment = Breaker(), NOON
    for milliseconds, good in batches:
        moment += timedelta(milliseconds=milliseconds)
        before = sum(batch.good for batch in breaker.window if abs(moment - batch.at) <= WINDOW)
        breaker = breaker.after(good, 0, moment)
        assert sum(batch.good for batch in breaker.window) == before + good or not good
        assert len(breaker.window) <= 61
        assert len({batch.at for batch in breaker.window}) == len(breaker.window)


def test_a_busy_topic_has_a_window_that_can_be_saved() -> None:
    breaker = Breaker()
    for number in range(12_000):
        breaker = breaker.after(9, 1, NOON + number * timedelta(milliseconds=25))
    assert sum(batch.good + batch.failed for batch in breaker.window) == 120_000
    assert len(breaker_text(breaker)) < 4_000


# Open, half open, closed


@pytest.mark.parametrize(
    ("later", "circuit"),
    [
        (timedelta(0), Circuit.OPEN),
        (PAUSE - timedelta(microseconds=1), Circuit.OPEN),
        (PAUSE, Circuit.HALF_OPEN),
        (timedelta(days=400), Circuit.HALF_OPEN),
        # A clock that was set back
        (-SECOND, Circuit.OPEN),
        (-PAUSE, Circuit.HALF_OPEN),
        (timedelta(days=-400), Circuit.HALF_OPEN),
    ],
)
def test_an_open_breaker_tries_again_after_a_pause(later: timedelta, circuit: Circuit) -> None:
    assert OPEN.at(NOON + later).circuit is circuit


def test_one_that_nobody_knows_when_it_opened_tries_again() -> None:
    assert Breaker(Circuit.OPEN).at(NOON).circuit is Circuit.HALF_OPEN


@pytest.mark.parametrize(
    ("good", "failed", "circuit"),
    [
        (10, 0, Circuit.CLOSED),
        (1, 0, Circuit.CLOSED),
        (5, 5, Circuit.CLOSED),
        (4, 5, Circuit.OPEN),
        (0, 1, Circuit.OPEN),
        (0, 10, Circuit.OPEN),
        (0, 0, Circuit.HALF_OPEN),
    ],
)
def test_a_trial_batch_decides_however_small_it_is(good: int, failed: int, circuit: Circuit) -> None:
    assert TRIAL.after(good, failed, NOON + PAUSE).circuit is circuit


def test_a_trial_that_fails_is_followed_by_another_pause() -> None:
    failed = TRIAL.after(0, 10, NOON + PAUSE)
    assert failed.opened == NOON + PAUSE
    assert failed.at(NOON + 2 * PAUSE - SECOND).circuit is Circuit.OPEN
    assert failed.at(NOON + 2 * PAUSE).circuit is Circuit.HALF_OPEN


def test_a_closed_breaker_begins_anew() -> None:
    closed = TRIAL.after(10, 0, NOON + PAUSE)
    assert (closed.opened, closed.reason) == (None, None)
    assert [(batch.good, batch.failed) for batch in closed.window] == [(10, 0)]
    assert closed.after(0, 10, NOON + PAUSE).circuit is Circuit.CLOSED
    assert closed.after(0, 11, NOON + PAUSE).circuit is Circuit.OPEN


def test_a_batch_that_was_under_way_when_it_opened_does_not_close_it() -> None:
    assert OPEN.after(10, 0, NOON + SECOND).circuit is Circuit.OPEN
    assert OPEN.after(10_000, 0, NOON + SECOND).circuit is Circuit.OPEN
    assert OPEN.after(10_000, 0, NOON + SECOND).opened == NOON


def test_a_breaker_is_a_value() -> None:
    before = breaker_text(OPEN)
    OPEN.at(NOON + PAUSE).after(10, 0, NOON)
    assert breaker_text(OPEN) == before


MOMENTS = st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
BREAKERS = st.builds(
    Breaker,
    st.sampled_from(Circuit),
    st.lists(st.builds(Batch, MOMENTS, st.integers(0, 2**40), st.integers(0, 2**40)), max_size=5).map(tuple),
    st.none() | MOMENTS,
    st.sampled_from([None, "", '19 of 20 messages failed, since it\'s "Größe"\n\0']),
)


@given(BREAKERS)
def test_a_breaker_is_the_same_when_it_has_been_saved(breaker: Breaker) -> None:
    assert breaker_of(breaker_text(breaker)) == breaker


@given(BREAKERS, st.lists(st.tuples(MOMENTS, st.integers(0, 50), st.integers(0, 50)), max_size=20))
def test_whatever_the_clock_does_messages_pass_again_when_they_are_good(
    breaker: Breaker, batches: list[tuple[datetime, int, int]]
) -> None:
    for moment, good, failed in batches:
        breaker = breaker.at(moment).after(good, failed, moment)
        if breaker.circuit is Circuit.OPEN and failed * 2 > good + failed:
            assert breaker.reason
    moment = (breaker.opened or NOON) + PAUSE
    assert breaker.at(moment).circuit is not Circuit.OPEN
    trial = Breaker(Circuit.OPEN, breaker.window, breaker.opened).at(moment)
    assert trial.after(1, 0, moment).circuit is Circuit.CLOSED
