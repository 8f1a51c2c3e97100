"""Plausible values of a contract's columns, as JSON text; and values that a column cannot hold.

A value follows from a number alone, which is the message's or, for ids, the record's.
"""

import json
import re
from collections.abc import Callable, Sequence
from datetime import datetime

from leanops.contracts.model import FORMATTED_TYPES, PayloadColumn

Value = Callable[[int, str], str]
"""From a number and the moment of publication, in ISO 8601 and UTC, to the JSON text of a value."""

_WORDS: dict[str, Sequence[object]] = {
    "country": ("DE", "FR", "NL", "AT", "PL", "SE"),
    "currency": ("EUR", "EUR", "EUR", "USD", "GBP", "SEK"),
    "status": ("placed", "paid", "shipped", "delivered", "returned"),
    "city": ("Köln", "Lyon", "Utrecht", "Graz", "Łódź", "Malmö"),
    "locale": ("de", "en", "fr", "nl", "pl", "sv"),
    "method": ("card", "transfer", "direct debit", "wallet"),
    "eventtype": ("page", "cart", "search", "login"),
    "verb": ("view", "add", "submit", "remove"),
    "useragent": ("Mozilla/5.0", "okhttp/4.12", "curl/8.5", "shop-app/7.1 (Android)"),
    "firmware": ("1.4.2", "1.5.0", "2.0.0-rc1"),
    "producer": ("shop", "web-app", "back-office"),
    "items": ([{"sku": "kettle", "qty": 1}], [{"sku": "cup", "qty": 6}, {"sku": "lamp", "qty": 1}], []),
}
_ANY_WORDS = ("amber", "birch", "coral", "dune", "elm, old", "fjord", '50 % "off"', "heath ✓")
_FORMATS = {
    "yyyy": "%Y",
    "MM": "%m",
    "dd": "%d",
    "HH": "%H",
    "mm": "%M",
    "ss": "%S",
    "SSSSSS": "%f",
    "XXX": "Z",
    "X": "Z",
}
_FORMAT_PART = re.compile(r"'([^']*)'|([A-Za-z])\2*|.", re.DOTALL)
_EPOCHS = {"epoch_seconds": 1, "epoch_millis": 1_000, "epoch_micros": 1_000_000}
_MOST_WHOLE_DIGITS = 6
_NO_NUMBER = '"12abc"'


def value_of(column: PayloadColumn) -> Value:
    """How values of a column are made up. One that may be missing is null now and then."""
    value = _typed(column)
    if column.cde:
        return value
    return lambda number, moment: "null" if number % 16 == 7 else value(number, moment)


def text_of(name: str) -> Value:
    """How texts are made up for a field of this name."""
    if name.endswith("id"):
        stem = name.removesuffix("id").strip("_").rpartition("_")[2] or "id"
        return lambda number, _: f'"{stem}-{number % 100_000}"'
    if name.endswith("email"):
        return lambda number, _: f'"someone.{number % 100_000}@example.com"'
    if name.endswith("ipaddress"):
        return lambda number, _: f'"203.0.113.{number % 256}"'
    words = next((words for ending, words in _WORDS.items() if name.endswith(ending)), _ANY_WORDS)
    texts = [json.dumps(word, ensure_ascii=False) for word in words]
    return lambda number, _: texts[number % len(texts)]


def is_moment(column: PayloadColumn) -> bool:
    """Whether the column says when a message was published."""
    return column.type.name in FORMATTED_TYPES


def can_be_written(column: PayloadColumn) -> bool:
    """Whether moments can be written in the column's format."""
    if column.format is None or not is_moment(column) or column.format in _EPOCHS:
        return True
    parts = _FORMAT_PART.finditer(column.format)
    return all(found[0] in _FORMATS if found[2] else found[0] not in ("[", "]") for found in parts)


def misfits(column: PayloadColumn) -> Sequence[str]:
    """Values that the column's type cannot hold, as JSON texts; none for a STRING, which holds any text."""
    kind = column.type
    if kind.precision is not None and kind.scale is not None:
        return _NO_NUMBER, f"0.{'0' * kind.scale}1", "1" + "0" * (kind.precision - kind.scale)
    if column.format is not None:
        return ('"some day"',)
    return _MISFITS[kind.name]


_MISFITS: dict[str, Sequence[str]] = {
    "STRING": (),
    "BOOLEAN": ('"yes"', "1"),
    "INT": (_NO_NUMBER, "2147483648", "1.5"),
    "BIGINT": (_NO_NUMBER, "9223372036854775808"),
    "FLOAT": (_NO_NUMBER, '"NaN"', "1e39"),
    "DOUBLE": (_NO_NUMBER, '"NaN"', "1e400"),
    "DATE": ('"2026-02-30"', '"some day"'),
    "TIMESTAMP": ('"2026-02-30T08:00:00Z"', '"2026-01-31T25:00:00Z"', '"some day"'),
}


def _typed(column: PayloadColumn) -> Value:
    match column.type.name:
        case "STRING":
            return text_of(column.name)
        case "BOOLEAN":
            return lambda number, _: "true" if number % 2 else "false"
        case "INT":
            return lambda number, _: str(number % 100)
        case "BIGINT":
            return lambda number, _: str(number % 1_000_000)
        case "FLOAT":
            return lambda number, _: f"{number % 1_000 / 10}"
        case "DOUBLE":
            return lambda number, _: f"{number % 1_000_000 / 1_000}"
        case "DECIMAL":
            return _decimal(column.type.precision or 0, column.type.scale or 0)
        case _:
            return _moment(column)


def _decimal(precision: int, scale: int) -> Value:
    whole = 10 ** min(precision - scale, _MOST_WHOLE_DIGITS)
    if not scale:
        return lambda number, _: str(number % whole)
    return lambda number, _: f"{number % whole}.{number % 10**scale:0{scale}}"


def _moment(column: PayloadColumn) -> Value:
    if per_second := _EPOCHS.get(column.format or ""):
        return lambda _, moment: str(int(datetime.fromisoformat(moment).timestamp()) * per_second)
    if column.format is not None:
        pattern = "".join(map(_format_part, _FORMAT_PART.finditer(column.format)))
        return lambda _, moment: json.dumps(datetime.fromisoformat(moment).strftime(pattern))
    if column.type.name == "DATE":
        return lambda _, moment: f'"{moment[:10]}"'
    return lambda _, moment: f'"{moment[:19]}Z"'


def _format_part(found: re.Match[str]) -> str:
    if found[2]:
        return _FORMATS[found[0]]
    # Two quotes together stand for one.
    text = found[0] if found[1] is None else found[1] or "'"
    return text.replace("%", "%%")
