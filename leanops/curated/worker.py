"""What a worker makes of the rows of one topic: the files of Curated, and what is invalid.

This runs inside Spark's Python workers.
"""

from collections import Counter
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from leanops.batch.scan import TOLD, fitted, shape_of
from leanops.batch.write import Target, Written, replace_rows
from leanops.curated.table import KEY_COLUMNS, envelope_names
from leanops.curated.validation import Binding, validate

HELD, LOST = "held", "lost"
"""What rows of the table are to a build: such as it may have to replace, and such as it certainly does."""

_, _ROLE, _FILE, _POSITION = TOLD


@dataclass(frozen=True)
class Report:
    """What happened to the rows of a topic, or to a share of them."""

    written: Written = field(default_factory=Written)
    rows: int = 0
    invalid: int = 0
    last_ingestion_ts: int = 0
    errors_by_rule: Counter[str] = field(default_factory=Counter)

    def and_also(self, other: "Report") -> "Report":
        """What two workers have made of a topic."""
        return Report(
            self.written.and_also(other.written),
            self.rows + other.rows,
            self.invalid + other.invalid,
            max(self.last_ingestion_ts, other.last_ingestion_ts),
            self.errors_by_rule + other.errors_by_rule,
        )


@dataclass(frozen=True)
class TopicWriter:
    """Writes one topic's files by its contract."""

    binding: Binding
    target: Target
    hands_all_back: bool = False
    """Whether the keys of valid rows are handed back too: errors of their records may be open."""

    def write(self, rows: pa.Table) -> tuple[Report, pa.Table]:
        """Report what happened to the rows, and hand back those that are invalid."""
        is_new = pc.equal(rows[_ROLE], "")
        held = rows.filter(pc.invert(is_new))
        rows = fitted(rows.filter(is_new).sort_by("landing_seq"), shape_of(self.binding.columns))
        found, contract = validate(rows, self.binding), self.binding.contract
        names = (*KEY_COLUMNS, *envelope_names(contract))
        valid = pa.table({**{name: rows[name] for name in names}, **found.values}).filter(~found.is_invalid)
        invalid = rows.filter(found.is_invalid).select(KEY_COLUMNS).append_column("broken_rules", found.broken_rules)
        for name, value in (("is_invalid", True), ("contract_version", contract.version)):
            invalid = invalid.append_column(name, pa.repeat(value, invalid.num_rows))
        rules = (f"{rule['column']}: {rule['rule']}" for each in found.broken_rules.to_pylist() for rule in each)
        report = Report(
            replace_rows(self.target, valid, self._gone(held, rows)),
            rows.num_rows,
            invalid.num_rows,
            pc.max(rows["ingestion_ts"]).as_py() or 0,
            Counter(rules),
        )
        back = [invalid, valid.select(KEY_COLUMNS)] if self.hands_all_back else [invalid]
        return report, pa.concat_tables(back, promote_options="default")

    def _gone(self, held: pa.Table, rows: pa.Table) -> pa.Table:
        """Rows of the table that give way: what was lost, and other versions of the same records.

        What has no number was put there by others, and goes with the day that it was put on.
        """
        keys = rows["idempotency_key"].combine_chunks()
        is_again = pc.and_(pc.equal(held[_ROLE], HELD), pc.is_in(held["idempotency_key"], keys, skip_nulls=True))
        is_gone = pc.and_(pc.or_(pc.equal(held[_ROLE], LOST), is_again), pc.is_valid(held["landing_seq"]))
        gone = held.filter(is_gone)
        named = {"file": _FILE, "position": _POSITION, "publish_time": "publish_time", "landing_seq": "landing_seq"}
        return pa.table({name: gone[column] for name, column in named.items()})


@dataclass(frozen=True)
class RowEraser:
    """Takes rows out of one topic's files."""

    target: Target

    def write(self, rows: pa.Table) -> tuple[Report, pa.Table]:
        """Report which rows are gone; none is handed back."""
        gone = sorted(rows["landing_seq"].to_pylist())
        return Report(Written(deletes=self.target.delete(rows), gone=gone)), pa.table({})
