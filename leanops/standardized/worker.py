"""What a worker makes of the messages of one topic, all of whose fates are known: the files of Standardized.

This runs inside Spark's Python workers.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from leanops.batch.data_file import file_io
from leanops.batch.write import Target, Written, list_columns, replace_rows
from leanops.key_index.entries import Entries
from leanops.key_index.file import IndexUpdate, KeyFile, Kind
from leanops.names import OBJECTS_COLUMN, OVERFLOW_COLUMN
from leanops.standardized.flatten_plan import FlatColumn, FlattenPlan
from leanops.standardized.table import new_fields
from leanops.standardized.transform import (
    NEW,
    RECORD_KEY,
    VERSION,
    Fate,
    Places,
    first_places,
    in_landing_order,
    read_messages,
)

FOREIGN = "foreign"
"""In the place of a fate: a row of the table that RAW does not have so."""


@dataclass(frozen=True)
class Report:
    """What happened to the messages of a topic, or to a share of them."""

    written: Written = field(default_factory=Written)
    messages: int = 0
    fates: Counter[str] = field(default_factory=Counter)
    last_ingestion_ts: int = 0
    plan: FlattenPlan | None = None
    """The one that the files were written by."""
    new_fields: Sequence[NestedField] = ()
    """The columns of it that the table does not have yet."""
    late: Places = field(default_factory=dict)
    """Fields without a column that other workers' messages may have too. Messages with one are handed back."""
    foreign: str | None = None
    """A message of which the table holds a row that RAW does not have so. Nothing is written then."""

    @property
    def new_columns(self) -> list[FlatColumn]:
        """The same with the fields that fill them."""
        names = {each.name for each in self.new_fields}
        return [column for column in (self.plan or FlattenPlan()).columns if column.name in names]

    def and_also(self, other: "Report") -> "Report":
        """What two workers have made of a topic."""
        late = {field: min(each[field] for each in (self.late, other.late) if field in each) for field in self.late}
        return Report(
            self.written.and_also(other.written),
            self.messages + other.messages,
            self.fates + other.fates,
            max(self.last_ingestion_ts, other.last_ingestion_ts),
            other.plan or self.plan,
            other.new_fields or self.new_fields,
            {**other.late, **late},
            self.foreign or other.foreign,
        )


@dataclass(frozen=True)
class TopicWriter:
    """Writes one topic's files by its plan."""

    plan: FlattenPlan
    target: Target
    is_complete: bool
    """Whether the worker has all messages of the topic, and so can tell which columns new fields have."""
    index: IndexUpdate | None = None
    """How the topic's key index is written, where this worker does it."""

    def write(self, rows: pa.Table) -> tuple[Report, pa.Table]:
        """Report what happened to the messages, and hand back those that could not be read, or not be written yet."""
        is_new, fate = pc.equal(rows["role"], NEW), pc.fill_null(rows["fate"], "")
        messages, replaced = rows.filter(is_new), rows.filter(pc.equal(fate, Fate.REPLACED))
        back = rows.filter(pc.equal(fate, Fate.PARSE_ERROR))
        foreign = [*rows.filter(pc.equal(fate, FOREIGN))["message_id"].to_pylist()]
        foreign += replaced.filter(pc.is_null(replaced["landing_seq"]))["message_id"].to_pylist()
        if foreign:
            return Report(foreign=foreign[0]), back.slice(0, 0)
        plan, late = self.plan, first_places(rows.filter(pc.and_(is_new, pc.not_equal(fate, Fate.DUPLICATE))))
        written = messages.filter(pc.is_null(messages["fate"])).sort_by("landing_seq")
        if self.is_complete:
            plan, late = plan.extended(in_landing_order(late)), {}
        elif late:
            is_known = pc.is_null(written["new_paths"])
            back = pa.concat_tables([back, written.filter(pc.invert(is_known))])
            written = written.filter(is_known)
        fields = new_fields(self.target.schema, self.target.metadata.last_column_id, plan.columns)
        schema = Schema(*self.target.schema.fields, *fields, schema_id=self.target.schema.schema_id + bool(fields))
        files = replace_rows(self.target.with_schema(schema), flat_table(written, self.plan, plan), replaced)
        report = Report(
            replace(files, index=self._write_index(messages, written, files.gone) if self.index else None),
            messages.num_rows,
            Counter(rows["fate"].drop_null().to_pylist()),
            pc.max(messages["ingestion_ts"]).as_py() or 0,
            plan,
            fields,
            late,
        )
        return report, back

    def _write_index(self, messages: pa.Table, written: pa.Table, gone: Sequence[int]) -> KeyFile | None:
        """Note the ids of all messages, and the keys of those that are written."""
        assert self.index
        more = {Kind.ID: [Entries.of(messages, Kind.ID)], Kind.KEY: [Entries.of(written, RECORD_KEY)]}
        return self.index.write(file_io(self.target.io), self.target.metadata, more, gone)


def flat_table(read: pa.Table, plan: FlattenPlan, grown: FlattenPlan) -> pa.Table:
    """Messages that were read by a plan, with the columns that it has grown to. Those with new fields are read anew."""
    if grown != plan:
        is_known = pc.is_null(read["new_paths"])
        again = read_messages(read.filter(pc.invert(is_known)), grown)
        read = pa.concat_tables([read.filter(is_known).select(again.column_names), again]).sort_by("landing_seq")
    columns = {name: read[name] for name in ("landing_seq", *VERSION, OVERFLOW_COLUMN, OBJECTS_COLUMN)}
    names = (column.name for column in grown.columns)
    columns |= dict(zip(names, list_columns(read["texts"], len(grown.columns)), strict=True))
    return pa.table({**columns, "idempotency_key": read[RECORD_KEY]})
