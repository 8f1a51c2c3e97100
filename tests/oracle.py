"""What the tables must hold, in plain Python over dicts: slow, and obviously right.

Nothing here is the engine's but the naming of columns (`FlattenPlan`, which has tests of its own) and the contract as a
record. Each function is a step of the spec, in its order.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from math import isinf
from typing import Any, NamedTuple

import numpy as np

from leanops.contracts.column_types import ColumnType
from leanops.contracts.model import Contract, PayloadColumn
from leanops.standardized.flatten_plan import (
    DEFAULT_COLUMN_CAP,
    FlatColumn,
    FlattenPlan,
    Path,
    column_name,
    free_name,
)
from tests.cases.payloads import MAX_DEPTH, verdict

ARRAY = "[array]"
"""No leaf is this any more: an array is its text to the letter. `test_payload_reader` still allows for it."""

Value = str | bool | int | float | Decimal | date | datetime


@dataclass(frozen=True)
class Message:
    """A row of RAW."""

    message_id: str
    payload: str
    publish_time: datetime
    ingestion_ts: int
    landing_seq: int
    idempotency_key: str | None = None


@dataclass
class Standardized:
    """The tables that a history gives: rows by key, and the messages that could not be read, by their numbers."""

    plan: FlattenPlan
    firsts: dict[int, Message] = field(default_factory=dict)
    """The messages that are no copies."""
    refused: dict[int, Message] = field(default_factory=dict)
    versions: dict[str, list[Message]] = field(default_factory=dict)
    latest: dict[str, Message] = field(default_factory=dict)
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    fields: dict[str, dict[Path, str]] = field(default_factory=dict)
    """All leaves of each row's payload, whether they have columns or not."""
    objects: dict[str, set[Path]] = field(default_factory=dict)
    duplicates: int = 0
    superseded: int = 0


class BrokenRule(NamedTuple):
    """A rule of the contract that a row breaks: `cde`, `type` or `ambiguous`, and what Standardized holds."""

    column: str
    rule: str
    value: str | None


@dataclass
class Curated:
    """What Standardized gives under a contract, by key: the typed rows, and the broken rules of the others."""

    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    broken: dict[str, list[BrokenRule]] = field(default_factory=dict)


# From RAW to Standardized


def standardized(messages: Iterable[Message], plan: FlattenPlan, days: int | None = None) -> Standardized:
    """FIFO on message_id, parse, flatten, map the envelope, LIFO on idempotency_key.

    A copy that lands more than so many days after all those before it is no copy any more.
    """
    result, landed = Standardized(plan), dict[str, list[int]]()
    for message in sorted(messages, key=lambda each: each.landing_seq):
        before = landed.setdefault(message.message_id, [])
        if any(days is None or message.ingestion_ts - moment <= days * 86_400 for moment in before):
            result.duplicates += 1
        else:
            result.firsts[message.landing_seq] = message
        before.append(message.ingestion_ts)

    parsed = {seq: leaves(first.payload.encode("utf-8", "surrogatepass")) for seq, first in result.firsts.items()}
    result.refused = {seq: result.firsts[seq] for seq, found in parsed.items() if found is None}
    good = {seq: found for seq, found in parsed.items() if found is not None}
    result.plan = plan.extended(path for found in good.values() for path in found if path != plan.key)
    placed = {column.path for column in result.plan.columns} | {plan.key}

    for seq, found in good.items():
        first, in_payload = result.firsts[seq], found.get(plan.key or ())
        key = next(each for each in (in_payload, first.idempotency_key, first.message_id) if not is_blank(each))
        assert key is not None
        result.versions.setdefault(key, []).append(first)

    for key, versions in result.versions.items():
        latest = max(versions, key=lambda each: (each.publish_time, each.ingestion_ts, each.message_id))
        found = good[latest.landing_seq]
        result.superseded += len(versions) - 1
        result.latest[key] = latest
        below = {path[:level] for path in found if path in placed for level in range(len(path))}
        objects = objects_in(latest.payload.encode("utf-8", "surrogatepass"))
        result.fields[key], result.objects[key] = found, objects
        result.rows[key] = {
            **{column.name: found.get(column.path) for column in result.plan.columns},
            "message_id": latest.message_id,
            "overflow": {path: text for path, text in found.items() if path not in placed},
            "objects": objects - below,
        }
    return result


