"""Work that takes too long is interrupted, and its session goes on."""

import signal
import threading
import time
from datetime import timedelta

import pytest
from pyspark.sql import SparkSession

from leanops.errors import StepTimedOut
from leanops_resources.spark import time_limit
from leanops_resources.spark.time_limit import TimeLimit
from tests.hanging import LONG_SECONDS, hang

SOON = timedelta(seconds=1.2)


def test_what_takes_too_long_is_interrupted_and_the_session_can_be_used_on(shared_spark: SparkSession) -> None:
    hang(shared_spark, seconds=0)
    begun = time.monotonic()
    said = r"The build of orders was interrupted after 0\.02 minutes\."
    with pytest.raises(StepTimedOut, match=said), TimeLimit("The build of orders", SOON, lambda: shared_spark) as limit:
        hang(limit.session())
    assert time.monotonic() - begun < LONG_SECONDS / 10
    assert shared_spark.range(10).count() == 10


def test_what_hangs_in_python_is_interrupted_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_limit, "_COMES_BACK_SECONDS", 0)
    before = signal.getsignal(signal.SIGUSR1)
    begun = time.monotonic()
    with (
        pytest.raises(StepTimedOut, match="The build of orders was interrupted"),
        TimeLimit("The build of orders", SOON, lambda: pytest.fail("Spark was asked for")),
    ):
        threading.Event().wait(LONG_SECONDS)
    assert time.monotonic() - begun < LONG_SECONDS / 10
    assert signal.getsignal(signal.SIGUSR1) is before


def test_what_is_begun_after_the_time_is_up_does_not_begin(shared_spark: SparkSession) -> None:
    with TimeLimit("It", timedelta(0), lambda: shared_spark) as limit:
        time.sleep(0.5)
        with pytest.raises(StepTimedOut):
            limit.session()


def test_faults_in_time_are_told_as_they_are_and_later_ones_as_what_they_come_from(shared_spark: SparkSession) -> None:
    fault = ValueError("another matter")
    with pytest.raises(ValueError, match="another matter"), TimeLimit("It", timedelta(hours=1), lambda: shared_spark):
        raise fault
    with TimeLimit("It", timedelta(hours=1), lambda: shared_spark) as limit:
        assert limit.named(fault) is fault
    with TimeLimit("It", timedelta(0), lambda: shared_spark) as limit:
        time.sleep(0.5)
        assert isinstance(limit.named(fault), StepTimedOut)


def test_what_is_done_in_time_is_not_interrupted_afterwards(shared_spark: SparkSession) -> None:
    with TimeLimit("It", timedelta(seconds=5), lambda: shared_spark) as limit:
        assert limit.session().range(3).count() == 3
    assert shared_spark.range(10).count() == 10
