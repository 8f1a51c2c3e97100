"""A build of few messages, in this process: brought here, decided one by one, and published in one commit.

It does by hand what `transform.py` says in Spark, which needs seconds before its first row. The payloads are read by
the same reader.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import And, EqualTo, IsNull, Or
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from leanops.commits import Draft
from leanops.contracts.model import Contract
from leanops.few_rows import few_rows, rows_called
from leanops.names import OBJECTS_COLUMN, OVERFLOW_COLUMN
from leanops.picked import Picked
from leanops.replacement import Gone
from leanops.shared_tables import replace_own
from leanops.slices import Slice
from leanops.standardized.built import StandardizedBuild, evolve
from leanops.standardized.flatten_plan import FlattenPlan, Path, path_from_text
from leanops.standardized.payload_reader import BOUND_MARK, read_records
from leanops.standardized.table import ensure_parse_errors_table, mapping_of
from leanops.standardized.transform import ERROR_COLUMNS, RAW_COLUMNS, Fate
from leanops.tables import foreign_rows

Row = dict[str, Any]


class Version(NamedTuple):
    """What a message's fate depends on. Of the versions of a record, the greatest counts."""

    publish_time: datetime
    ingestion_ts: int
    message_id: str
    is_new: bool
    landing_seq: int


@dataclass(frozen=True)
class FewMessages:
    """One build, in the order of the spec's steps."""

    sessions: Callable[[], SparkSession]
    catalog: Catalog
    topic: str
    contract: Contract
    raw: Table
    part: Slice
    draft: Draft

    def build(self, plan: FlattenPlan, checkpoint: dict[str, str]) -> StandardizedBuild:
        snapshot_id = int(checkpoint["raw-snapshot"])
        messages = few_rows(self.raw, (*RAW_COLUMNS, "json_payload"), self.part.filter, snapshot_id)
        messages = messages.sort_by("landing_seq")
        read, keys = read_records(messages, plan)
        fates = self._fates(messages, read, keys, snapshot_id)
        by_message = pa.array([fates.get(seq) for seq in messages["landing_seq"].to_pylist()], pa.string())

        firsts = pc.fill_null(pc.not_equal(by_message, Fate.DUPLICATE), True)
        grown = plan.extended(_new_paths(read.field("new_paths").filter(firsts)))
        if grown != plan:
            evolve(self.catalog, self.topic, self.draft.table, grown)
            read, keys = read_records(messages, grown)
        self._write_parse_errors(messages, read, pc.fill_null(pc.equal(by_message, Fate.PARSE_ERROR), False))
        replaced = sorted(seq for seq, fate in fates.items() if fate is Fate.REPLACED)
        checkpoint["replaced"] = Picked(len(replaced), replaced).text
        checkpoint["mapping"] = mapping_of(self.contract, grown)
        rows = _flat_rows(messages, read, keys, grown).filter(pc.is_null(by_message))
        gone = Gone(replaced, self.part.days, everything=self.part.is_whole and not self.draft.is_of_nothing)
        snapshot = self.draft.replace(self.sessions, gone, rows, checkpoint)
        return StandardizedBuild.of(
            snapshot,
            checkpoint,
            self.part,
            messages.num_rows,
            pc.max(messages["ingestion_ts"]).as_py(),
            Counter(fates.values()),
            tuple(column.name for column in grown.columns[len(plan.columns) :]),
        )

    def _fates(
        self, messages: pa.Table, read: pa.StructArray, keys: Sequence[str], snapshot_id: int
    ) -> dict[int, Fate]:
        """What becomes of each message that is not written, and which rows of the table are replaced."""
        rows = messages.select(["landing_seq", *Version._fields[:3]]).to_pylist()
        refused = pc.is_valid(read.field("error_kind")).to_pylist()
        fates: dict[int, Fate] = {}
        held = self._held(set(keys))
        landed = [*rows, *self._copies({row["message_id"] for row in (*rows, *held)}, snapshot_id)]
        self._require_own(held, rows, keys, landed)
        first = _first_landings(landed)
        versions: defaultdict[str, list[Version]] = defaultdict(list)
        for row in held:
            if row["publish_time"].date() not in self.part.days:
                versions[row["idempotency_key"]].append(_version(row, is_new=False))
        for row, key, is_refused in zip(rows, keys, refused, strict=True):
            if row["landing_seq"] > first[row["message_id"]]:
                fates[row["landing_seq"]] = Fate.DUPLICATE
            elif is_refused:
                fates[row["landing_seq"]] = Fate.PARSE_ERROR
            else:
                versions[key].append(_version(row, is_new=True))
        for each in versions.values():
            _, *others = sorted(each, reverse=True)
            fates |= {other.landing_seq: Fate.SUPERSEDED if other.is_new else Fate.REPLACED for other in others}
        return fates

    def _copies(self, ids: Collection[str], snapshot_id: int) -> list[Row]:
        """Where the messages may have landed before."""
        if self.part.is_whole:
            return []
        columns = ("landing_seq", *Version._fields[:3])
        found = rows_called(self.sessions, self.raw, "message_id", ids, columns, snapshot_id)
        return [row for row in found.to_pylist() if row["landing_seq"] <= self.part.upto]

    def _held(self, keys: Collection[str]) -> list[Row]:
        """The rows that the table holds of the messages' records, and of the days that are made anew."""
        if self.part.is_whole or not self.draft.base_id:
            return []
        columns = ("idempotency_key", "landing_seq", *Version._fields[:3])
        table, base = self.draft.table, self.draft.base_id
        held: list[Row] = rows_called(self.sessions, table, "idempotency_key", keys, columns, base).to_pylist()
        if self.part.days:
            # Asked apart: PyIceberg cannot compare a partition of no day with one.
            unplaced = Or(IsNull(term="publish_time"), IsNull(term="landing_seq"))
            for where in (Slice.of_days(self.part.days).open_filter, unplaced):
                held += few_rows(table, columns, where, base).to_pylist()
        return held

    def _require_own(self, held: list[Row], rows: list[Row], keys: Sequence[str], landed: list[Row]) -> None:
        """Days are made anew among rows that RAW has just so. What others have displaced may lie on any day."""
        read = {row["landing_seq"]: key for row, key in zip(rows, keys, strict=True)}
        known = {_version(row, is_new=False) for row in landed} if self.part.days else set()
        for row in held:
            is_placed = row["landing_seq"] is not None and row["publish_time"] is not None
            is_own = not self.part.days or _version(row, is_new=False) in known
            if (
                not is_placed
                or not is_own
                or row["idempotency_key"] != read.get(row["landing_seq"], row["idempotency_key"])
            ):
                raise foreign_rows(self.draft.table, row["message_id"])

    def _write_parse_errors(self, messages: pa.Table, read: pa.StructArray, refused: pa.Array) -> None:
        """Put this build's parse errors in the place of those that an earlier one has left for the same messages."""
        errors = pa.table({name: read.field(name) for name in ERROR_COLUMNS})
        rows = pa.table({**_columns(messages), **_columns(errors)}).filter(refused)
        is_again = self.part.days or (self.part.is_whole and not self.draft.is_of_nothing)
        if not rows.num_rows and not is_again and not self.draft.is_second_try:
            return
        self.draft.begin()
        own = And(EqualTo(term="topic_name", value=self.topic), self.part.place_filter)
        replace_own(
            ensure_parse_errors_table(self.catalog), rows, own if is_again or self.draft.is_second_try else None
        )


