"""Rows kept on the server, apart from the tables that they were read from."""

from typing import Any, cast

from pyspark.sql import DataFrame


def checkpointed(rows: DataFrame) -> DataFrame:
    """The rows as they are now. Unlike cached ones they do not know their tables, which may change meanwhile.

    PySpark 4.1 hands a checkpoint to whichever session of the process is the active one, where it is not found.
    """
    kept = cast("Any", rows.localCheckpoint())
    plan, session = kept._plan, rows.sparkSession  # noqa: SLF001 - there is no other way to say whose it is
    plan._spark_session = session  # noqa: SLF001
    return cast("DataFrame", type(kept)(plan, session))
