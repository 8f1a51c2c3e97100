"""What changes from one contract to the next, and whether tables can follow in place or must be rebuilt.

| impact | changes | what is done |
|---|---|---|
| noted | version, description, owners, thresholds of checks, the order of columns | nothing about rows |
| compatible | a new column that is no CDE; INT→BIGINT, FLOAT→DOUBLE, a DECIMAL of more digits | the tables evolve |
| breaking | anything else | the topic is rebuilt beside its tables, and published when its ledger closes |
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from leanops.contracts.model import Contract, EnvelopeColumn, PayloadColumn
from leanops.errors import ContractInvalid, Problem

_Column = TypeVar("_Column", EnvelopeColumn, PayloadColumn)


class Impact(StrEnum):
    """What a change means for the tables, the least first."""

    NOTED = "noted"
    COMPATIBLE = "compatible"
    BREAKING = "breaking"


@dataclass(frozen=True)
class Change:
    """One thing that is different, in words; `column` is whose it is, where it is a column's."""

    path: str
    what: str
    impact: Impact
    column: str | None = None
    is_of_type: bool = False

    def __str__(self) -> str:
        return f"{self.impact}: {self.path}: {self.what}"


@dataclass(frozen=True)
class Diff:
    """All that is different."""

    changes: Sequence[Change]

    @property
    def impact(self) -> Impact:
        """The gravest of all."""
        return max((change.impact for change in self.changes), key=list(Impact).index, default=Impact.NOTED)


def diff(old: Contract | None, new: Contract) -> Diff:
    """What `new` changes. The first contract of a topic adds everything."""
    if old is None:
        return Diff([Change("$", f"the first contract, with {len(new.column_names)} columns", Impact.COMPATIBLE)])
    return Diff([*_of_the_whole(old, new), *_of_the_envelope(old, new), *_of_the_payload(old, new)])


def require_successor(active: Contract, new: Contract, where: str) -> None:
    """A version that goes backwards, or that stays while something else changes, is refused."""
    if new.version > active.version:
        return
    said = "goes back behind" if new.version < active.version else "is taken by"
    following = active.version + 1
    problem = Problem(
        "$.version",
        f"version {new.version} {said} the active contract, which is version {active.version}.",
        fix=f"Write {following}.",
        found=str(new.version),
        allowed=f"a whole number from {following}",
    )
    raise ContractInvalid(where, [problem], "`leanops schema history` shows the versions of a topic.")


def _of_the_whole(old: Contract, new: Contract) -> Iterator[Change]:
    for key in ("version", "description", "owners"):
        before, after = (_text(getattr(each, key)) for each in (old, new))
        if before != after:
            yield Change(f"$.{key}", f"{before} → {after}", Impact.NOTED)
    for key in type(new.thresholds).model_fields:
        before, after = (_text(getattr(each.thresholds, key)) for each in (old, new))
        if before != after:
            # Which messages are copies decides what every layer holds.
            impact = Impact.BREAKING if key == "duplicates_within_days" else Impact.NOTED
            yield Change(f"$.thresholds.{key}", f"{before} → {after}", impact)
    both = set(old.column_names) & set(new.column_names)
    if [name for name in old.column_names if name in both] != [name for name in new.column_names if name in both]:
        yield Change("$", "columns in another order, which the tables do not follow", Impact.NOTED)


def _of_the_envelope(old: Contract, new: Contract) -> Iterator[Change]:
    """Whatever the envelope maps decides which record a message belongs to, and where its fields stand."""
    before, after = _by_name(old.envelope_columns), _by_name(new.envelope_columns)
    for name in [*before, *(name for name in after if name not in before)]:
        path = f"$.envelope_columns.{name}"
        if name not in after:
            yield Change(path, f"removed (it was filled from {before[name].source})", Impact.BREAKING, name)
        elif name not in before:
            yield Change(path, f"added, filled from {after[name].source}", Impact.BREAKING, name)
        elif before[name].source != after[name].source:
            what = f"filled from {after[name].source} and no longer from {before[name].source}"
            yield Change(f"{path}.source", what, Impact.BREAKING, name)


def _of_the_payload(old: Contract, new: Contract) -> Iterator[Change]:
    before, after = _by_name(old.payload_columns), _by_name(new.payload_columns)
    for name in [*before, *(name for name in after if name not in before)]:
        path = f"$.payload_columns.{name}"
        if name not in after:
            yield Change(path, f"removed (it was {before[name].type})", Impact.BREAKING, name)
        elif name in before:
            yield from _of_the_column(path, before[name], after[name])
        elif after[name].cde:
            what = f"added as {after[name].type} and as a CDE, which rows of old may not have"
            yield Change(path, what, Impact.BREAKING, name)
        else:
            yield Change(path, f"added as {after[name].type}", Impact.COMPATIBLE, name)


def _of_the_column(path: str, old: PayloadColumn, new: PayloadColumn) -> Iterator[Change]:
    if new.type != old.type:
        impact = Impact.COMPATIBLE if new.type.is_wider_than(old.type) else Impact.BREAKING
        yield Change(f"{path}.type", f"{old.type} → {new.type}", impact, old.name, is_of_type=True)
    if new.cde != old.cde:
        what = "becomes a Critical Data Element" if new.cde else "is no Critical Data Element any more"
        yield Change(f"{path}.cde", what, Impact.BREAKING, old.name)
    for key in ("source", "format", "default"):
        before, after = getattr(old, key), getattr(new, key)
        if before != after:
            yield Change(f"{path}.{key}", f"{_text(before)} → {_text(after)}", Impact.BREAKING, old.name)
    if new.description != old.description:
        yield Change(f"{path}.description", "says something else", Impact.NOTED, old.name)


def _by_name(columns: Sequence[_Column]) -> Mapping[str, _Column]:
    return {column.name: column for column in columns}


def _text(value: object) -> str:
    if value is None or value == ():
        return "none"
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
