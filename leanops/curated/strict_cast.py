"""Text to a contract's type, strictly: NULL unless the text is a value of the type and no digit of it is lost.

`read_value` is the rule. Arrow casts many texts at once, and takes more: blanks around a number, `1` for a boolean,
`NaN`, more digits than a DOUBLE holds. So it gets only texts of a plain form, of which it casts each one, to exactly
what the rule gives; all other texts are read one by one, each distinct one once.
"""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from leanops.contracts.column_types import ColumnType
from leanops.contracts.values import read_value

_UTC = pa.timestamp("us", "UTC")
_ARROW_TYPES = {
    "STRING": pa.string(),
    "BOOLEAN": pa.bool_(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "DATE": pa.date32(),
    "TIMESTAMP": _UTC,
}
# Every such day exists: February 29th is not among them. The years are ones that no zone leads out of 1 to 9999.
_DAY = (
    "-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    "|02-(?:0[1-9]|1[0-9]|2[0-8]))"
)
_TIME = r"[T ](?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?"
_ZONE = "(?:Z|[+-](?:0[0-9]|1[0-7]):[0-5][0-9]|[+-]18:00)"
_EPOCHS = {"epoch_seconds": ("s", 10), "epoch_millis": ("ms", 13), "epoch_micros": ("us", 16)}
"""The unit of each, and of how many digits every number is a moment of the years 1 to 9999."""


def arrow_type(kind: ColumnType) -> pa.DataType:
    """The type of a column's values in Arrow."""
    return _ARROW_TYPES[kind.name] if kind.precision is None else pa.decimal128(kind.precision, kind.scale)


def strict_cast(texts: pa.Array | pa.ChunkedArray, kind: ColumnType, layout: str | None = None) -> pa.Array:
    """The texts as values of the type, NULL where one is NULL or does not fit exactly."""
    if isinstance(texts, pa.ChunkedArray):
        texts = texts.combine_chunks()
    if kind.name == "STRING":
        return texts
    found = pa.nulls(len(texts), arrow_type(kind))
    for form, steps in _plain_forms(kind, layout):
        values = pc.if_else(pc.match_substring_regex(texts, rf"\A(?:{form})\z"), texts, None)
        for step in steps:
            values = values.cast(step)
        found = pc.coalesce(found, values)
    is_odd = pc.and_(texts.is_valid(), found.is_null())
    odd = texts.filter(is_odd).dictionary_encode()
    if not len(odd):
        return found
    read = pa.array([read_value(text, kind, layout) for text in odd.dictionary.to_pylist()], arrow_type(kind))
    return pc.replace_with_mask(found, is_odd, read.take(odd.indices))


def _plain_forms(kind: ColumnType, layout: str | None) -> Iterator[tuple[str, list[pa.DataType]]]:
    """Forms of text, as RE2 has them, and the types by which Arrow casts every text of such a form exactly."""
    own = arrow_type(kind)
    match kind.name:
        case "BOOLEAN":
            yield "true|false", [own]
        case "INT":
            yield _integer(9), [own]
        case "BIGINT":
            yield _integer(18), [own]
        case "FLOAT":
            yield _binary(7, 9), [own]
        case "DOUBLE":
            yield _binary(15, 17), [own]
        case "DECIMAL":
            whole, scale = own.precision - own.scale, own.scale
            yield (_integer(whole) if whole else "-?0") + (rf"(?:\.[0-9]{{1,{scale}}})?" if scale else ""), [own]
        case "DATE" if layout is None:
            yield f"[1-9][0-9]{{3}}{_DAY}", [own]
        case "TIMESTAMP" if layout is None:
            moment = f"[1-8][0-9]{{3}}{_DAY}{_TIME}"
            yield f"{moment}{_ZONE}", [own]
            yield moment, [pa.timestamp("us"), own]
        case "TIMESTAMP" if layout in _EPOCHS:
            unit, digits = _EPOCHS[layout]
            yield _integer(digits), [pa.int64(), pa.timestamp(unit, "UTC"), own]


def _integer(digits: int) -> str:
    return f"-?(?:0|[1-9][0-9]{{0,{digits - 1}}})"


def _binary(held: int, most: int) -> str:
    """A number of at most `held` digits, of which the type holds every whole one, or of `most` and not a whole one."""
    return "|".join(
        rf"-?{f'[1-9][0-9]{{{before - 1}}}' if before else '0'}"
        rf"(?:\.(?:[0-9]{{1,{held - before}}}|[0-9]{{0,{most - before - 1}}}[1-9]))?"
        for before in range(held)
    )
