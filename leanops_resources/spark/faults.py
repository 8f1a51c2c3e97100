"""How a Spark server that is gone is recognised, and told so that a person can read it."""

import warnings
from typing import TYPE_CHECKING, Any, cast

from leanops.errors import SparkUnavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LONGEST = 300


def let_go(session: "SparkSession") -> None:
    """End a session without waiting for a server that may be gone."""
    client = cast("Any", session).client
    client.set_retry_policies([])
    with warnings.catch_warnings():
        # That the server could not be told of it is no news, and PySpark tells it by a method that is deprecated.
        warnings.simplefilter("ignore")
        session.stop()
    # PySpark 4.1 closes the client once more when the collector finds the session. It shuts the thread pool of all
    # sessions down then, wherever the collector has come by: inside of that pool's own lock it waits for itself for
    # ever. Fixed in later versions (SPARK-55020, SPARK-55362, SPARK-55406).
    client.close = _closed_already


def _closed_already() -> None:
    """Nothing is left to close."""


def went_away(error: BaseException, what: str) -> SparkUnavailable:
    """What is told of an error that came of the server's end, where `what` was being done."""
    return SparkUnavailable(
        f"The Spark server went away during {what}: {describe(error)}.", "It is started anew by whoever needs it next."
    )


def describe(error: BaseException) -> str:
    """An error of Spark's or gRPC's in one line, without stack, plan and debug strings."""
    lines = [line.strip() for line in str(error).strip().splitlines()] or [type(error).__name__]
    details = [line for line in lines if line.startswith("details = ")]
    said = details[0].removeprefix("details = ").strip('"') if details else lines[0]
    return (said if len(said) <= _LONGEST else f"{said[:_LONGEST]}…").rstrip(".")