def standardized_under(contract: Contract, messages: Iterable[Message], cap: int = DEFAULT_COLUMN_CAP) -> Standardized:
    """The same with the envelope that a contract maps, and with so many columns at most."""
    envelope = {column.name: tuple(column.source.split(".")) for column in contract.envelope_columns}
    key = envelope.pop("idempotency_key", None)
    columns = [FlatColumn(path, name) for name, path in envelope.items()]
    levels = [key[: level + 1] for level in range(len(key))] if key else []
    is_kept = any(fills(path, column) for path in levels for column in contract.payload_columns)
    if key and is_kept and key not in envelope.values():
        columns.append(FlatColumn(key, free_name(key, set(envelope))))
    plan = FlattenPlan(tuple(columns), cap, contract.bound_fields, key)
    return standardized(messages, plan, contract.thresholds.duplicates_within_days)


def is_blank(text: str | None) -> bool:
    """Null, missing, or nothing but white space; Python counts four control characters as that, which are none."""
    return text is None or all(sign.isspace() and sign not in "\x1c\x1d\x1e\x1f" for sign in text)


def leaves(payload: bytes) -> dict[Path, str] | None:
    """A payload's leaves in the order written, by Python's own parser, or None if it must be refused.

    Strings are decoded; everything else is its text to the letter. Nulls and empty objects are no leaves.
    """
    found = _parsed(payload)
    return None if found is None else {path: text for path, text in found.items() if text is not None}


def objects_in(payload: bytes) -> set[Path]:
    """Where a readable payload has objects."""
    return {path for path, text in (_parsed(payload) or {}).items() if text is None}


@lru_cache(maxsize=10_000)
def _parsed(payload: bytes) -> dict[Path, str | None] | None:
    found: dict[Path, str | None] = {}
    try:
        text = payload.decode()
        if not verdict(text) or _depth(text) > MAX_DEPTH:
            return None
        whole = json.loads(text, object_pairs_hook=list, parse_int=str, parse_float=str)
        json.dumps(whole, ensure_ascii=False).encode()  # fails on half a surrogate pair
        _walk(text, text.index("{"), (), found)
    except (ValueError, RecursionError):
        return None
    return found


_BLANKS = re.compile(r"[ \t\r\n]*")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_value_at = json.JSONDecoder(parse_int=str, parse_float=str).raw_decode


def _depth(text: str) -> int:
    signs = re.sub(r"[^{}\[\]]", "", _STRING.sub("", text))
    return max(accumulate(1 if sign in "{[" else -1 for sign in signs))


def _walk(text: str, start: int, path: Path, found: dict[Path, str | None]) -> int:
    """Note the leaves of the object that begins at `start`, the objects below it as None, and say where it ends.

    A name given twice is refused.
    """
    names: set[str] = set()
    at = _behind_blanks(text, start + len("{"))
    while text[at] != "}":
        name, at = _value_at(text, at)
        if name in names:
            raise ValueError(f"the name {name} is given twice")
        names.add(name)
        value_start = _behind_blanks(text, _behind_blanks(text, at) + len(":"))
        if text[value_start] == "{":
            found[*path, name] = None
            at = _walk(text, value_start, (*path, name), found)
        else:
            value, at = _value_at(text, value_start)
            if value is not None:
                found[*path, name] = value if text[value_start] == '"' else text[value_start:at]
        at = _behind_blanks(text, at)
        if text[at] == ",":
            at = _behind_blanks(text, at + len(","))
    return at + len("}")


def _behind_blanks(text: str, at: int) -> int:
    blanks = _BLANKS.match(text, at)
    assert blanks
    return blanks.end()


