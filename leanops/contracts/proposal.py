"""A contract to start from, out of what has been seen of a topic's fields. People decide what becomes of it.

- A column's type is the first of BOOLEAN, INT, BIGINT, DECIMAL, DOUBLE, DATE, TIMESTAMP and STRING that every value
  seen fits; a field without values is a STRING.
- A DECIMAL has head room. Its scale, which cannot grow in place, is what was seen rounded up to an even number, and 2
  at least; its precision is 18 if that leaves two digits to spare, else 38. Whole numbers beyond BIGINT have scale 0.
- Nothing is made a CDE. What was never missing or blank is named as a candidate.
- Where a contract is active, all of it stays that fits what was seen, and new fields are added as columns. A type that
  does not fit is widened in place if that helps. The envelope stays: another one would have the topic rebuilt.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import NamedTuple

from leanops.contracts.column_types import DECIMAL_DIGITS, ColumnType
from leanops.contracts.model import MAX_COLUMNS, Contract, EnvelopeColumn, PayloadColumn
from leanops.errors import ProposalImpossible
from leanops.names import OVERFLOW_COLUMN, SAFE_NAME, Layer, table
from leanops.standardized.flatten_plan import (
    BoundFields,
    FlatColumn,
    FlattenPlan,
    Path,
    column_name,
    free_name,
    path_text,
    safe_name,
)

SAMPLE_LENGTH = 40
_MARK = "Proposed: "
"""How a description begins that a later proposal may write anew."""
_METADATA = "_metadata"
_KEY = (_METADATA, "idempotencyKeyResource")
_NEW_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_LONG_DIGITS, _BIGINT_DIGITS, _SPARE_DIGITS = 18, 19, 2
_SHOWN = 10


class Form(NamedTuple):
    """A type, and the format that its texts have."""

    type: ColumnType
    format: str | None = None


_BEFORE_DECIMAL = tuple(Form(ColumnType(name)) for name in ("BOOLEAN", "INT", "BIGINT"))
_AFTER_DECIMAL = tuple(Form(ColumnType(name)) for name in ("DOUBLE", "DATE", "TIMESTAMP"))


@dataclass(frozen=True)
class FieldProfile:
    """What has been seen of one payload field. JSON's null counts as missing."""

    path: Path
    values: int = 0
    blanks: int = 0
    fitting: Mapping[Form, int] = field(default_factory=dict)
    """How many values fit each form that was asked for."""
    decimals: int = 0
    """How many values are numbers that fit a DECIMAL; the digits that these have before and behind the point."""
    whole_digits: int = 0
    scale: int = 0
    samples: tuple[str, ...] = ()
    since: date | None = None


@dataclass(frozen=True)
class Profile:
    """What has been seen of a topic's payloads; its fields are in the order in which they first landed."""

    messages: int
    """Those whose payload is one JSON object; the others are `refused`."""
    refused: int
    overflowing: int
    """Messages with fields beyond the cap on columns."""
    fields: tuple[FieldProfile, ...]
    carried: tuple[FlatColumn, ...] = ()
    """The columns that Standardized has already."""


@dataclass(frozen=True)
class Proposal:
    """A contract, and what whoever asked for it should know."""

    contract: Contract
    remarks: tuple[str, ...]

    @property
    def text(self) -> str:
        """The contract as a file, without whatever goes without saying."""
        said = self.contract.model_dump(mode="json", exclude_defaults=True)
        document = {"table_name": self.contract.table_name, "version": self.contract.version, **said}
        return json.dumps(document, ensure_ascii=False, indent=2) + "\n"


def forms_to_count(active: Contract | None) -> list[Form]:
    """The forms whose fitting values a profile must count, so that a contract can be proposed after the active one."""
    kept = [Form(column.type, column.format) for column in (active.payload_columns if active else ())]
    return list(dict.fromkeys([*_BEFORE_DECIMAL, *_AFTER_DECIMAL, *kept]))


def propose(topic: str, profile: Profile, active: Contract | None = None) -> Proposal:
    """The next contract of a topic: the active one, if there is any, and what it does not know yet."""
    paths = [each.path for each in profile.fields]
    envelope = active.envelope_columns if active else tuple(_envelope(paths, profile.carried))
    kept = {column.name: column for column in active.payload_columns} if active else {}
    seen = {**_of_kept(profile, kept.values()), **_of_new(profile, envelope, active)}
    sources = _sources(profile, seen)
    room = MAX_COLUMNS - len(kept)
    new = [name for name in seen if name not in kept and name in sources and SAFE_NAME.fullmatch(name)][:room]
    if not profile.messages or not (kept or new):
        raise ProposalImpossible(
            f"No payload of {topic} has a field that could be a column ({profile.refused:,} are not one JSON object).",
            f"{'.'.join(table(Layer.RAW, topic))} holds what has landed; `leanops sql` shows it.",
        )
    base = {key: getattr(active, key) for key in Contract.model_fields} if active else {"table_name": topic}
    version = active.version + 1 if active else 1
    columns = [
        *(_kept(column, seen.get(name), profile.messages) for name, column in kept.items()),
        *(_new(name, sources[name], seen[name], profile.messages) for name in new),
    ]
    contract = Contract(**{**base, "version": version, "envelope_columns": envelope, "payload_columns": tuple(columns)})
    return Proposal(contract, tuple(_remarks(profile, active, contract, seen)))


