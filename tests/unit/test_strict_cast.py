"""Text to a contract's type, strictly: in bulk as one by one, and as the oracle has it."""

from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from fractions import Fraction
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from leanops.contracts.column_types import ColumnType
from leanops.contracts.values import Value, read_value
from leanops.curated.strict_cast import strict_cast
from tests import oracle
from tests.cases.casts import CASES

TYPES = sorted({(kind, layout) for kind, layout, _, _ in CASES}, key=str)
MORE_TYPES = [
    *TYPES,
    *((f"DECIMAL({each})", None) for each in ("1,0", "1,1", "9,3", "38,1")),
    ("TIMESTAMP", "epoch_micros"),
    ("TIMESTAMP", "G y MMMM d[ K:mm a][ Z]"),
]
EVERY_TEXT = sorted({text for _, _, text, _ in CASES})
ROUNDED_TWICE = ("7038531e-32", "82381273e-35", "0.00000000009674982690", "4.11906365E-28", "437236101e-43")
"""Numbers so near to halfway between two FLOATs that the nearest DOUBLE is halfway."""


def cast(texts: Sequence[str | None], kind: str, layout: str | None = None) -> list[Value | None]:
    values: list[Value | None] = strict_cast(pa.array(texts, pa.string()), ColumnType.parse(kind), layout).to_pylist()
    return values


def exactly(values: Sequence[Value | None]) -> list[tuple[str, str]]:
    """Values that can be compared to the last sign: -0.0 is not 0.0, and 1.50 not 1.5."""
    return [(type(value).__name__, str(value)) for value in values]


def one_by_one(texts: Sequence[str | None], kind: str, layout: str | None = None) -> list[Value | None]:
    return [None if text is None else read_value(text, ColumnType.parse(kind), layout) for text in texts]


def by_the_oracle(texts: Sequence[str], kind: str, layout: str | None = None) -> list[Value | None]:
    return [oracle.cast(text, ColumnType.parse(kind), layout) for text in texts]


def printed(kind: str, value: Value | None) -> str | None:
    """A value as the cases have it; a FLOAT or DOUBLE in the one way that Python prints it."""
    match value:
        case None:
            return None
        case bool():
            return str(value).lower()
        case datetime():
            whole, _, fraction = value.replace(tzinfo=None).isoformat(" ").partition(".")
            return f"{whole}.{fraction.rstrip('0')}" if fraction else whole
        case _:
            return repr(np.float32(value)) if kind == "FLOAT" else str(value)


@pytest.mark.parametrize(("kind", "layout"), TYPES)
def test_a_text_is_cast_exactly_or_refused(kind: str, layout: str | None) -> None:
    texts, expected = zip(*((case[2], case[3]) for case in CASES if case[:2] == (kind, layout)), strict=True)
    if kind in ("FLOAT", "DOUBLE"):
        expected = tuple(each and printed(kind, float(each)) for each in expected)
    assert [printed(kind, value) for value in cast(texts, kind, layout)] == list(expected)
    assert [printed(kind, value) for value in one_by_one(texts, kind, layout)] == list(expected)


@pytest.mark.parametrize(("kind", "layout"), MORE_TYPES)
def test_every_text_is_cast_to_every_type_as_the_oracle_has_it(kind: str, layout: str | None) -> None:
    found = exactly(cast(EVERY_TEXT, kind, layout))
    assert found == exactly(one_by_one(EVERY_TEXT, kind, layout))
    assert found == exactly(by_the_oracle(EVERY_TEXT, kind, layout))


def numbers(draw: Random, count: int) -> Iterator[str]:
    """Numbers of every form that JSON has, most of them whole and near to what a FLOAT or DOUBLE can just hold."""
    for _ in range(count):
        bits = draw.choice((24, 53))
        odd = draw.choice((draw.randrange(2**bits), 2**bits - 1, 2**bits + 1, draw.randrange(10**6)))
        number = odd * 2 ** draw.choice((0, 0, 1, 3, draw.randrange(80)))
        number = number * draw.choice((1, 5 ** draw.randrange(25))) + draw.choice((0, 0, 0, 1, -1))
        text = str(abs(number)) + "0" * draw.choice((0, 0, draw.randrange(25)))
        point = draw.randrange(1, len(text) + 1)
        if point < len(text) and draw.random() < 0.6:
            text = f"{int(text[:point])}.{text[point:]}{'0' * draw.choice((0, 2))}"
        if draw.random() < 0.6:
            shift = draw.choice((len(text) - point, 0, draw.randrange(-30, 30), draw.randrange(-330, 310)))
            text += draw.choice("eE") + draw.choice(("", "+" if shift >= 0 else "")) + str(shift)
        yield draw.choice(("", "-")) + text


@pytest.mark.parametrize("kind", ["FLOAT", "DOUBLE"])
def test_every_number_is_held_exactly_or_refused(kind: str) -> None:
    texts = [*dict.fromkeys(numbers(Random(17), 6_000)), *(f"{m}e{e}" for m in (1, 3, 2**53) for e in range(-330, 330))]
    found = cast(texts, kind)
    assert exactly(found) == exactly(by_the_oracle(texts, kind))
    assert 500 < found.count(None) < len(texts) - 500


