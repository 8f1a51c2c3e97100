"""The types a contract may give a column, and which texts are values of them, exactly."""

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from difflib import get_close_matches
from fractions import Fraction
from typing import Any, Self

import numpy as np

from leanops.errors import NotAllowed, quoted

DECIMAL_DIGITS = 38
SIMPLE_TYPES = {
    "STRING": "any text",
    "BOOLEAN": "true or false",
    "INT": f"a whole number from {-(2**31)} to {2**31 - 1}",
    "BIGINT": f"a whole number from {-(2**63)} to {2**63 - 1}",
    "FLOAT": "a number as JSON writes it, of at most 9 significant digits; a whole one exactly as a FLOAT holds it",
    "DOUBLE": "a number as JSON writes it, of at most 17 significant digits; a whole one exactly as a DOUBLE holds it",
    "DATE": "a day, such as 2026-01-31",
    "TIMESTAMP": "a moment, such as 2026-01-31T08:15:00Z, in UTC where it names no zone",
}
"""The types that have no parameters, and what a value of each is."""

ALL_TYPES = f"{', '.join(SIMPLE_TYPES)} or DECIMAL(p,s)"
DECIMAL_RULE = f"DECIMAL(p,s) with 1 ≤ p ≤ {DECIMAL_DIGITS} and 0 ≤ s ≤ p"
_DECIMAL = re.compile(r"DECIMAL\((\d{1,2}),(\d{1,2})\)", re.ASCII)
_OTHER_NAMES = {
    "INTEGER": "INT",
    "SMALLINT": "INT",
    "LONG": "BIGINT",
    "NUMBER": "DECIMAL(p,s)",
    "NUMERIC": "DECIMAL(p,s)",
    "VARCHAR": "STRING",
    "TEXT": "STRING",
    "BOOL": "BOOLEAN",
    "REAL": "FLOAT",
    "DATETIME": "TIMESTAMP",
}


@dataclass(frozen=True)
class ColumnType:
    """A type by its name in the contract; `precision` and `scale` are those of a DECIMAL."""

    name: str
    precision: int | None = None
    scale: int | None = None

    def __str__(self) -> str:
        return self.name if self.precision is None else f"{self.name}({self.precision},{self.scale})"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a type as a contract writes it. The error names the nearest type that exists."""
        if text in SIMPLE_TYPES:
            return cls(text)
        if decimal := _DECIMAL.fullmatch(text):
            precision, scale = int(decimal[1]), int(decimal[2])
            if not (1 <= precision <= DECIMAL_DIGITS and scale <= precision):
                raise NotAllowed(f"{text} is no {DECIMAL_RULE}", allowed=DECIMAL_RULE)
            return cls("DECIMAL", precision, scale)
        raise NotAllowed(f"there is no type {quoted(text)}", allowed=ALL_TYPES, fix=_suggestion(text))

    @property
    def meaning(self) -> str:
        """What a value of this type is, and so how a default is written."""
        if self.precision is not None and self.scale is not None:
            return f"a number of at most {self.precision - self.scale} digits before the point and {self.scale} behind"
        return SIMPLE_TYPES[self.name]

    def is_wider_than(self, other: "ColumnType") -> bool:
        """Whether every value of the other type is one of this too, and a table's column can follow in place."""
        if self.name == other.name == "DECIMAL":
            return self.scale == other.scale and (self.precision or 0) > (other.precision or 0)
        return (other.name, self.name) in (("INT", "BIGINT"), ("FLOAT", "DOUBLE"))

    def accepts(self, text: str) -> bool:
        """Whether `text` is a value of this type with nothing rounded, cut or guessed: what the strict cast takes."""
        if self.precision is not None and self.scale is not None:
            return _is_number(text) and _fits_decimal(Decimal(text), self.precision, self.scale)
        return _ACCEPTS[self.name](text)


