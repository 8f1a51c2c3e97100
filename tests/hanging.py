"""Work in Spark that does not end by itself, as when a payload sends its reader round in circles."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import SparkSession

LONG_SECONDS = 600


def hang(spark: "SparkSession", seconds: float = LONG_SECONDS) -> int:
    """Count a few rows, which takes ten minutes.

    Have it done at once before: Spark forgets to end the tasks of a job that is interrupted in its first moments, which
    on a server that has done nothing yet are seconds.
    """

    # Spark's workers do not know this module: only a function inside of one is sent to them whole.
    def slowly(batches: "Iterator[pd.DataFrame]") -> "Iterator[pd.DataFrame]":
        import time

        for batch in batches:
            time.sleep(seconds)
            yield batch

    return spark.range(10).mapInPandas(slowly, "id long").count()
