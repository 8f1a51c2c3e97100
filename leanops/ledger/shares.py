"""How all rows of a large topic are looked at: in shares by their numbers, each of them by one worker.

A row has the same number wherever it stands. So a worker that has all rows of some numbers, of the layer before, of the
layer and of its errors, counts by itself those that stand where they should. Only the others go on to Spark.
"""

import math
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import pairwise, starmap
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from leanops.batch import blame
from leanops.batch.scan import RowFilter, Scan, Task, packed, tasks_of_topics, unpacked
from leanops.ledger.planned import REFUSED, PlannedLedger, in_place
from leanops.ledger.rows import STOOD
from leanops.ledger.worker import rows_of_share
from leanops.names import Layer
from leanops.standardized.flatten_plan import FlattenPlan
from leanops.standardized.table import plan_of
from leanops.table_files import count_rows

SHARE_ROWS = 200_000
"""So many rows of the layer before are in a share, or thereabouts."""

_ENDS = -(2**61), 2**61
"""Whatever numbers rows claim to have lie between: a range has no room for more."""


@dataclass(frozen=True)
class _Shares:
    """The rows of one layer's ledger, in shares of about as many rows; the last one has those without a number."""

    planned: PlannedLedger
    first: int
    width: int
    count: int

    @classmethod
    def of(cls, planned: PlannedLedger) -> "_Shares":
        files = planned.came_in.table_files
        first = min((each.first_seq for each in files if each.first_seq is not None), default=0)
        last = max((each.last_seq for each in files if each.last_seq is not None), default=first)
        count = max(1, math.ceil(count_rows(files) / SHARE_ROWS))
        return cls(planned, first, math.ceil((last - first + 1) / count), count)

    def tasks(self) -> Iterator[Task]:
        """What the worker of each share reads."""
        inner = [self.first + place * self.width for place in range(1, self.count)]
        edges = [_ENDS[0], *inner, _ENDS[1]]
        for seqs in starmap(range, pairwise(edges)):
            scans = [replace(scan, seqs=seqs) for scan in self.planned.looked_at]
            if self.planned.layer is Layer.STANDARDIZED:
                scans.append(replace(self.planned.messages, seqs=seqs, by="landing_seq"))
            yield from tasks_of_topics(scans)
        yield from tasks_of_topics([_without_number(self.planned.kept)])

    def place(self) -> Column:
        """The share that a row is in, by its number."""
        share = F.floor((F.col("landing_seq") - self.first) / self.width)
        return F.coalesce(F.greatest(F.lit(0), F.least(F.lit(self.count - 1), share)), F.lit(self.count))


def rows_of_shares(spark: SparkSession, planned: Sequence[PlannedLedger], refused: Sequence[DataFrame]) -> DataFrame:
    """Where all rows of a large topic stand, and the messages to be explained. `refused` are its errors."""
    tasks: list[bytes] = []
    share = F.lit(None).cast("bigint")
    for each in planned:
        shares = _Shares.of(each)
        is_own = F.col("role") == in_place(each.layer, REFUSED)
        share = F.when(is_own, shares.place() + len(tasks)).otherwise(share)
        tasks += [packed([task]) for task in shares.tasks()]
    plan, seconds = pickle.dumps(_plan(planned[0])), blame.TOPIC_SECONDS

    def work(key: tuple[Any, ...], rows: pa.Table) -> pa.Table:
        [task] = unpacked(tasks[key[0].as_py()])
        return rows_of_share(task, rows, pickle.loads(plan), seconds)  # noqa: S301 - our own, from above

    # Each share has a row of its own, also where nothing was refused.
    begun = spark.range(len(tasks)).withColumnRenamed("id", "share")
    given = reduce(
        partial(DataFrame.unionByName, allowMissingColumns=True),
        [each.withColumn("share", share) for each in refused],
        begun,
    )
    return given.repartition(len(tasks), "share").groupBy("share").applyInArrow(work, STOOD)


def _plan(planned: PlannedLedger) -> FlattenPlan:
    """The columns that the topic has: many payloads are read faster by them than by a plan that knows the key alone."""
    standardized, contract = planned.request.tables.standardized, planned.request.contract
    assert standardized
    return plan_of(standardized.schema(), contract)


def _without_number(scan: Scan) -> Scan:
    return replace(scan, where=partial(_have_no_number, scan.where), may_hold=lambda file: file.may_lack_seq)


def _have_no_number(are: RowFilter | None, rows: pa.Table) -> pa.ChunkedArray:
    has_none = pc.is_null(rows["landing_seq"])
    return pc.and_(has_none, pc.fill_null(are(rows), False)) if are else has_none
