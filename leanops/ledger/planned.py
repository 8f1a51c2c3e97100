"""What the ledger of one layer of a topic reads, from the tables' metadata alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property, partial
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from leanops.batch.scan import MayHold, RowFilter, Scan
from leanops.batch.topics import TopicTables
from leanops.commits import checkpoint_of, is_in_doubt
from leanops.contracts.model import Contract
from leanops.errors import LedgerImpossible
from leanops.key_index.file import Kind
from leanops.key_index.table import index_of_topic
from leanops.ledger.account import Account, not_built
from leanops.ledger.pending import PendingRows, built_upto, pending_rows
from leanops.names import SOURCE, Layer, table
from leanops.slices import Slice
from leanops.standardized.transform import MESSAGE_COLUMNS
from leanops.table_files import TableFile
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
    asks_index: bool = False
    """Whether other rows are looked for by the key index, as after a build; else all of the tables are read."""

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
        """The plan, with all files found that are to be read; or the accounts, where nothing is built yet."""
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
        reasons = (planned.messages, planned.copies) if layer is Layer.STANDARDIZED else ()
        for scan in (*planned.places, *reasons):
            # What cannot be listed fails this topic alone.
            _ = scan.files
        return planned

    @property
    def topic(self) -> str:
        return self.request.topic

    @property
    def layer(self) -> Layer:
        return self.request.layer

    @property
    def bytes(self) -> int:
        return self.came_in.bytes + self.kept.bytes

    @cached_property
    def files(self) -> dict[str, DataFile]:
        """The files that are certain to be read, each once, by their paths."""
        return {task.file.file_path: task.file for each in self.looked_at for task in each.files}

    @property
    def places(self) -> tuple[Scan, ...]:
        """The rows that came in, and those in the layer: what is looked at and, where that is a part, the others."""
        return self.looked_at if self.part.is_whole else (*self.looked_at, self.held)

    @property
    def looked_at(self) -> tuple[Scan, ...]:
        return self.came_in, self.kept

    @cached_property
    def came_in(self) -> Scan:
        """The rows of the layer before that the layer stands for."""
        at = self.read if self.layer is Layer.CURATED else None
        return self._rows(SOURCE[self.layer], CAME_IN, _NAMED, self._taken_in, at)

    @cached_property
    def kept(self) -> Scan:
        """What stands in the layer, whatever number it claims to have."""
        return self._rows(self.layer, KEPT, _VERSIONS, self._whatever_number)

    @cached_property
    def held(self) -> Scan:
        """All else that stands in the layer."""
        return self._rows(self.layer, HELD, _VERSIONS, self._whatever_number.complement(self._may_be_elsewhere))

    def _may_be_elsewhere(self, file: TableFile) -> bool:
        """Whether a file may hold other rows than those that are looked at."""
        is_all_new = file.first_seq is not None and file.first_seq > self.part.after and not file.may_lack_seq
        return not (file.day in self.part.days or is_all_new)

    @property
    def refused(self) -> str:
        """What stands among the layer's errors, as a condition in SQL, whatever number it claims to have.

        A build that was interrupted may have left errors of rows that it has not published: these are not looked at.
        """
        return self.part.text if is_in_doubt(self.held_in) else self._whatever_number.text

    @cached_property
    def messages(self) -> Scan:
        """The messages that came in, with their payloads."""
        return self._rows(Layer.RAW, MESSAGES, MESSAGE_COLUMNS, self._taken_in)

    @cached_property
    def copies(self) -> Scan:
        """All messages that the layer stands for, by their ids."""
        landed = Slice(-1, self.upto)
        where = _Condition(landed.holds, landed.may_be_in, landed.text)
        return self._rows(Layer.RAW, COPIES, ("message_id", "landing_seq", "ingestion_ts"), where)

    @property
    def look_ups(self) -> list[Scan]:
        """What a worker looks for that has read the rows: others of the same records, and why some are missing."""
        index = self._index if self.request.asks_index else None
        found = [] if self.part.is_whole else [replace(self.held, by=Kind.KEY, index=index)]
        if self.layer is Layer.STANDARDIZED:
            found += [replace(self.messages, by="landing_seq"), replace(self.copies, by=Kind.ID, index=index)]
        return found

    @property
    def _index(self) -> str | None:
        tables = self.request.tables
        index = index_of_topic(tables.raw, tables.standardized, tables.curated)
        return index.statistics_path if index else None

    @property
    def _taken_in(self) -> "_Condition":
        return _Condition(self.part.holds, self.part.may_be_in, self.part.text)

    @property
    def _whatever_number(self) -> "_Condition":
        part = self.part
        if part.is_whole:
            return _Condition()
        if is_of_days(part):
            return _Condition(part.holds_days_of, lambda file: file.day in part.days, f"({part.on_days})")
        return _Condition(part.holds_or_later, part.may_be_in_or_later, part.open_end)

    def _rows(
        self,
        layer: Layer,
        place: str,
        columns: Sequence[str],
        where: "_Condition | None" = None,
        snapshot: int | None = None,
    ) -> Scan:
        """Rows of a layer's table, and the place they stand in."""
        held, where = self.held_in if layer is self.layer else self.source, where or _Condition()
        role = in_place(self.layer, place)
        return Scan(self.topic, held, tuple(columns), where.rows, where.may_hold, snapshot, role, condition=where.text)


def in_place(layer: Layer, place: str) -> str:
    """The role of rows that stand in some place of the ledger of a layer."""
    return f"{layer} {place}"


class _Condition(NamedTuple):
    """Which rows are wanted: as workers ask for them, of a file by its metadata, and as Spark asks."""

    rows: RowFilter | None = None
    may_hold: MayHold = lambda _: True
    text: str = "true"

    def complement(self, may_hold: MayHold) -> "_Condition":
        """All other rows."""
        return _Condition(partial(_are_not, self.rows), may_hold, f"NOT coalesce({self.text}, false)")


def _are_not(are: RowFilter | None, rows: pa.Table) -> pa.ChunkedArray:
    return pc.invert(pc.fill_null(are(rows), False)) if are else pa.chunked_array([pa.repeat(False, rows.num_rows)])


def is_of_days(part: Slice) -> bool:
    """Whether a part is of whole days alone: then these are all days that an account is given of."""
    return bool(part.days) and not part.rows_landed
