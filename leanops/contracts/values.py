"""The strict cast, one text at a time: the value that a text is exactly, with nothing rounded, cut or guessed."""

import re
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal, Inexact, InvalidOperation
from math import inf, nextafter
from struct import pack, unpack
from typing import TYPE_CHECKING

from leanops.contracts.datetime_format import EPOCH_FORMATS, read_moment

if TYPE_CHECKING:
    from leanops.contracts.column_types import ColumnType

Value = str | bool | int | float | Decimal | date | datetime

_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,18})")
# Exponents and texts are bounded: 1e999999999 as a decimal would be a number of a billion digits.
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(?:\.([0-9]+))?(?:[eE]([+-]?0*[0-9]{1,3}))?")
_MAX_NUMBER_LENGTH = 400
_MAX_WHOLE_DIGITS = 38  # of a FLOAT or DOUBLE, as of the longest DECIMAL
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIMESTAMP = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ](?:[01][0-9]|2[0-3]):[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6}0*)?"
    r"(Z|[+-](?:0[0-9]|1[0-7]):[0-5][0-9]|[+-]18:00)?"
)
_EXACTLY = {precision: Context(prec=precision, traps=[Inexact, InvalidOperation]) for precision in range(1, 39)}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def read_value(text: str, kind: "ColumnType", layout: str | None = None) -> Value | None:
    """The value that a text is, or None if it is none of the type exactly. A moment is in UTC, of years 1 to 9999."""
    if layout is not None and layout not in EPOCH_FORMATS:
        moment = read_moment(text, layout)
        return moment.date() if moment is not None and kind.name == "DATE" else moment
    try:
        match kind.name:
            case "STRING":
                return text
            case "BOOLEAN":
                return {"true": True, "false": False}.get(text)
            case "INT":
                return _integer(text, bits=32)
            case "BIGINT":
                return _integer(text, bits=64)
            case "DATE":
                return date.fromisoformat(text) if _DATE.fullmatch(text) else None
            case "TIMESTAMP":
                return _timestamp(text) if layout is None else _since_epoch(text, layout)
    except (ValueError, OverflowError):  # there is no such day or time, or its zone leads out of the years
        return None
    if len(text) > _MAX_NUMBER_LENGTH or not (number := _NUMBER.fullmatch(text)):
        return None
    if kind.precision is not None and kind.scale is not None:
        return _decimal(text, kind.precision, kind.scale)
    if kind.name == "FLOAT":
        return _binary(number, _as_float(text), most=9, tiny=2.0**-126)
    return _binary(number, float(text), most=17, tiny=2.0**-1022)


def _integer(text: str, bits: int) -> int | None:
    bound = 1 << (bits - 1)
    return value if _INTEGER.fullmatch(text) and -bound <= (value := int(text)) < bound else None


def _since_epoch(text: str, layout: str) -> datetime | None:
    number = _integer(text, bits=64)
    return None if number is None else _EPOCH + timedelta(microseconds=number * EPOCH_FORMATS[layout])


def _timestamp(text: str) -> datetime | None:
    found = _TIMESTAMP.fullmatch(text)
    if found is None:
        return None
    moment = datetime.fromisoformat(text)
    return moment.replace(tzinfo=UTC) if found[1] is None else moment.astimezone(UTC)


def _decimal(text: str, precision: int, scale: int) -> Decimal | None:
    """The number with so many digits behind the point, if only zeros are cut and none before the point is too many."""
    try:
        value = Decimal(text).quantize(Decimal((0, (1,), -scale)), context=_EXACTLY[precision])
    except (Inexact, InvalidOperation):
        return None
    return value or value.copy_abs()  # there is no -0


def _as_float(text: str) -> float:
    """The nearest number that a FLOAT holds, rounded once.

    On the way it is a DOUBLE whose last bit is set where it is not exact: no number halfway between two FLOATs is.
    """
    double, number = float(text), Decimal(text)
    if number != double and pack("<d", double)[0] % 2 == 0:
        double = nextafter(double, inf if number > double else -inf)
    try:
        (value,) = unpack("<f", pack("<f", double))
    except OverflowError:
        return inf
    return float(value)


def _binary(number: re.Match[str], value: float, most: int, tiny: float) -> float | None:
    """A whole number must be exactly one that the type holds, however it is written: `1e22` is a DOUBLE, `1e23` is not.

    Any other number has at most `most` significant digits, which is what the type can tell apart, and is not so small
    that it has fewer. `value` is the nearest that the type holds.
    """
    whole, fraction, exponent = number.groups(default="")
    figures = f"{whole}{fraction}"
    digits = figures.rstrip("0")
    zeros = int(exponent or 0) - len(fraction) + len(figures) - len(digits)
    digits = digits.lstrip("0")
    if not digits:
        return value
    if zeros < 0:
        return value if len(digits) <= most and abs(value) >= tiny else None
    is_held = len(digits) <= _MAX_WHOLE_DIGITS and abs(value) != inf and abs(int(value)) == int(digits) * 10**zeros
    return value if is_held else None