@pytest.mark.parametrize("text", ROUNDED_TWICE)
def test_a_float_is_the_nearest_to_its_text_and_not_to_a_double_between(text: str) -> None:
    (value,) = cast([text], "FLOAT")
    assert isinstance(value, float)
    assert value != float(np.float32(float(text)))
    beside = [float(np.nextafter(np.float32(value), np.float32(way))) for way in (-np.inf, np.inf)]
    assert all(abs(Fraction(value) - Fraction(text)) < abs(Fraction(each) - Fraction(text)) for each in beside)


def plain_texts(draw: Random) -> Iterator[str]:
    """One text of each usual form, of every length up to more than any type takes."""
    sign = draw.choice(("", "-"))
    whole, fraction = (str(draw.randrange(10 ** draw.randrange(1, 21))) for _ in range(2))
    yield from (f"{sign}{whole}", f"{sign}{whole}.{fraction}", f"{sign}0.{fraction:>0{draw.randrange(1, 40)}}")
    yield from (repr(draw.uniform(-1e3, 1e3)), repr(draw.random() * 10.0 ** draw.randrange(-50, 50)), sign + "9" * 38)
    day = date.fromordinal(draw.randrange(1, date.max.toordinal() + 1)).isoformat()
    day = draw.choice((day, day, day[:8] + draw.choice(("00", "28", "29", "30", "31", "32"))))
    time = f"{draw.randrange(25):02}:{draw.randrange(61):02}:{draw.randrange(61):02}"
    digits = draw.choice(("", f".{str(draw.randrange(10**6))[: draw.randrange(1, 7)]}", ".0000000", ".1234567"))
    zone = draw.choice(("", "Z", f"{draw.choice('+-')}{draw.randrange(20):02}:{draw.choice((0, 30, 59, 60)):02}"))
    yield from (day, f"{day}{draw.choice('T ')}{time}{digits}{zone}", f"{day[8:]}.{day[5:7]}.{day[:4]}", "true")


def texts_of_any_kind(draw: Random, count: int) -> list[str]:
    """Usual texts, and as many with one sign more, less or changed."""
    texts = [text for _ in range(count) for text in plain_texts(draw)]
    for text in tuple(texts):
        place = draw.randrange(len(text) + 1)
        sign = draw.choice(("", *"0123456789-+.eETZ: \n\x00", "٣"))
        texts.append(text[:place] + sign + text[place + draw.randrange(2) :])
    draw.shuffle(texts)
    return texts


@pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=pytest.mark.long)])
@pytest.mark.parametrize(("kind", "layout"), MORE_TYPES)
def test_texts_in_bulk_are_cast_as_each_of_them_alone(kind: str, layout: str | None, count: int) -> None:
    texts = texts_of_any_kind(Random(count), count)
    found = exactly(cast(texts, kind, layout))
    assert found == exactly(one_by_one(texts, kind, layout))
    assert found == exactly(by_the_oracle(texts, kind, layout))


@pytest.mark.parametrize(("kind", "layout"), MORE_TYPES)
def test_where_there_is_no_text_there_is_no_value(kind: str, layout: str | None) -> None:
    assert cast([], kind, layout) == []
    assert cast([None, "?", None], kind, layout) == [None, "?" if kind == "STRING" else None, None]
    texts = [None, *EVERY_TEXT, None]
    assert exactly(cast(texts, kind, layout)) == exactly(one_by_one(texts, kind, layout))


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("STRING", pa.string()),
        ("BOOLEAN", pa.bool_()),
        ("INT", pa.int32()),
        ("BIGINT", pa.int64()),
        ("FLOAT", pa.float32()),
        ("DOUBLE", pa.float64()),
        ("DECIMAL(18,2)", pa.decimal128(18, 2)),
        ("DATE", pa.date32()),
        ("TIMESTAMP", pa.timestamp("us", tz="UTC")),
    ],
)
def test_chunks_become_one_array_of_the_column_s_type(kind: str, expected: pa.DataType) -> None:
    texts = texts_of_any_kind(Random(3), 20)
    chunks = pa.chunked_array([pa.array(texts[:7]), pa.array([None], pa.string()), pa.array(texts[7:]).slice(2)])
    found = strict_cast(chunks, ColumnType.parse(kind))
    assert isinstance(found, pa.Array)
    assert found.type == strict_cast(pa.chunked_array([], pa.string()), ColumnType.parse(kind)).type == expected
    assert exactly(found.to_pylist()) == exactly(one_by_one([*texts[:7], None, *texts[9:]], kind))


@pytest.mark.parametrize(("kind", "wrong"), [("DATE", "2024-02-30"), ("TIMESTAMP", "2023-02-29T10:00:00Z")])
def test_an_impossible_day_among_many_is_refused_alone(kind: str, wrong: str) -> None:
    days = [date.fromordinal(700_000 + day) for day in range(3_000)]
    texts = [f"{day}{wrong[10:]}" for day in days]
    texts[1_234] = wrong
    moments = [datetime(day.year, day.month, day.day, 10, tzinfo=UTC) for day in days]
    expected: list[Value | None] = [*(days if kind == "DATE" else moments)]
    expected[1_234] = None
    assert cast(texts, kind) == expected
