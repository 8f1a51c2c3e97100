"""Text to a contract's type, strictly: NULL unless the text is a value of the type and no digit of it is lost.

`try_cast` alone takes blanks around a value, `yes` for a boolean, `12d` and `NaN` for a number, `2024` and
`2024-01-01Tabc` for a date, `10:00` for a timestamp (of today!), rounds decimals and turns 1e400 into Infinity. So
the text's form is checked, and where digits could be lost they are compared. A text that is not NULL and whose
strict cast is NULL is broken.

Timestamps without a zone are read in the session's zone, which must be UTC.
"""

import re
from typing import NamedTuple

from pyspark.sql import Column
from pyspark.sql import functions as F

from leanops.contracts.datetime_format import has_offset, text_form

# Exponents are bounded: 1e999999999 as a decimal would be a number of a billion digits.
_NUMBER = r"\A-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?0*[0-9]{1,3})?\z"
_DATE = r"\A(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}\z"
_TIMESTAMP = (
    r"\A(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6}0*)?(Z|[+-][0-9]{2}:[0-9]{2})?\z"
)
# Java reads a decimal of a million digits in a minute: one such value would hold up its whole topic.
_MAX_NUMBER_LENGTH = 400
_DECIMAL_TYPE = re.compile(r"DECIMAL\(\s*(\d+)\s*,\s*(\d+)\s*\)")
_EPOCHS = {
    "epoch_seconds": ("timestamp_seconds", 1),
    "epoch_millis": ("timestamp_millis", 1_000),
    "epoch_micros": ("timestamp_micros", 1_000_000),
}
_FIRST_SECOND, _LAST_SECOND = -62135596800, 253402300799  # of the years 1 and 9999


class _Binary(NamedTuple):
    """Every decimal of `safe` digits survives the way to the type and back; of more than `most`, none does.

    `bits` are those of the significand; numbers below `tiny` have fewer of them, and so fewer digits.
    """

    safe: int
    most: int
    bits: int
    tiny: float


_BINARIES = {"FLOAT": _Binary(6, 9, 24, 2.0**-126), "DOUBLE": _Binary(15, 17, 53, 2.0**-1022)}
# No multiple of 10^23 has few enough bits for a DOUBLE (5^23 has 54), and before these there are at most 38 digits.
_END_OF_HELD = 1e60


def strict_cast(text: Column, type_name: str, layout: str | None = None) -> Column:
    """The text as a value of the type, or NULL if it does not fit exactly."""
    match type_name.upper():
        case "STRING":
            return text
        case "BOOLEAN":
            return F.when(text.isin("true", "false"), text == "true")
        case "INT" | "BIGINT" as integer:
            return _strict_integer(text, integer)
        case "FLOAT" | "DOUBLE" as binary:
            return _strict_binary(text, binary)
        case "DATE":
            return _strict_date(text, layout)
        case "TIMESTAMP":
            return _strict_timestamp(text, layout)
        case other if decimal := _DECIMAL_TYPE.fullmatch(other):
            return _strict_decimal(text, int(decimal[1]), int(decimal[2]))
        case other:
            raise ValueError(f"no strict cast to {other}")


def is_broken(text: Column, value: Column) -> Column:
    """Whether a text was there and its strict cast refused it."""
    return text.isNotNull() & value.isNull()


def _strict_integer(text: Column, integer: str) -> Column:
    """An integer is what it prints as: no blanks, no plus, no leading zeros, no exponent."""
    value = text.try_cast(integer)
    return F.when((value.cast("STRING") == text) | (text == "-0"), value)


def _strict_decimal(text: Column, precision: int, scale: int) -> Column:
    """Plain texts within the scale are cast at once; others only if no digit but zeros gets lost."""
    fraction = rf"(\.[0-9]{{1,{scale}}})?" if scale else ""
    value = _bounded(text).try_cast(f"DECIMAL({precision},{scale})")
    loses_nothing = _digits(value.cast("STRING")) == _digits(text)
    return F.when(text.rlike(rf"\A-?(0|[1-9][0-9]*){fraction}\z"), value).when(
        text.rlike(_NUMBER) & loses_nothing, value
    )


