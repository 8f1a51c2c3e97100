"""A session on the Spark server, with the catalog in it."""

import logging
import time
import warnings
from typing import Any, cast

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.connect.client.retries import DefaultPolicy, RetryPolicy, RetryPolicyState

from leanops.errors import SparkUnavailable
from leanops.home import Home
from leanops.settings import Settings
from leanops_resources.catalog import IcebergCatalog
from leanops_resources.spark.faults import describe, let_go
from leanops_resources.spark.server import running, server_url

_GIVE_UP_SECONDS = 30


class _Patience(DefaultPolicy):
    """Spark's own policy retries for ten minutes, and more where a server asks for it.

    A server that is gone for some seconds does not come back by itself, and what was to be done is done by the next
    tick. Each attempt to reach a machine that is gone takes up to 20 s, so the time counts as well as the attempts.
    """

    def __init__(self) -> None:
        super().__init__(
            max_retries=8,
            initial_backoff=50,
            backoff_multiplier=2,
            max_backoff=4000,
            recognize_server_retry_delay=False,
        )

    def to_state(self) -> RetryPolicyState:
        return _PatienceLeft(self)


class _PatienceLeft(RetryPolicyState):
    def __init__(self, policy: RetryPolicy) -> None:
        super().__init__(policy)
        self._ends = time.monotonic() + _GIVE_UP_SECONDS

    def next_attempt(self, exception: BaseException | None = None) -> int | None:
        return None if time.monotonic() > self._ends else super().next_attempt(exception)


_SESSION = {
    "spark.sql.session.timeZone": "UTC",
    # Formats are read by Java's own rules, or not at all: these are what the linter checks them by.
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    # Most ticks are small; Spark's own 200 would make each of them 200 tasks. What is large asks for more.
    "spark.sql.shuffle.partitions": "4",
    # Rows that are together by topic are joined by more than the topic without being shuffled again.
    "spark.sql.requireAllClusterKeysForCoPartition": "false",
    # What could be inferred of a row is worked out for each way to name its columns: of a contract with its casts and
    # rules there are so many that planning took minutes, and all memory.
    "spark.sql.constraintPropagation.enabled": "false",
}


def attach(settings: Settings, catalog: IcebergCatalog) -> SparkSession:
    """A new session of its own on the server that `settings` mean. A home's server that has just died is replaced."""
    # PySpark logs what it raises, with its whole stack, as JSON, on the terminal; the exception says it once.
    for noisy in ("SQLQueryContextLogger", "pyspark.sql.connect.logging"):
        logging.getLogger(noisy).setLevel(logging.CRITICAL)
    warnings.filterwarnings("ignore", message=r"\[RETRIES_EXCEEDED\]")
    url = server_url(settings)
    try:
        return _session(url, settings, catalog)
    except SparkUnavailable:
        if settings.spark_remote or running(Home(settings.home)):
            raise
    return _session(server_url(settings), settings, catalog)


def _session(url: str, settings: Settings, catalog: IcebergCatalog) -> SparkSession:
    # Whatever is configured while the session is made would be sent before it has a policy of ours.
    session: SparkSession = SparkSession.builder.remote(url).create()
    cast("Any", session).client.set_retry_policies([_Patience()])
    try:
        for key, value in {**catalog.spark_conf(), **_SESSION}.items():
            session.conf.set(key, value)
    except Exception as error:
        let_go(session)
        if not isinstance(error, PySparkException):
            raise
        where = (settings.spark_remote or "this home's Spark server").partition(";")[0]
        raise SparkUnavailable(
            f"No session could be opened on {where}: {describe(error)}.",
            "Check that it is up and that the token is right.",
        ) from error
    return session