# From Standardized to Curated


def curated(source: Standardized, contract: Contract) -> Curated:
    """Every row cast and checked. A row that breaks any rule is not in Curated, and all its broken rules are told."""
    result = Curated()
    order = {column.path: place for place, column in enumerate(source.plan.columns)}
    for key, row in source.rows.items():
        texts = {column.name: texts_of(source, key, column, order) for column in contract.payload_columns}
        rules = [
            rule
            for column in contract.payload_columns
            for rule in _broken_rules(texts[column.name], column, _is_object(source, key, column))
        ]
        if rules:
            result.broken[key] = rules
        else:
            envelope = {each.name: row[each.name] for each in contract.envelope_columns if each.name in row}
            firsts = {name: found[0] if found else None for name, found in texts.items()}
            typed = {column.name: _typed(firsts[column.name], column) for column in contract.payload_columns}
            result.rows[key] = {**envelope, **typed}
    return result


def fills(path: Path, column: PayloadColumn) -> bool:
    """Whether a field is the column's: by its source, or by its plain name where that is absent."""
    return path == tuple(column.source.split(".")) if column.source else column_name(path) == column.name


def texts_of(
    source: Standardized, key: str, column: PayloadColumn, order: Mapping[Path, int] | None = None
) -> list[str]:
    """What a row's fields say for a column, each text once, in the order of Standardized's columns."""
    found = {path: text for path, text in source.fields[key].items() if fills(path, column)}
    return list(dict.fromkeys(found[path] for path in sorted(found, key=lambda each: (order or {}).get(each, 0))))


def _is_object(source: Standardized, key: str, column: PayloadColumn) -> bool:
    return any(fills(path, column) for path in source.objects[key])


def _broken_rules(texts: list[str], column: PayloadColumn, is_object: bool) -> list[BrokenRule]:
    rules = []
    text = texts[0] if texts else None
    is_ambiguous = len(texts) > 1
    if is_ambiguous:
        rules.append(BrokenRule(column.name, "ambiguous", json.dumps(texts, ensure_ascii=False, separators=(",", ":"))))
    is_missing = column.cde and not is_object and not is_ambiguous and is_blank(text)
    if is_missing:
        rules.append(BrokenRule(column.name, "cde", text))
    if is_object:
        rules.append(BrokenRule(column.name, "type", "{…}"))
    elif not is_ambiguous and not is_missing and text is not None and cast(text, column.type, column.format) is None:
        rules.append(BrokenRule(column.name, "type", text))
    return rules


def _typed(text: str | None, column: PayloadColumn) -> Value | None:
    if text is not None:
        return cast(text, column.type, column.format)
    return None if column.default is None else cast(column.default, column.type, None)


# The strict cast: what does not fit exactly is refused


def cast(text: str, kind: ColumnType, layout: str | None) -> Value | None:
    """The value that the text is, exactly, or None if it must be refused."""
    match kind.name:
        case "STRING":
            return text
        case "BOOLEAN":
            return {"true": True, "false": False}.get(text)
        case "INT":
            return _integer(text, bits=32)
        case "BIGINT":
            return _integer(text, bits=64)
        case "FLOAT":
            return _binary(text, np.float32, at_most=9)
        case "DOUBLE":
            return _binary(text, np.float64, at_most=17)
        case "DECIMAL":
            assert kind.precision is not None
            assert kind.scale is not None
            return _decimal(text, kind.precision, kind.scale)
        case "DATE":
            moment = _moment(text, _pattern(layout) if layout else _OWN_FORM["DATE"])
            return moment and moment.date()
        case "TIMESTAMP" if layout in _PER_SECOND:
            return _since_epoch(text, _PER_SECOND[layout])
        case "TIMESTAMP":
            return _moment(text, _pattern(layout) if layout else _OWN_FORM["TIMESTAMP"])
    raise ValueError(kind)


