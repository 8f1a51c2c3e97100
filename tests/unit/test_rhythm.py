"""When a topic has gone silent against its own rhythm."""

from datetime import UTC, datetime, timedelta

from leanops.raw.rhythm import silence

NOON = datetime(2026, 1, 10, 12, tzinfo=UTC)


def every(pause: timedelta, times: int) -> list[datetime]:
    return [NOON - pause * number for number in range(times)]


def after(hours: float) -> datetime:
    return NOON + timedelta(hours=hours)


def test_a_topic_is_silent_after_three_of_its_usual_pauses() -> None:
    daily = every(timedelta(days=1), 10)
    usual, too_long = silence(daily, after(71)), silence(daily, after(73))
    assert usual
    assert not usual.is_too_long
    assert too_long
    assert too_long.is_too_long
    assert too_long.since == NOON


def test_a_busy_topic_is_given_an_hour() -> None:
    busy = every(timedelta(minutes=1), 100)
    assert [found.is_too_long for hours in (0.9, 1.1) if (found := silence(busy, after(hours)))] == [False, True]


def test_one_long_pause_among_many_does_not_count() -> None:
    landings = [NOON - timedelta(days=30), *every(timedelta(hours=1), 40)]
    found = silence(landings, after(4))
    assert found
    assert found.is_too_long


def test_a_topic_that_has_hardly_begun_has_no_rhythm() -> None:
    found = silence(every(timedelta(hours=1), 5), after(1000))
    assert found
    assert found.usual is None
    assert not found.is_too_long
    assert silence([], NOON) is None


def test_the_contract_has_the_last_word() -> None:
    found = silence([NOON], after(2), limit=timedelta(hours=1))
    assert found
    assert found.is_too_long
