"""What a worker makes of the messages of one topic, all of whose fates are known: the files of Standardized.

This runs inside Spark's Python workers.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from leanops.batch.write import Target, Written, list_columns, replace_rows
from leanops.names import OBJECTS_COLUMN, OVERFLOW_COLUMN
from leanops.standardized.flatten_plan import FlatColumn, FlattenPlan
from leanops.standardized.table import new_fields
from leanops.standardized.transform import (
    NEW,
    RECORD_KEY,
    VERSION,
    Fate,
    first_places,
    in_landing_order,
    read_messages,
)

FOREIGN = "foreign"
"""In the place of a fate: a row of the table that RAW does not have so."""


@dataclass(frozen=True)
class Report:
    """What happened to the messages of a topic."""

    written: Written = field(default_factory=Written)
    messages: int = 0
    fates: Mapping[str, int] = field(default_factory=Counter)
    last_ingestion_ts: int | None = None
    new_columns: Sequence[FlatColumn] = ()
    new_fields: Sequence[NestedField] = ()
    """The same as fields of the table."""
    foreign: str | None = None
    """A message of which the table holds a row that RAW does not have so. Nothing is written then."""


@dataclass(frozen=True)
class TopicWriter:
    """Writes one topic's files by its plan."""

    plan: FlattenPlan
    target: Target

    def write(self, rows: pa.Table) -> tuple[Report, pa.Table]:
        """Report what happened to the messages, and hand back those that could not be read."""
        is_new, fate = pc.equal(rows["role"], NEW), pc.fill_null(rows["fate"], "")
        messages, replaced = rows.filter(is_new), rows.filter(pc.equal(fate, Fate.REPLACED))
        refused = rows.filter(pc.equal(fate, Fate.PARSE_ERROR))
        foreign = [*rows.filter(pc.equal(fate, FOREIGN))["message_id"].to_pylist()]
        foreign += replaced.filter(pc.is_null(replaced["landing_seq"]))["message_id"].to_pylist()
        if foreign:
            return Report(foreign=foreign[0]), refused.slice(0, 0)
        firsts = rows.filter(pc.and_(is_new, pc.not_equal(fate, Fate.DUPLICATE)))
        plan = self.plan.extended(in_landing_order(first_places(firsts)))
        new = plan.columns[len(self.plan.columns) :]
        fields = new_fields(self.target.schema, self.target.metadata.last_column_id, new)
        schema = Schema(*self.target.schema.fields, *fields, schema_id=self.target.schema.schema_id + bool(fields))
        written = messages.filter(pc.is_null(messages["fate"])).sort_by("landing_seq")
        gone: dict[str, list[int]] = {}
        for row in replaced.select(["file", "landing_seq"]).to_pylist():
            gone.setdefault(row["file"], []).append(row["landing_seq"])
        report = Report(
            replace_rows(self.target.with_schema(schema), flat_table(written, self.plan, plan), gone),
            messages.num_rows,
            Counter(rows["fate"].drop_null().to_pylist()),
            pc.max(messages["ingestion_ts"]).as_py(),
            new,
            fields,
        )
        return report, refused


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
