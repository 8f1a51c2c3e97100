"""The program that a home's Spark server runs: Spark Connect in a driver whose sessions share one Python daemon.

Spark's own `SparkConnectServer` keeps apart what sessions upload, so each session has a Python daemon of its own, which
takes a second to start and 150 MB. Ours upload nothing. That can only be told to a server that Spark's plugin starts.
"""

from contextlib import suppress
from typing import Any, cast

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

SERVICE = "org.apache.spark.sql.connect.service.SparkConnectService$"


def serve() -> None:
    """Say which port clients are served on, and serve them until the server is told to end."""
    session = SparkSession.builder.getOrCreate()
    # There is no public way to ask for a port that the system chose.
    service = getattr(getattr(cast("Any", session)._jvm, SERVICE), "MODULE$")  # noqa: SLF001
    print(f"Spark Connect server started at: 127.0.0.1:{service.localPort()}", flush=True)
    # What is waited for ends with the JVM, however that ends.
    with suppress(Py4JError, OSError):
        service.server().awaitTermination()


if __name__ == "__main__":
    serve()