def _suggestion(text: str) -> str:
    upper = re.sub(r"\s", "", text.upper())
    with suppress(ValueError):
        if upper != text:
            return f"write {ColumnType.parse(upper)}"
    bare = upper.partition("(")[0][:60]
    nearest = _OTHER_NAMES.get(bare) or next(iter(get_close_matches(bare, [*SIMPLE_TYPES, "DECIMAL"], n=1)), None)
    if nearest == "DECIMAL":
        nearest = "DECIMAL(p,s)"
    return f"did you mean {nearest}?" if nearest else f"use {ALL_TYPES}"


_INTEGER = re.compile(r"-?(0|[1-9]\d*)", re.ASCII)
_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?0*\d{1,3})?", re.ASCII)
_DATE = re.compile(r"(?!0000)\d{4}-\d\d-\d\d", re.ASCII)
_TIMESTAMP = re.compile(
    r"(?!0000)\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d{1,6}0*)?(Z|[+-](0\d|1[0-7]):[0-5]\d|[+-]18:00)?", re.ASCII
)
_MAX_NUMBER_LENGTH = 400


def _is_number(text: str) -> bool:
    return len(text) <= _MAX_NUMBER_LENGTH and bool(_NUMBER.fullmatch(text))


def _fits_decimal(value: Decimal, precision: int, scale: int) -> bool:
    _, digits, exponent = value.as_tuple()
    if not any(digits):
        return True
    assert isinstance(exponent, int)
    significant = "".join(map(str, digits))
    trailing = len(significant) - len(significant.rstrip("0"))
    return -(exponent + trailing) <= scale and len(digits) + exponent <= precision - scale


def _integer_of(bits: int) -> Callable[[str], bool]:
    bound = 2 ** (bits - 1)
    return lambda text: bool(_INTEGER.fullmatch(text)) and len(text) <= 20 and -bound <= int(text) < bound


def _binary_of(kind: type[np.floating[Any]], most: int) -> Callable[[str], bool]:
    """A whole number must be exactly one that `kind` holds, however it is written: `1e22` is a DOUBLE, `1e23` is not.

    Any other number has at most `most` significant digits, which is what `kind` can tell apart, and is not so small
    that `kind` has fewer. Whole numbers of more than 38 significant digits are refused: Spark is not exact there.
    """

    def fits(text: str) -> bool:
        if not _is_number(text):
            return False
        with np.errstate(over="ignore", under="ignore"):
            value = kind(text)
        count, number = len(_digits(text)), Fraction(text)
        if not np.isfinite(value):
            return False
        if number.denominator == 1:
            return count <= DECIMAL_DIGITS and Fraction(float(value)) == number
        return count <= most and abs(value) >= np.finfo(kind).tiny

    return fits


def _digits(number: str) -> str:
    """The significant digits of a number's text: no sign, point, exponent, nor zeros at either end."""
    return re.sub(r"[eE].*|[-.]", "", number).strip("0")


def _is_date(text: str) -> bool:
    return bool(_DATE.fullmatch(text)) and _parses(date.fromisoformat, text)


def _is_timestamp(text: str) -> bool:
    return bool(_TIMESTAMP.fullmatch(text)) and _parses(_in_utc, text)


def _in_utc(text: str) -> datetime:
    """The moment in UTC, which a zone can shift out of the years 1 to 9999."""
    zone = "" if text[-1] == "Z" or text[-6] not in "+-" else text[-6:]
    hours, _, minutes = zone.partition(":")
    shift = timedelta(hours=int(hours), minutes=int(f"{hours[0]}{minutes}")) if zone else timedelta()
    return datetime.fromisoformat(text[:19]) - shift


def _parses(parse: Callable[[str], object], text: str) -> bool:
    try:
        parse(text)
    except (ValueError, OverflowError):
        return False
    return True


_ACCEPTS: dict[str, Callable[[str], bool]] = {
    "STRING": lambda _: True,
    "BOOLEAN": lambda text: text in ("true", "false"),
    "INT": _integer_of(32),
    "BIGINT": _integer_of(64),
    "FLOAT": _binary_of(np.float32, most=9),
    "DOUBLE": _binary_of(np.float64, most=17),
    "DATE": _is_date,
    "TIMESTAMP": _is_timestamp,
}