def _first_landings(landed: Iterable[Row]) -> dict[str, int]:
    """FIFO: of the copies of one message the first to land counts, wherever it has landed."""
    first: dict[str, int] = {}
    for row in landed:
        first[row["message_id"]] = min(row["landing_seq"], first.get(row["message_id"], row["landing_seq"]))
    return first


def _version(row: Row, is_new: bool) -> Version:
    return Version(row["publish_time"], row["ingestion_ts"], row["message_id"], is_new, row["landing_seq"])


def _new_paths(found: pa.Array) -> list[Path]:
    """Fields that the plan does not know, in the order in which they first landed."""
    texts = (path for paths in found.to_pylist() if paths for path in paths.split("\n"))
    return [path_from_text(text.removeprefix(BOUND_MARK)) for text in dict.fromkeys(texts)]


def _flat_rows(messages: pa.Table, read: pa.StructArray, keys: Sequence[str], plan: FlattenPlan) -> pa.Table:
    """The messages, with the columns of Standardized that the plan fills."""
    columns = _columns(messages.drop_columns(["json_payload", "topic_name", "idempotency_key"]))
    columns |= {column.name: read.field(f"c{i}") for i, column in enumerate(plan.columns)}
    columns |= {OVERFLOW_COLUMN: read.field("overflow"), OBJECTS_COLUMN: read.field("objects")}
    return pa.table({**columns, "idempotency_key": pa.array(keys, pa.string())})


def _columns(rows: pa.Table) -> dict[str, pa.ChunkedArray]:
    return dict(zip(rows.column_names, rows.columns, strict=True))
