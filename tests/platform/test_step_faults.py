"""Which faults of a step are tried again, and which are counted."""

import re
from collections.abc import Callable, Sequence
from datetime import timedelta

import pytest
from pyspark.sql import SparkSession

from leanops.errors import ContractBreaking, LandingConflict, SparkUnavailable, StateBusy, StateStoreUnavailable
from leanops.home import Home
from leanops.names import Layer
from leanops.standardized.job import StandardizedJob
from leanops.standardized.planned import PlannedStandardized
from leanops_assets import run_batch, step_faults
from leanops_assets.specs import asset_key
from leanops_resources.dagster_resources import SparkConnectResource
from leanops_resources.spark.time_limit import TimeLimit
from leanops_resources.state.sqlite import SqliteStateStore
from tests.conftest import EXAMPLES, Said
from tests.hanging import hang
from tests.platform.test_tick import Run, run

Leanops = Callable[..., Said]


@pytest.fixture
def spark_says(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Exception]]:
    """Whoever asks for Spark meets these faults, and the last of them for good; which were met."""
    monkeypatch.setattr(step_faults, "RETRY_SECONDS", 0)

    def set_up(*faults: Exception) -> list[Exception]:
        met: list[Exception] = []

        def refuse(_: SparkConnectResource) -> None:
            met.append(faults[min(len(met), len(faults) - 1)])
            raise met[-1]

        monkeypatch.setattr(SparkConnectResource, "_init_session", refuse)
        return met

    return set_up


def failed_run(home: Home, leanops: Leanops) -> Run:
    leanops("land", "orders", EXAMPLES / "orders.ndjson")
    layers = [asset_key(layer, "orders") for layer in (Layer.STANDARDIZED, Layer.CURATED)]
    failed = run(home, "2026-01-15", layers, raise_on_error=False)
    assert not failed.success
    return failed


@pytest.mark.parametrize("fault", [SparkUnavailable, StateBusy, StateStoreUnavailable, LandingConflict])
def test_a_fault_that_may_be_over_in_a_moment_is_tried_once_more_and_is_one_failure(
    fault: type[Exception], home: Home, leanops: Leanops, spark_says: Callable[..., list[Exception]]
) -> None:
    met = spark_says(fault("It is not there.", "Wait."))
    failed = failed_run(home, leanops)
    assert len(met) == 2
    assert len([event for event in failed.all_events if event.is_step_up_for_retry]) == 1
    assert SqliteStateStore(home.state).failures()["orders"].count == 1


@pytest.mark.parametrize("fault", [ContractBreaking("It cannot.", "Mend it."), ValueError("no"), ConnectionError("no")])
def test_any_other_fault_is_not_tried_again(
    fault: Exception, home: Home, leanops: Leanops, spark_says: Callable[..., list[Exception]]
) -> None:
    met = spark_says(fault)
    failed_run(home, leanops)
    assert len(met) == 1
    assert SqliteStateStore(home.state).failures()["orders"].count == 1


def test_what_is_wrong_at_the_second_try_is_what_is_told(
    home: Home, leanops: Leanops, spark_says: Callable[..., list[Exception]]
) -> None:
    spark_says(SparkUnavailable("It is not there.", "Wait."), ValueError("another matter"))
    leanops("land", "orders", EXAMPLES / "orders.ndjson")
    said = leanops("tick")
    assert said.exit_code == 1
    assert "error: orders failed: ValueError: another matter" in said.err


def test_a_build_that_hangs_fails_its_topic_alone(
    warm_home: Home, spark: SparkSession, leanops: Leanops, monkeypatch: pytest.MonkeyPatch
) -> None:
    hang(spark, seconds=0)

    def soon(what: str, _: timedelta, sessions: Callable[[], SparkSession]) -> TimeLimit:
        return TimeLimit(what, timedelta(seconds=15), sessions)

    def hang_for_orders(job: StandardizedJob, session: SparkSession, planned: Sequence[PlannedStandardized]) -> object:
        if "orders" in [each.topic for each in planned]:
            hang(session)
        return decide(job, session, planned)

    decide = StandardizedJob.decide
    for topic in ("orders", "payments"):
        leanops("land", topic, EXAMPLES / f"{topic}.ndjson")
    monkeypatch.setattr(run_batch, "TimeLimit", soon)
    monkeypatch.setattr(StandardizedJob, "decide", hang_for_orders)
    said = leanops("tick")
    assert said.exit_code == 1
    assert (
        "error: orders failed: leanops.errors.StepTimedOut: The build of standardized/orders was interrupted"
        in said.err
    )
    assert re.search(r"^payments +curated", said.out, re.MULTILINE)
    assert {topic: failed.count for topic, failed in SqliteStateStore(warm_home.state).failures().items()} == {
        "orders": 1
    }


def test_a_build_whose_session_is_lost_is_tried_again_with_another(
    warm_home: Home, leanops: Leanops, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost: list[SparkSession] = []

    def lose_the_first(job: StandardizedJob, session: SparkSession, planned: Sequence[PlannedStandardized]) -> object:
        if not lost:
            lost.append(session)
            session.stop()
            session.range(3).count()
        return decide(job, session, planned)

    decide = StandardizedJob.decide

    monkeypatch.setattr(step_faults, "RETRY_SECONDS", 0)
    monkeypatch.setattr(StandardizedJob, "decide", lose_the_first)
    leanops("land", "payments", EXAMPLES / "payments.ndjson")
    said = leanops("tick")
    assert said.exit_code == 0, said.err
    assert re.search(r"^payments +curated", said.out, re.MULTILINE)
    assert SqliteStateStore(warm_home.state).failures() == {}
