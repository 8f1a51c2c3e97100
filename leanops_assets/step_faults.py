"""What becomes of a step that fails: tried again where the fault may pass by itself, and counted where it stays."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import dagster as dg

from leanops.errors import LandingConflict, LeanOpsError, SparkUnavailable, StateBusy, StateStoreUnavailable
from leanops_resources.dagster_resources import SparkConnectResource
from leanops_resources.state.store import StateStore

TRANSIENT = (SparkUnavailable, StateBusy, StateStoreUnavailable, LandingConflict)
"""What may be over in a moment. Everything else would fail again."""

RETRIES = 1
"""What fails twice is left to the next tick: other topics wait for this run."""

RETRY_SECONDS = 10


@contextmanager
def failure_noted(store: StateStore, topic: str) -> Iterator[None]:
    """Count what fails, so that the tick leaves the topic alone for a while. Its last layer's success ends that."""
    try:
        yield
    except dg.RetryRequested:
        raise
    except Exception:
        # What went wrong is the news, even where it cannot be counted.
        with suppress(LeanOpsError):
            store.note_failure(topic)
        raise


@contextmanager
def transient_retried(context: dg.AssetExecutionContext, spark: SparkConnectResource) -> Iterator[None]:
    """Ask for another try after a fault that may be over by then."""
    try:
        yield
    except Exception as error:
        fault = spark_fault(error, spark)
        if isinstance(fault, TRANSIENT) and context.retry_number < RETRIES:
            context.log.warning("Tried again in %s s: %s", RETRY_SECONDS, fault)
            raise dg.RetryRequested(RETRIES, RETRY_SECONDS) from fault
        if fault is error:
            raise
        raise fault from None


def spark_fault(error: Exception, spark: SparkConnectResource) -> Exception:
    """The fault itself, or what is wrong with Spark's server."""
    return error if isinstance(error, LeanOpsError) else spark.fault(error)
