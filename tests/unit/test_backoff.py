from datetime import UTC, datetime, timedelta

import pytest

from leanops.backoff import LONGEST, Failures

LAST = datetime(2026, 1, 20, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("count", "tick", "waits"),
    [
        (1, timedelta(minutes=15), timedelta(minutes=30)),
        (2, timedelta(minutes=15), timedelta(hours=1)),
        (4, timedelta(minutes=15), timedelta(hours=4)),
        (5, timedelta(minutes=15), LONGEST),
        (1, timedelta(minutes=1), timedelta(minutes=2)),
        (1, timedelta(hours=12), LONGEST),
        (1_000_000, timedelta(minutes=1), LONGEST),
    ],
)
def test_a_topic_waits_twice_as_long_after_each_failure_and_six_hours_at_most(
    count: int, tick: timedelta, waits: timedelta
) -> None:
    assert Failures(count, LAST).tried_again(tick) == LAST + waits