_INTEGER = re.compile(r"-?(0|[1-9][0-9]*)")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?0*[0-9]{1,3})?")
_MAX_NUMBER_LENGTH = 400


def _integer(text: str, bits: int) -> int | None:
    bound = 2 ** (bits - 1)
    return int(text) if _INTEGER.fullmatch(text) and -bound <= Decimal(text) < bound else None


def _number(text: str) -> Decimal | None:
    """A number as JSON writes it, neither its text nor its exponent of absurd length."""
    return Decimal(text) if len(text) <= _MAX_NUMBER_LENGTH and _NUMBER.fullmatch(text) else None


def _decimal(text: str, precision: int, scale: int) -> Decimal | None:
    number = _number(text)
    if number is None:
        return None
    units = Fraction(number) * 10**scale
    if units.denominator != 1 or abs(units) >= 10**precision:
        return None
    return Decimal(int(units)).scaleb(-scale, Context(prec=precision))


def _binary(text: str, kind: type[np.floating[Any]], at_most: int) -> float | None:
    """A whole number must be exactly that number; any other has no more digits than the type tells apart.

    Whole numbers of more than 38 significant digits are refused: Spark has no exact type for them.
    """
    number = _number(text)
    if number is None:
        return None
    value = _nearest(number, kind)
    digits = len("".join(map(str, number.as_tuple().digits)).strip("0"))
    if isinf(value):
        return None
    if Fraction(number).denominator == 1:
        return value if digits <= 38 and Fraction(value) == Fraction(number) else None
    return value if digits <= at_most and abs(value) >= np.finfo(kind).tiny else None


def _nearest(number: Decimal, kind: type[np.floating[Any]]) -> float:
    """The nearest number that a type holds. NumPy rounds a FLOAT twice, by way of a DOUBLE, so its neighbours count."""
    with np.errstate(over="ignore", under="ignore"):
        value = kind(number)
        near = [value, *(np.nextafter(value, kind(end)) for end in ("-inf", "inf"))]
    if isinf(value):
        return float(value)
    exact = Fraction(number)
    return float(min((each for each in near if np.isfinite(each)), key=lambda each: abs(Fraction(float(each)) - exact)))


_OWN_FORM = {
    "DATE": r"(?P<year>\d{4})-(?P<month>\d\d)-(?P<day>\d\d)",
    "TIMESTAMP": r"(?P<year>\d{4})-(?P<month>\d\d)-(?P<day>\d\d)[T ](?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)"
    r"(\.(?P<fraction>\d{1,6})0*)?(?P<zone>Z|[+-]\d\d:\d\d)?",
}
_PER_SECOND = {"epoch_seconds": 1, "epoch_millis": 1_000, "epoch_micros": 1_000_000}
_MONTHS = [date(2000, month, 1).strftime("%B").lower() for month in range(1, 13)]
_LETTERS = {"y": "year", "M": "month", "L": "month", "d": "day", "D": "yearday", "H": "hour", "k": "clock", "h": "of12"}
_LETTERS |= {"K": "of11", "m": "minute", "s": "second", "S": "fraction", "a": "half", "G": "era"}
_LETTERS |= dict.fromkeys("XxZO", "zone")
_TOKEN = re.compile(r"'([^']*)'|([A-Za-z])\2*|([\[\]])|(.)", re.DOTALL)


@lru_cache
def _pattern(layout: str) -> str:
    """A format as a regular expression that names its parts."""
    return "".join(map(_pattern_of, _TOKEN.finditer(layout)))


def _pattern_of(token: re.Match[str]) -> str:
    run, letter = token[0], token[2]
    if token[3]:
        return "(?:" if run == "[" else ")?"
    if not letter:
        return re.escape(run if token[1] is None else token[1])
    return f"(?P<{_LETTERS[letter]}>{_signs(letter, len(run))})"


