"""What the ledger of one layer of a topic reads, from the tables' metadata alone."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property, reduce
from typing import NamedTuple

from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from leanops.batch.scan import MayHold, RowFilter, Scan, read_tables
from leanops.batch.topics import TopicTables, is_large
from leanops.commits import checkpoint_of, current_id, is_in_doubt
from leanops.contracts.model import Contract
from leanops.errors import LedgerImpossible
from leanops.ledger.account import Account, not_built
from leanops.ledger.pending import PendingRows, built_upto, pending_rows
from leanops.names import SOURCE, Layer, spark_table, table
from leanops.slices import Slice
from leanops.standardized.transform import MESSAGE_COLUMNS
from leanops.tables import find_table

CAME_IN, KEPT, REFUSED, HELD = "came_in", "kept", "refused", "held"
MESSAGES, COPIES = "messages", "copies"

_NAMED = ("landing_seq", "message_id", "publish_time")
_VERSIONS = (*_NAMED, "ingestion_ts", "idempotency_key")


@dataclass(frozen=True)
class LedgerRequest:
    """One layer of one topic whose ledger is asked for, over all its rows or over those of a part."""

    tables: TopicTables
    contract: Contract
    layer: Layer
    part: Slice | None = None

    @property
    def topic(self) -> str:
        return self.tables.topic

    @cached_property
    def source(self) -> Table | None:
        """The table of the layer before."""
        if self.layer is Layer.CURATED:
            return self.tables.standardized
        # A ledger makes no table: RAW is there for certain only if something was built from it.
        is_built = self.tables.standardized is not None
        return self.tables.raw if is_built else find_table(self.tables.catalog, table(Layer.RAW, self.topic))

    @property
    def held(self) -> Table | None:
        """The layer's own table."""
        return self.tables.curated if self.layer is Layer.CURATED else self.tables.standardized


@dataclass(frozen=True)
class TableRows:
    """Rows of one table: which files hold them, and what Spark is told where it looks for them by itself."""

    layer: Layer
    scan: Scan
    condition: str = "true"

    def read(self, spark: SparkSession, shape: StructType) -> DataFrame:
        """The rows by Spark's own reader, as the table stood when their files were found."""
        snapshot = self.scan.snapshot_id or current_id(self.scan.table)
        rows = spark.read.option("versionAsOf", str(snapshot)).table(spark_table(self.layer, self.scan.topic))
        known = {"topic": F.lit(self.scan.topic), "role": F.lit(self.scan.role)}
        others = {each.name: F.lit(None).cast(each.dataType) for each in shape if each.name not in self.scan.columns}
        columns = ((others | known).get(name, F.col(name)).alias(name) for name in shape.names)
        return rows.where(F.expr(self.condition)).select(*columns)


def read_rows(spark: SparkSession, wanted: Iterable[TableRows], shape: StructType) -> DataFrame:
    """Rows of many tables: the small ones are read together by workers, each large one by Spark's own reader."""
    found = [each for each in wanted if each.scan.files]
    large = [each.read(spark, shape) for each in found if is_large(each.scan)]
    small = [each.scan for each in found if not is_large(each.scan)]
    frames = [read_tables(spark, small, shape)] if small or not large else []
    return reduce(DataFrame.unionByName, [*frames, *large])


