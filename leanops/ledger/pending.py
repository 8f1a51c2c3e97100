"""Rows that a layer has not built yet: what the layer before holds above the number that the layer stands for.

They are counted in the data, by what the files say of themselves; only files that hold other rows as well are read. So
a million messages that wait for their topic's contract are counted in milliseconds.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import BooleanExpression, GreaterThan, IsNull, Or
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.table import FileScanTask, Table

from leanops.commits import checkpoint_of
from leanops.contracts.model import Contract
from leanops.names import Layer
from leanops.standardized.table import is_mapped_by
from leanops.table_files import NO_DAY, table_files

_READ = ("landing_seq", "publish_time", "ingestion_ts")


@dataclass(frozen=True)
class PendingRows:
    """Rows of a day that a layer has not built yet, and when the first of them landed, in seconds since 1970."""

    rows: int = 0
    landed: int | None = None

    @property
    def since(self) -> datetime | None:
        return None if self.landed is None else datetime.fromtimestamp(self.landed, UTC)

    def __str__(self) -> str:
        """The same for people."""
        since = f" since {self.since:%Y-%m-%d %H:%M:%S} UTC" if self.since else ""
        return f"{'1 row is' if self.rows == 1 else f'{self.rows:,} rows are'} pending{since}"

    def and_also(self, others: "PendingRows") -> "PendingRows":
        landed = [each.landed for each in (self, others) if each.landed is not None]
        return PendingRows(self.rows + others.rows, min(landed, default=None))


def built_upto(held: Table | None, layer: Layer, contract: Contract | None) -> int:
    """The number of the last message that a layer stands for; 0 while it was not built for what the contract says."""
    said = checkpoint_of(held)
    if contract is not None:
        is_standardized = layer is Layer.STANDARDIZED
        if not (is_mapped_by(held, contract) if is_standardized else said.get("contract") == contract.fingerprint):
            return 0
    return int(said.get("upto", 0))


def pending_rows(source: Table, upto: int) -> dict[date, PendingRows]:
    """The rows of a layer above a number, by publish day; what has no number yet is among them."""
    where = Or(GreaterThan(term="landing_seq", value=upto), IsNull(term="landing_seq"))
    found: defaultdict[date, PendingRows] = defaultdict(PendingRows)
    mixed: list[FileScanTask] = []
    for each in table_files(source):
        if not each.may_lack_seq and not each.may_hold(upto, each.last_seq or 0):
            continue
        if each.task.delete_files or each.first_seq is None or each.first_seq <= upto:
            mixed.append(each.task)
        else:
            found[each.day] = found[each.day].and_also(PendingRows(each.file.record_count, each.landed))
    for day, rows in _read(source, mixed, where):
        found[day] = found[day].and_also(rows)
    return {day: rows for day, rows in found.items() if rows.rows}


def _read(table: Table, tasks: list[FileScanTask], where: BooleanExpression) -> Iterator[tuple[date, PendingRows]]:
    """The rows of files that hold others as well."""
    scan = ArrowScan(table.metadata, table.io, table.schema().select(*_READ), where)
    for batch in scan.to_record_batches(tasks) if tasks else ():
        rows = pa.table({"day": pc.cast(batch["publish_time"], pa.date32()), "landed": batch["ingestion_ts"]})
        for row in rows.group_by("day").aggregate([([], "count_all"), ("landed", "min")]).to_pylist():
            yield row["day"] or NO_DAY, PendingRows(row["count_all"], row["landed_min"])
