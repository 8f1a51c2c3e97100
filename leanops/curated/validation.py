"""Standardized to Curated: rows of a topic, bound to its contract, cast and validated.

This runs inside Spark's Python workers, on Arrow's arrays: column by column, whatever the number of rows.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from leanops.blank import is_blank
from leanops.contracts.model import Contract
from leanops.curated.binding import BoundColumn
from leanops.curated.strict_cast import strict_cast
from leanops.curated.table import KEY_COLUMNS, envelope_names
from leanops.names import OBJECTS_COLUMN
from leanops.standardized.flatten_plan import Path, column_name

AN_OBJECT = "{…}"
"""What is told of a field that is an object, where the contract has a column."""

BROKEN_RULES = pa.list_(pa.struct([("column", pa.string()), ("rule", pa.string()), ("value", pa.string())]))

Mask = npt.NDArray[np.bool_]
Rule = dict[str, str | None]


@dataclass(frozen=True)
class Binding:
    """A contract, bound to columns of Standardized."""

    contract: Contract
    bound: Sequence[BoundColumn]

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The columns of Standardized that are read: the keys, the envelope, and what rows are validated by."""
        texts = (name for each in self.bound for name in (*each.fields, *each.below))
        return tuple(dict.fromkeys((*KEY_COLUMNS, OBJECTS_COLUMN, *envelope_names(self.contract), *texts)))


@dataclass(frozen=True)
class Validated:
    """Rows with the contract's columns, typed, and every rule that each breaks."""

    values: dict[str, pa.Array]
    is_invalid: Mask
    broken_rules: pa.Array
    """Those of each invalid row, in the order of the contract's columns."""

    def rules_of_all(self) -> pa.Array:
        """The broken rules of every row; of a valid one there are none."""
        counts = np.zeros(len(self.is_invalid) + 1, np.int32)
        counts[1:][self.is_invalid] = pc.list_value_length(self.broken_rules)
        return pa.ListArray.from_arrays(pa.array(np.cumsum(counts, dtype=np.int32)), self.broken_rules.flatten())


def validate(rows: pa.Table, binding: Binding) -> Validated:
    """Cast and check every row of Standardized by its topic's contract."""
    rules: defaultdict[int, list[Rule]] = defaultdict(list)
    objects = _noted_objects(rows[OBJECTS_COLUMN])
    values = {}
    for bound in binding.bound:
        cells = _Cells.of(rows, bound, objects)
        values[bound.column.name] = cells.values()
        for row, rule in cells.broken_rules():
            rules[row].append(rule)
    is_invalid = np.zeros(rows.num_rows, bool)
    is_invalid[[*rules]] = True
    return Validated(values, is_invalid, pa.array([rules[row] for row in sorted(rules)], BROKEN_RULES))


@dataclass(frozen=True)
class _Cells:
    """What rows have for a column of the contract."""

    bound: BoundColumn
    texts: list[pa.Array]
    """The texts of the fields that fill it."""
    text: pa.Array
    """Of several fields the first counts: if they differ the row is invalid."""
    cast: pa.Array
    is_object: Mask
    """Whether a row has an object where the contract has a column."""

    @classmethod
    def of(cls, rows: pa.Table, bound: BoundColumn, objects: "dict[str, list[tuple[int, list[Path]]]]") -> "_Cells":
        texts = [rows[name].combine_chunks() for name in bound.fields]
        text = pc.coalesce(*texts) if texts else pa.nulls(rows.num_rows, pa.string())
        is_object = np.zeros(rows.num_rows, bool)
        for name in bound.below:
            is_object |= _mask(pc.is_valid(rows[name]))
        path = bound.place if isinstance(bound.place, tuple) else None
        for row, paths in objects.get(column_name(path) if path else str(bound.place), ()):
            is_object[row] |= path is None or path in paths
        return cls(bound, texts, text, strict_cast(text, bound.column.type, bound.column.format), is_object)

    def values(self) -> pa.Array:
        """A default fills a missing value; a Critical Data Element has none."""
        column = self.bound.column
        if column.default is None:
            return self.cast
        default = strict_cast(pa.array([column.default], pa.string()), column.type)[0]
        return pc.if_else(pc.is_null(self.text), default, self.cast)

    def broken_rules(self) -> Iterator[tuple[int, Rule]]:
        """The rules of its column that a row breaks, and how that is told. Every text is a STRING."""
        column, is_missing_text = self.bound.column, _mask(pc.is_null(self.text))
        is_ambiguous = np.zeros(len(self.text), bool)
        for other in self.texts[1:]:
            is_ambiguous |= _mask(pc.fill_null(pc.not_equal(other, self.text), False))
        is_missing = np.zeros(len(self.text), bool)
        if column.cde:
            is_missing = is_missing_text | _mask(pc.fill_null(is_blank(self.text), False))
            is_missing &= ~self.is_object & ~is_ambiguous
        is_misfit = _mask(pc.is_null(self.cast)) & ~is_missing_text & ~is_ambiguous & ~is_missing
        for row in np.flatnonzero(is_ambiguous | is_missing | is_misfit | self.is_object).tolist():
            text = self.text[row].as_py()
            if is_ambiguous[row]:
                yield row, {"column": column.name, "rule": "ambiguous", "value": self._all_texts(row)}
            if is_missing[row]:
                yield row, {"column": column.name, "rule": "cde", "value": text}
            if self.is_object[row] or is_misfit[row]:
                value = AN_OBJECT if self.is_object[row] else text
                yield row, {"column": column.name, "rule": "type", "value": value}

    def _all_texts(self, row: int) -> str:
        said = dict.fromkeys(text for each in self.texts if (text := each[row].as_py()) is not None)
        return json.dumps([*said], ensure_ascii=False, separators=(",", ":"))


def _noted_objects(notes: pa.ChunkedArray) -> dict[str, list[tuple[int, list[Path]]]]:
    """Where rows have objects none of whose fields has a column: by the name of a column there, rows and paths."""
    found: defaultdict[str, list[tuple[int, list[Path]]]] = defaultdict(list)
    for row in np.flatnonzero(_mask(pc.is_valid(notes))).tolist():
        for name, paths in json.loads(notes[row].as_py()).items():
            found[name].append((row, [tuple(path) for path in paths]))
    return found


def _mask(values: pa.Array | pa.ChunkedArray) -> Mask:
    return np.asarray(values, bool)
