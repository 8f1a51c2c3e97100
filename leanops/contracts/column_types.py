"""The types a contract may give a column, and which texts are values of them, exactly."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from difflib import get_close_matches
from typing import Self

DECIMAL_DIGITS = 38
SIMPLE_TYPES = ("STRING", "BOOLEAN", "INT", "BIGINT", "FLOAT", "DOUBLE", "DATE", "TIMESTAMP")
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
                raise ValueError(f"{text} is no DECIMAL(p,s) with 1 ≤ p ≤ {DECIMAL_DIGITS} and 0 ≤ s ≤ p")
            return cls("DECIMAL", precision, scale)
        raise ValueError(f"there is no type {text!r}{_suggestion(text)}")

    def accepts(self, text: str) -> bool:
        """Whether `text` is a value of this type with nothing rounded, cut or guessed."""
        if self.name == "DECIMAL":
            return self._accepts_decimal(text)
        return _ACCEPTS[self.name](text)

    def _accepts_decimal(self, text: str) -> bool:
        assert self.precision is not None
        assert self.scale is not None
        if not _NUMBER.fullmatch(text):
            return False
        try:
            _, digits, exponent = Decimal(text).as_tuple()
        except InvalidOperation:
            return False
        if not any(digits):
            return True
        assert isinstance(exponent, int)
        significant = "".join(map(str, digits))
        trailing = len(significant) - len(significant.rstrip("0"))
        return -(exponent + trailing) <= self.scale and len(digits) + exponent <= self.precision - self.scale


def _suggestion(text: str) -> str:
    upper = re.sub(r"\s", "", text.upper())
    if upper in SIMPLE_TYPES or _DECIMAL.fullmatch(upper):
        return f": write {upper}"
    bare = upper.partition("(")[0]
    nearest = _OTHER_NAMES.get(bare) or next(iter(get_close_matches(bare, [*SIMPLE_TYPES, "DECIMAL"], n=1)), None)
    if nearest == "DECIMAL":
        nearest = "DECIMAL(p,s)"
    return f": did you mean {nearest}?" if nearest else f": use {', '.join(SIMPLE_TYPES)} or DECIMAL(p,s)"


_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,4})?", re.ASCII)
_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)


def _integer_of(bits: int) -> Callable[[str], bool]:
    bound = 2 ** (bits - 1)
    return lambda text: bool(_INTEGER.fullmatch(text)) and len(text) < 64 and -bound <= int(text) < bound


def _is_date(text: str) -> bool:
    return bool(re.fullmatch(r"\d{4}-\d\d-\d\d", text, re.ASCII)) and _parses(date.fromisoformat, text)


def _is_timestamp(text: str) -> bool:
    return bool(re.match(r"\d{4}-\d\d-\d\d", text, re.ASCII)) and _parses(datetime.fromisoformat, text)


def _parses(parse: Callable[[str], object], text: str) -> bool:
    try:
        parse(text)
    except ValueError:
        return False
    return True


_ACCEPTS: dict[str, Callable[[str], bool]] = {
    "STRING": lambda _: True,
    "BOOLEAN": lambda text: text in ("true", "false"),
    "INT": _integer_of(32),
    "BIGINT": _integer_of(64),
    "FLOAT": lambda text: bool(_NUMBER.fullmatch(text)),
    "DOUBLE": lambda text: bool(_NUMBER.fullmatch(text)),
    "DATE": _is_date,
    "TIMESTAMP": _is_timestamp,
}
