"""Facts about rows, counted while the rows are on their way to somewhere else."""

from functools import cached_property
from typing import Any

from pyspark.sql import Column, DataFrame, Observation


class Observed:
    """`rows`, whose `facts` are known as soon as something has been done with them.

    Spark hands over what it observed with the answer to a query, and waits a moment for it. On a busy server the moment
    passes, and there is nothing: then the rows are counted once more.
    """

    def __init__(self, rows: DataFrame, **facts: Column) -> None:
        self._uncounted = rows
        self._asked = [fact.alias(name) for name, fact in facts.items()]
        self._observation = Observation()
        self.rows = rows.observe(self._observation, *self._asked)

    @cached_property
    def facts(self) -> dict[str, Any]:
        """The facts by their names. To be asked for after the rows have been used."""
        counted: dict[str, Any] = self._observation.get or self._uncounted.agg(*self._asked).collect()[0].asDict()
        return counted
