"""What a worker makes of the rows of one topic that were validated: the files of Curated.

This runs inside Spark's Python workers.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io.pyarrow import schema_to_pyarrow

from leanops.batch.write import Target, Written, list_columns, replace_rows
from leanops.contracts.model import Contract
from leanops.curated.table import KEY_COLUMNS, curated_schema, envelope_names

_COUNTED = {"TIMESTAMP": pa.int64(), "DATE": pa.int32()}
"""Moments come as numbers, of microseconds or days since 1970."""


@dataclass(frozen=True)
class Report:
    """What happened to the rows of a topic."""

    written: Written = field(default_factory=Written)
    rows: int = 0
    invalid: int = 0
    last_ingestion_ts: int | None = None
    errors_by_rule: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class TopicWriter:
    """Writes one topic's files by its contract."""

    contract: Contract
    target: Target
    hands_all_back: bool = False
    """Whether the keys of valid rows are handed back too: errors of their records may be open."""

    def write(self, rows: pa.Table) -> tuple[Report, pa.Table]:
        """Report what happened to the rows, and hand back those that are invalid."""
        is_held = pc.is_valid(rows["file"])
        held, rows = rows.filter(is_held), rows.filter(pc.invert(is_held))
        invalid = rows.filter(rows["is_invalid"])
        valid = rows.filter(pc.invert(rows["is_invalid"])).sort_by("landing_seq")
        gone: dict[str, list[int]] = {}
        for row in held.select(["file", "landing_seq"]).to_pylist():
            # What has no number was put there by others, and goes with the day that it was put on.
            if row["landing_seq"] is not None:
                gone.setdefault(row["file"], []).append(row["landing_seq"])
        rules = (f"{rule['column']}: {rule['rule']}" for each in invalid["broken_rules"].to_pylist() for rule in each)
        report = Report(
            replace_rows(self.target, typed_table(valid, self.contract), gone),
            rows.num_rows,
            invalid.num_rows,
            pc.max(rows["ingestion_ts"]).as_py(),
            dict(sorted(Counter(rules).items())),
        )
        return report, rows if self.hands_all_back else invalid


def typed_table(valid: pa.Table, contract: Contract) -> pa.Table:
    """Rows with their values as the contract's types, of their canonical texts."""
    columns = {name: valid[name] for name in KEY_COLUMNS}
    envelope = envelope_names(contract)
    columns |= dict(zip(envelope, list_columns(valid["envelope"], len(envelope)), strict=True))
    types = schema_to_pyarrow(curated_schema(contract))
    texts = list_columns(valid["values"], len(contract.payload_columns))
    for column, values in zip(contract.payload_columns, texts, strict=True):
        counted = _COUNTED.get(column.type.name)
        found = values.cast(counted) if counted else values
        columns[column.name] = found.cast(types.field(column.name).type)
    return pa.table(columns)
