"""The types a contract may give a column."""

import re
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Self

from leanops.contracts.values import read_value
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
        return read_value(text, self) is not None


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