def narrowest_type(seen: FieldProfile, was: ColumnType | None = None) -> ColumnType:
    """The first type in the order that every value fits; before it, one to which the column can widen in place."""
    fitting = [kind for kind, count in _types(seen, was.scale if was else None) if seen.values and count == seen.values]
    wider = [kind for kind in fitting if was and kind.is_wider_than(was)]
    return next(iter([*wider, *fitting]), ColumnType("STRING"))


def _types(seen: FieldProfile, scale: int | None = None) -> Iterator[tuple[ColumnType, int]]:
    """The types but STRING, narrowest first, each with how many values fit it."""
    yield from ((form.type, seen.fitting.get(form, 0)) for form in _BEFORE_DECIMAL)
    if seen.decimals and seen.whole_digits + seen.scale <= DECIMAL_DIGITS:
        yield _decimal(seen, scale), seen.decimals
    yield from ((form.type, seen.fitting.get(form, 0)) for form in _AFTER_DECIMAL)


def _decimal(seen: FieldProfile, scale: int | None) -> ColumnType:
    """A DECIMAL with room for more digits than were seen, of this scale if that is enough."""
    if scale is None or scale < seen.scale:
        is_fraction = seen.scale or seen.whole_digits < _BIGINT_DIGITS
        scale = max(2, seen.scale + seen.scale % 2) if is_fraction else 0
    if seen.whole_digits + scale > DECIMAL_DIGITS:
        scale = seen.scale
    is_small = seen.whole_digits + scale + _SPARE_DIGITS <= _LONG_DIGITS
    return ColumnType("DECIMAL", _LONG_DIGITS if is_small else DECIMAL_DIGITS, scale)


def _envelope(paths: Sequence[Path], carried: Sequence[FlatColumn]) -> Iterator[EnvelopeColumn]:
    """The record's key, and the other fields under `_metadata`, none under a name that a payload field has."""
    sources = [path for path in paths if _has_source(path)]
    keys = [path for path in sources if "idempotencykey" in re.sub("[^a-z]", "", path[-1].lower())]
    key = min(keys, key=lambda path: (path != _KEY, path[0] != _METADATA, len(path)), default=None)
    taken = {column_name(path) for path in paths} | {column.name for column in carried if column.path[0] != _METADATA}
    if key:
        yield EnvelopeColumn(name="idempotency_key", source=".".join(key))
    for path in sources:
        if path[0] != _METADATA or len(path) == 1 or path == key:
            continue
        words = "_".join(safe_name(_NEW_WORD.sub("_", level)) for level in path[1:])
        short = re.sub("_+", "_", words).strip("_")
        for name in (short, f"metadata_{short}"):
            if SAFE_NAME.fullmatch(name) and column_name((name,)) == name and name not in taken:
                taken.add(name)
                yield EnvelopeColumn(name=name, source=".".join(path))
                break


def _of_kept(profile: Profile, columns: Iterable[PayloadColumn]) -> dict[str, FieldProfile]:
    """What has been seen of the fields that the columns of the active contract are bound to."""
    fields: defaultdict[str | Path, list[FieldProfile]] = defaultdict(list)
    for each in profile.fields:
        fields[each.path].append(each)
        fields[column_name(each.path)].append(each)
    places = {column.name: column.path or column.name for column in columns}
    return {name: _merged(fields[place]) for name, place in places.items() if place in fields}


def _of_new(profile: Profile, envelope: Sequence[EnvelopeColumn], active: Contract | None) -> dict[str, FieldProfile]:
    """The fields that neither the envelope nor the active contract has, by the names that their columns are to have."""
    mapped = [FlatColumn(column.path, column.name) for column in envelope]
    paths = {column.path for column in mapped}
    carried = (column for column in profile.carried if column.path not in paths)
    plan = FlattenPlan((*mapped, *carried)).extended(each.path for each in profile.fields)
    names = {column.path: column.name for column in plan.columns}
    bound = active.bound_fields if active else BoundFields()
    taken, found = {*(active.column_names if active else ())}, dict[str, FieldProfile]()
    for each in profile.fields:
        if each.path in names and each.path not in paths and each.path not in bound:
            name = names[each.path] if names[each.path] not in taken else free_name(each.path, taken)
            taken.add(name)
            found[name] = each
    return found


def _sources(profile: Profile, seen: Mapping[str, FieldProfile]) -> dict[str, str | None]:
    """How each column says which field fills it: by its name alone if no other field has that plain name.

    A field that would need a dotted path, and has none, is not in it.
    """
    plain = Counter(column_name(each.path) for each in profile.fields)
    sources: dict[str, str | None] = {}
    for name, each in seen.items():
        if column_name(each.path) == name and plain[name] == 1:
            sources[name] = None
        elif _has_source(each.path):
            sources[name] = ".".join(each.path)
    return sources