def _strict_binary(text: Column, binary: str) -> Column:
    """A whole number that the type holds exactly, or a finite one with no more digits than the type can tell apart.

    Plain texts of few digits are cast at once. How Java prints a binary number has changed between its versions, so
    nothing here depends on it.
    """
    form = _BINARIES[binary]
    is_short = rf"\A-?(?=[0-9.]{{1,{form.safe + 1}}}\z)(?:0|[1-9][0-9]{{0,{form.safe - 1}}})(?:\.[0-9]+)?\z"
    value = text.try_cast(binary)
    size, zeros = F.abs(value), _last_digit_exponent(text)
    tells_apart = (F.length(_digits(text)) <= form.most) & (size >= form.tiny)
    fits = F.when(zeros >= 0, _is_held(text, size, zeros, form, binary)).otherwise(tells_apart)
    return F.when(text.rlike(is_short), value).when(_bounded(text).rlike(_NUMBER) & fits, value)


def _is_held(text: Column, size: Column, zeros: Column, form: _Binary, binary: str) -> Column:
    """Whether a whole number is exactly the one that the type holds: whether the gap to the next one divides it.

    The gap is a power of two. The nearest number that the type holds is a multiple of it and less than a gap away, so
    if the gap divides the number too they are the same. The number is its significant digits and some zeros, 10^z:
    these bring 2^z of the gap. The digits must fit DECIMAL(38,0), Spark's longest exact type.
    """
    half = (size * 0.5).cast(binary)
    just_over_half_a_gap = half * F.lit(2.0**-form.bits * (1 + 2.0 ** -(form.bits - 3))).cast(binary)
    gap = (half + just_over_half_a_gap - half) * 2.0
    divisor = gap * F.pow(F.lit(0.5), zeros)
    # A divisor of more than 63 bits is two numbers: no cast of a DOUBLE to a DECIMAL is exact.
    low, high = F.least(divisor, F.lit(2.0**62)), F.least(divisor * 2.0**-62, F.lit(2.0**62))
    remainder = F.concat(F.lit("0"), _digits(text)).try_cast("DECIMAL(38,0)") % (_from_one(low) * _from_one(high))
    return (size < _END_OF_HELD) & F.coalesce(remainder == 0, F.lit(False))


def _from_one(number: Column) -> Column:
    return F.greatest(number, F.lit(1.0)).cast("BIGINT").cast("DECIMAL(19,0)")


def _last_digit_exponent(text: Column) -> Column:
    """Which power of ten the last significant digit of a number counts: 1 for `1200e-1`, -2 for `0.250`."""
    exponent = F.coalesce(F.regexp_extract(text, r"[eE](.*)", 1).try_cast("INT"), F.lit(0))
    figures = F.regexp_replace(text, r"[eE].*|[-.]", "")
    trailing = F.length(figures) - F.length(F.rtrim(figures, F.lit("0")))
    return exponent + trailing - F.length(F.regexp_extract(text, r"\.([0-9]+)", 1))


def _strict_date(text: Column, layout: str | None) -> Column:
    if layout is None:
        return F.when(text.rlike(_DATE), text.try_cast("DATE"))
    return _formatted(text, layout).cast("DATE")


def _strict_timestamp(text: Column, layout: str | None) -> Column:
    if layout is None:
        # The zone can shift a moment out of the years that readers can hold.
        value = text.try_cast("TIMESTAMP")
        return F.when(text.rlike(_TIMESTAMP) & _in_range(value), value)
    if layout in _EPOCHS:
        return _from_epoch(text, layout)
    value = _formatted(text, layout)
    return F.when(_in_range(value), value) if has_offset(layout) else value


def _formatted(text: Column, layout: str) -> Column:
    """The moment that a text of this form means: of the years 1 to 9999, unless its offset leads out of them."""
    # The guard is inside: some texts of another form are read as another moment, or fail the whole query.
    return F.try_to_timestamp(F.when(text.rlike(rf"\A{text_form(layout)}\z"), text), F.lit(layout))


def _from_epoch(text: Column, layout: str) -> Column:
    function, per_second = _EPOCHS[layout]
    number = strict_cast(text, "BIGINT")
    in_range = number.between(_FIRST_SECOND * per_second, (_LAST_SECOND + 1) * per_second - 1)
    # The guard is inside: a number out of range would fail the whole query, not only its row.
    return F.call_function(function, F.when(in_range, number))


def _in_range(value: Column) -> Column:
    """Years 1 to 9999: what every reader of the tables can hold."""
    return F.year(value).between(1, 9999)


def _bounded(text: Column) -> Column:
    return F.when(F.length(text) <= _MAX_NUMBER_LENGTH, text)


def _digits(text: Column) -> Column:
    """The significant digits of a number's text: no sign, point, exponent, nor zeros at either end."""
    return F.btrim(F.regexp_replace(text, r"[eE].*|[-.]", ""), F.lit("0"))
