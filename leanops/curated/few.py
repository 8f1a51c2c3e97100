"""A build of few rows: brought here, judged by Spark as a value that it is handed, and published in one commit.

Spark evaluates the contract's casts and rules over rows that are part of the question while it plans, and starts no job
for it. So the same `judged` decides about few rows as about many.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import And, BooleanExpression, EqualTo, In, IsNull
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from leanops.commits import Draft
from leanops.contracts.model import Contract
from leanops.curated.binding import BoundColumn
from leanops.curated.built import CuratedBuild
from leanops.curated.table import KEY_COLUMNS, envelope_names
from leanops.curated.transform import BROKEN, IS_BROKEN, RULES, judged
from leanops.few_rows import arrow_of, few_rows, rows_called
from leanops.inventory import NO_DAY, schema_at
from leanops.names import OBJECTS_COLUMN
from leanops.picked import Picked
from leanops.replacement import Gone
from leanops.shared_tables import replace_own
from leanops.slices import Slice

Row = dict[str, Any]


@dataclass(frozen=True)
class _Errors:
    """How the topic's errors change: rows to be put in the place of those that have the same message."""

    healed: Sequence[Row] = ()
    again: Sequence[Row] = ()
    new: Sequence[Row] = ()

    @property
    def rows(self) -> list[Row]:
        return [*self.healed, *self.again, *self.new]


@dataclass(frozen=True)
class FewRows:
    """One build, in the order of the spec's steps."""

    sessions: Callable[[], SparkSession]
    topic: str
    contract: Contract
    bound: Sequence[BoundColumn]
    source: Table
    errors: Table
    part: Slice
    lost: Picked | None
    """The rows that later versions have replaced; None where it takes a look at the tables to tell."""
    draft: Draft

    def build(self, checkpoint: dict[str, str]) -> CuratedBuild:
        rows = self._judged(int(checkpoint["standardized-snapshot"]))
        is_broken = rows[IS_BROKEN]
        errors = self._errors(rows, rows.filter(is_broken).to_pylist())
        gone = self._gone(rows["idempotency_key"].to_pylist(), {row["landing_seq"] for row in errors.healed})
        if errors.rows:
            self._write(errors)
        kept = rows.filter(pc.invert(is_broken))
        snapshot = self.draft.replace(self.sessions, gone, kept, checkpoint)
        broken = rows.num_rows - kept.num_rows
        return CuratedBuild(
            is_new=True,
            snapshot_id=snapshot.snapshot_id,
            standardized_snapshot=int(checkpoint["standardized-snapshot"]),
            last_ingestion_ts=pc.max(rows["ingestion_ts"]).as_py(),
            part=self.part,
            rows_read=rows.num_rows,
            written=kept.num_rows,
            updated=len(gone.seqs),
            broken=broken,
            errors_by_rule=_count_by_rule(rows.filter(is_broken)),
        )

    def _judged(self, snapshot_id: int) -> pa.Table:
        """The rows of Standardized, typed, and every rule that each breaks."""
        held = schema_at(self.source, snapshot_id).column_names
        fields = (name for each in self.bound for name in (*each.fields, *each.below))
        wanted = (*KEY_COLUMNS, *envelope_names(self.contract), OBJECTS_COLUMN, *fields)
        columns = [name for name in dict.fromkeys(wanted) if name in held]
        rows = few_rows(self.source, columns, self.part.filter, snapshot_id)
        if not rows.num_rows:
            return rows.append_column(IS_BROKEN, pa.array([], pa.bool_())).append_column(RULES, pa.array([]))
        return arrow_of(self.sessions().createDataFrame(rows).transform(judged, self.contract, self.bound, columns))

    def _errors(self, rows: pa.Table, broken: Sequence[Row]) -> _Errors:
        """Errors of the rows that are broken now, and of records that are not any more, which are closed."""
        now = datetime.now(UTC)
        opened = {row["message_id"]: self._opened(row, now) for row in broken}
        if self.lost is not None:
            if not self.lost.count:
                return _Errors(new=[*opened.values()])
            lost = And(IsNull(term="closed"), In(term="landing_seq", literals={*(self.lost.few or ())}))
            return _Errors(healed=[{**row, "closed": now} for row in self._known(lost)], new=[*opened.values()])
        known = self._known()
        keys, part = {*rows["idempotency_key"].to_pylist()}, self.part
        healed = [
            {**row, "closed": now}
            for row in known
            if row["closed"] is None
            and row["message_id"] not in opened
            and (row["idempotency_key"] in keys or part.is_place_of(row["landing_seq"], row["publish_time"]))
        ]
        # An error is the row's as it is now, under the key that it has now; only when it was first seen stays.
        again = {
            id_: {**opened[id_], "first_seen": row["first_seen"]}
            for row in known
            if (id_ := row["message_id"]) in opened
        }
        return _Errors(healed, [*again.values()], [row for id_, row in opened.items() if id_ not in again])

    def _known(self, also: BooleanExpression | None = None) -> list[Row]:
        """The errors that the topic has."""
        own: BooleanExpression = EqualTo(term="topic_name", value=self.topic)
        columns = [field.name for field in self.errors.schema().fields]
        found: list[Row] = few_rows(self.errors, columns, And(own, also) if also else own).to_pylist()
        return found

    def _opened(self, row: Row, now: datetime) -> Row:
        """The error of a row, with every broken rule and none of the values that were to be typed."""
        return {
            **{name: row[name] for name in KEY_COLUMNS},
            "topic_name": self.topic,
            BROKEN: row[RULES],
            "contract_version": self.contract.version,
            "first_seen": now,
            "closed": None,
        }

    def _gone(self, keys: Sequence[str], healed: set[int]) -> Gone:
        """What is made anew, and whatever is held of records of which there is a later version now."""
        if self.part.is_whole:
            return Gone(everything=not self.draft.is_of_nothing)
        if self.lost is not None:
            # A row that was lost is held here, unless it was broken.
            return Gone(sorted({*(self.lost.few or ())} - healed))
        columns = ("landing_seq", "publish_time")
        table, days = self.draft.table, self.part.days
        held = rows_called(self.sessions, table, "idempotency_key", {*keys}, columns, self.draft.base_id)
        elsewhere = (row["landing_seq"] for row in held.to_pylist() if _day(row) not in days)
        # What has no number was put there by others, and goes with the day that it was put on.
        return Gone(sorted(seq for seq in elsewhere if seq is not None), days)

    def _write(self, errors: _Errors) -> None:
        """Change the errors, once it is certain that no other build has been faster."""
        self.draft.begin()
        self.draft.require_not_overtaken()
        ids = {row["message_id"] for row in (*errors.healed, *errors.again)}
        own = And(EqualTo(term="topic_name", value=self.topic), In(term="message_id", literals=ids)) if ids else None
        replace_own(self.errors, pa.Table.from_pylist(errors.rows, schema_to_pyarrow(self.errors.schema())), own)


def _day(row: Row) -> date:
    return row["publish_time"].date() if row["publish_time"] else NO_DAY


def _count_by_rule(broken: pa.Table) -> Mapping[str, int]:
    """How often each rule of each column is broken."""
    rules = (f"{rule['column']}: {rule['rule']}" for rules in broken[RULES].to_pylist() for rule in rules)
    return dict(sorted(Counter(rules).items()))