@dataclass(frozen=True)
class PlannedLedger:
    """What has to be looked at for a layer's accounts."""

    request: LedgerRequest
    source: Table
    held_in: Table
    part: Slice
    upto: int
    """The number of the last message that the layer stands for."""
    read: int
    """The snapshot of the layer before that the layer stands for."""
    waiting: Mapping[date, PendingRows]

    @classmethod
    def of(cls, request: LedgerRequest) -> "PlannedLedger | list[Account]":
        """The plan, with all files found that are certain to be read; or the accounts, where nothing is built yet."""
        layer, source, held = request.layer, request.source, request.held
        if source is None:
            return []
        upto, part = built_upto(held, layer, request.contract), request.part
        waiting = pending_rows(source, upto)
        if part and is_of_days(part):
            waiting = {day: rows for day, rows in waiting.items() if day in part.days}
        if held is None or not upto:
            return list(not_built(request.topic, layer, upto, waiting))
        read = int(checkpoint_of(held)[f"{SOURCE[layer]}-snapshot"])
        if layer is Layer.CURATED and source.snapshot_by_id(read) is None:
            raise LedgerImpossible(
                f"Snapshot {read} of {'.'.join(source.name())}, from which Curated was built, has expired.",
                "Rebuild a day of the topic: Curated is then built from a snapshot that is there.",
            )
        part = Slice(0, upto) if part is None else part.capped(upto)
        planned = cls(request, source, held, part, upto, read, waiting)
        planned.find_files(*planned.places)
        return planned

    @property
    def topic(self) -> str:
        return self.request.topic

    @property
    def layer(self) -> Layer:
        return self.request.layer

    @property
    def bytes(self) -> int:
        return self.came_in.scan.bytes + self.kept.scan.bytes

    @cached_property
    def files(self) -> dict[str, DataFile]:
        """The files that are certain to be read, each once, by their paths."""
        return {task.file.file_path: task.file for each in self.places for task in each.scan.files}

    @property
    def places(self) -> "tuple[TableRows, ...]":
        """The rows that came in, and those in the layer: what is looked at and, where that is a part, all."""
        return (self.came_in, self.kept) if self.part.is_whole else (self.came_in, self.kept, self.held)

    @cached_property
    def came_in(self) -> TableRows:
        """The rows of the layer before that the layer stands for."""
        at = self.read if self.layer is Layer.CURATED else None
        return self._rows(SOURCE[self.layer], CAME_IN, _NAMED, self._taken_in, at)

    @cached_property
    def kept(self) -> TableRows:
        """What stands in the layer, whatever number it claims to have."""
        return self._rows(self.layer, KEPT, _VERSIONS, self._whatever_number)

    @cached_property
    def held(self) -> TableRows:
        """All that stands in the layer."""
        return self._rows(self.layer, HELD, _VERSIONS)

    @property
    def refused(self) -> str:
        """What stands among the layer's errors, as a condition in SQL, whatever number it claims to have.

        A build that was interrupted may have left errors of rows that it has not published: these are not looked at.
        """
        return self.part.text if is_in_doubt(self.held_in) else self._whatever_number.text

    @cached_property
    def messages(self) -> TableRows:
        """The messages that came in, with their payloads."""
        return self._rows(Layer.RAW, MESSAGES, MESSAGE_COLUMNS, self._taken_in)

    @cached_property
    def copies(self) -> TableRows:
        """All messages that the layer stands for, by their ids."""
        landed = Slice(-1, self.upto)
        where = _Condition(landed.holds, landed.text, landed.may_be_in)
        return self._rows(Layer.RAW, COPIES, ("message_id", "landing_seq"), where)

    def find_files(self, *wanted: TableRows) -> None:
        """Find the files that hold rows, which fails for this topic alone."""
        for each in wanted:
            _ = each.scan.files

    @property
    def _taken_in(self) -> "_Condition":
        return _Condition(self.part.holds, self.part.text, self.part.may_be_in)

    @property
    def _whatever_number(self) -> "_Condition":
        part = self.part
        if part.is_whole:
            return _Condition()
        if is_of_days(part):
            return _Condition(part.holds_days_of, f"({part.on_days})", lambda file: file.day in part.days)
        return _Condition(part.holds_or_later, part.open_end, part.may_be_in_or_later)

    def _rows(
        self,
        layer: Layer,
        place: str,
        columns: Sequence[str],
        where: "_Condition | None" = None,
        snapshot: int | None = None,
    ) -> TableRows:
        """Rows of a layer's table, and the place they stand in."""
        held, where = self.held_in if layer is self.layer else self.source, where or _Condition()
        role = f"{self.layer} {place}"
        scan = Scan(self.topic, held, tuple(columns), where.rows, where.may_hold, snapshot, role)
        return TableRows(layer, scan, where.text)


class _Condition(NamedTuple):
    """Which rows are wanted: as workers ask for them, as Spark does, and of a file by its metadata."""

    rows: RowFilter | None = None
    text: str = "true"
    may_hold: MayHold = lambda _: True


def is_of_days(part: Slice) -> bool:
    """Whether a part is of whole days alone: then these are all days that an account is given of."""
    return bool(part.days) and not part.rows_landed
