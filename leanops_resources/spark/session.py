"""A session on the Spark server, with the catalog in it."""

import logging
from typing import Any, cast

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.connect.client.retries import DefaultPolicy

from leanops.errors import SparkUnavailable
from leanops.settings import Settings
from leanops_resources.catalog import IcebergCatalog
from leanops_resources.spark.server import server_url

# Spark's own policy retries for ten minutes. A server that is gone for this long does not come back by itself, and
# what was to be done is done by the next tick.
_PATIENCE = DefaultPolicy(max_retries=8, initial_backoff=50, backoff_multiplier=2, max_backoff=4000)

_SESSION = {
    "spark.sql.session.timeZone": "UTC",
    # Formats are read by Java's own rules, or not at all: these are what the linter checks them by.
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    # Most ticks are small; Spark's own 200 would make each of them 200 tasks. What is large asks for more.
    "spark.sql.shuffle.partitions": "4",
}


def attach(settings: Settings, catalog: IcebergCatalog) -> SparkSession:
    """A new session of its own on the server that `settings` mean."""
    # PySpark logs what it raises, with its whole stack, as JSON, on the terminal; the exception says it once.
    for noisy in ("SQLQueryContextLogger", "pyspark.sql.connect.logging"):
        logging.getLogger(noisy).setLevel(logging.CRITICAL)
    builder = SparkSession.builder.remote(server_url(settings))
    for key, value in {**catalog.spark_conf(), **_SESSION}.items():
        builder = builder.config(key, value)
    try:
        session: SparkSession = builder.create()
    except PySparkException as error:
        where = (settings.spark_remote or "this home's Spark server").partition(";")[0]
        raise SparkUnavailable(
            f"No session could be opened on {where}: {error}.", "Check that it is up and that the token is right."
        ) from error
    client = cast("Any", session).client
    client.set_retry_policies([_PATIENCE])
    return session