def _signs(letter: str, count: int) -> str:
    match letter:
        case "S":
            return rf"\d{{{min(count, 6)}}})(?:{'0' * (count - 6)}"
        case "a":
            return "AM|PM"
        case "G":
            return "Anno Domini" if count == 4 else "AD"
        case "M" | "L" if count > 2:
            return "|".join(name.title() if count == 4 else name[:3].title() for name in _MONTHS)
        case "O" | "Z" if letter == "O" or count == 4:
            return r"GMT(?:[+-]\d\d?(?::\d\d)?)?" if count == 1 else r"GMT(?:[+-]\d\d:\d\d)?"
        case "Z" | "x" | "X":
            style = {1: 2, 2: 2, 3: 2, 5: 5}[count] if letter == "Z" else count
            colon = ":" if style in (3, 5) else ""
            minutes = rf"(?:{colon}\d\d)" + ("?" if style == 1 else "")
            seconds = rf"(?:{colon}\d\d)?" if style > 3 else ""
            zulu = "Z|" if letter == "X" or (count == 5 and letter == "Z") else ""
            return rf"{zulu}[+-]\d\d{minutes}{seconds}"
    most = {"y": max(count, 4), "D": 3}.get(letter, 2)
    return "|".join(
        rf"\d{{{count}}}" if size == count else rf"[1-9]\d{{{size - 1}}}" for size in range(count, most + 1)
    )


def _moment(text: str, pattern: str) -> datetime | None:
    found = re.fullmatch(pattern, text, re.ASCII)
    if found is None:
        return None
    part = {name: value for name, value in found.groupdict().items() if value is not None}
    try:
        day = _day(part)
        hour = _hour(part)
        minute, second = int(part.get("minute", 0)), int(part.get("second", 0))
        micros = int(part.get("fraction", "0").ljust(6, "0"))
        local = datetime(day.year, day.month, day.day, hour, minute, second, micros, UTC)
        return local - _offset(part.get("zone", "Z"))
    except (ValueError, OverflowError):
        return None


def _day(part: Mapping[str, str]) -> date:
    if "yearday" in part:
        first = date(int(part["year"]), 1, 1)
        day = first + timedelta(days=int(part["yearday"]) - 1)
        if day.year != first.year:
            raise ValueError("the year has no such day")
        return day
    month = part["month"]
    names = [name[: len(month)] for name in _MONTHS]
    return date(int(part["year"]), int(month) if month.isdigit() else names.index(month.lower()) + 1, int(part["day"]))


def _hour(part: Mapping[str, str]) -> int:
    """The hour of the day, whichever clock it is told by: of 0 to 23, 1 to 24, 1 to 12 or 0 to 11."""
    for name, first, last in (("clock", 1, 24), ("of12", 1, 12), ("of11", 0, 11), ("hour", 0, 23)):
        if name in part and not first <= int(part[name]) <= last:
            raise ValueError(f"there is no hour {part[name]}")
    after_noon = 12 if part.get("half") == "PM" else 0
    if "of12" in part or "of11" in part:
        return int(part.get("of12") or part["of11"]) % 12 + after_noon
    hour = int(part.get("clock", part.get("hour", "0"))) % 24
    if "half" in part and hour // 12 * 12 != after_noon:
        raise ValueError("the hour is not of this half of the day")
    return hour


_FURTHEST_ZONE = timedelta(hours=18)


def _offset(zone: str) -> timedelta:
    found = re.fullmatch(r"(?:GMT)?([+-])(\d{1,2}):?(\d\d)?:?(\d\d)?", zone)
    if found is None:
        return timedelta()
    hours, minutes, seconds = (int(each or 0) for each in found.groups()[1:])
    offset = timedelta(hours=hours, minutes=minutes, seconds=seconds)
    if minutes >= 60 or seconds >= 60 or offset > _FURTHEST_ZONE:
        raise ValueError(f"there is no zone {zone}")
    return -offset if found[1] == "-" else offset


def _since_epoch(text: str, per_second: int) -> datetime | None:
    number = _integer(text, bits=64)
    if number is None:
        return None
    try:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=number * (1_000_000 // per_second))
    except OverflowError:
        return None