def _has_source(path: Path) -> bool:
    """Whether a path can be written with dots between its levels."""
    return all(level and not re.search(r"[.\s]", level) for level in path)


def _merged(fields: Sequence[FieldProfile]) -> FieldProfile:
    """What has been seen of several fields that fill one column."""
    if len(fields) == 1:
        return fields[0]
    return FieldProfile(
        fields[0].path,
        values=sum(each.values for each in fields),
        blanks=sum(each.blanks for each in fields),
        fitting=sum((Counter(each.fitting) for each in fields), Counter[Form]()),
        decimals=sum(each.decimals for each in fields),
        whole_digits=max(each.whole_digits for each in fields),
        scale=max(each.scale for each in fields),
        samples=tuple(dict.fromkeys(sample for each in fields for sample in each.samples))[:3],
        since=min(filter(None, (each.since for each in fields)), default=None),
    )


def _new(name: str, source: str | None, seen: FieldProfile, messages: int) -> PayloadColumn:
    kind = narrowest_type(seen)
    return PayloadColumn(name=name, source=source, type=kind, description=_description(seen, kind, messages))


def _kept(column: PayloadColumn, seen: FieldProfile | None, messages: int) -> PayloadColumn:
    """A column of the active contract, with another type where its own does not fit what was seen."""
    if seen is None:
        return column
    said = dict(column)
    if not _fits(column, seen):
        kind = narrowest_type(seen, column.type)
        default = column.default if column.default is not None and kind.accepts(column.default) else None
        said |= {"type": kind, "format": None, "default": default}
    if not column.description or column.description.startswith(_MARK):
        said["description"] = _description(seen, said["type"], messages, is_cde=column.cde)
    return PayloadColumn(**said)


def _fits(column: PayloadColumn, seen: FieldProfile) -> bool:
    return seen.fitting.get(Form(column.type, column.format), 0) == seen.values


def _description(seen: FieldProfile, kind: ColumnType, messages: int, *, is_cde: bool = False) -> str:
    """What was seen: how often it is missing, since when it is there, samples, and what it might be."""
    missing = messages - seen.values
    facts = [f"missing in {missing:,} of {messages:,} messages ({missing / messages:.1%})"]
    if seen.blanks:
        facts.append(f"blank in {seen.blanks:,}")
    if seen.since:
        facts.append(f"since {seen.since}")
    if seen.samples:
        facts.append(f"such as {', '.join(f'“{_shown(sample)}”' for sample in seen.samples)}")
    if kind.name == "STRING":
        other, fitting = max(_types(seen), key=lambda each: each[1])
        if 2 * fitting > seen.values:
            facts.append(f"{fitting:,} of {seen.values:,} values would fit {other}")
    if not missing and not seen.blanks and not is_cde:
        facts.append("a candidate for cde")
    return f"{_MARK}{'; '.join(facts)}."


def _shown(text: str) -> str:
    shown = "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)
    return shown if len(shown) <= SAMPLE_LENGTH else f"{shown[: SAMPLE_LENGTH - 1]}…"


def _remarks(
    profile: Profile, active: Contract | None, contract: Contract, seen: Mapping[str, FieldProfile]
) -> Iterator[str]:
    """What the contract itself cannot say."""
    if profile.refused:
        yield f"{profile.refused:,} payloads are not one JSON object and were left out."
    if profile.overflowing:
        yield f"{profile.overflowing:,} messages have fields beyond the cap on columns; they stay in {OVERFLOW_COLUMN}."
    proposed = {column.name: column for column in contract.payload_columns}
    if left_out := [f"{path_text(seen[name].path)} ({name})" for name in seen if name not in proposed]:
        more = f" and {len(left_out) - _SHOWN:,} more" if len(left_out) > _SHOWN else ""
        yield (
            "Left out, because a contract cannot have these columns, by name, number or path: "
            f"{', '.join(left_out[:_SHOWN])}{more}."
        )
    if active is None and "idempotency_key" not in contract.column_names:
        yield "No field looks like a record's key: the key beside the payload, or else the message_id, is a record's."
    for column in active.payload_columns if active else ():
        yield from _changes(column, proposed[column.name], seen.get(column.name))


def _changes(was: PayloadColumn, now: PayloadColumn, seen: FieldProfile | None) -> Iterator[str]:
    if seen and not _fits(was, seen):
        misfits = seen.values - seen.fitting.get(Form(was.type, was.format), 0)
        form = f"{was.type} as {was.format}" if was.format else str(was.type)
        yield f"{was.name}: {misfits:,} of {seen.values:,} values do not fit {form}; it is {now.type} now."
    if now.default != was.default:
        yield f"{was.name}: its default {was.default!r} is no {now.type} and is gone."
