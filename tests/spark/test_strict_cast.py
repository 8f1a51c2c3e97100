"""Text to a contract's type, strictly: one Spark job per type for all its cases."""

from collections.abc import Iterator
from random import Random

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from leanops.contracts.column_types import ColumnType
from leanops.curated.strict_cast import strict_cast
from tests import oracle
from tests.cases.casts import CASES

TYPES = sorted({(kind, layout) for kind, layout, _, _ in CASES}, key=str)
EVERY_TEXT = sorted({text for _, _, text, _ in CASES})


def cast_in_spark(spark: SparkSession, texts: list[str], kind: str, layout: str | None) -> list[str | None]:
    frame = spark.createDataFrame(list(enumerate(texts)), "place int, text string")
    cast = frame.select("place", strict_cast(F.col("text"), kind, layout).cast("string").alias("value"))
    found = {row.place: row.value for row in cast.collect()}
    return [found[place] for place in range(len(texts))]


def same(kind: str, expected: str | None, found: str | None) -> bool:
    if expected is None or found is None or kind not in ("FLOAT", "DOUBLE"):
        return expected == found
    return float(expected) == float(found)


@pytest.mark.parametrize(("kind", "layout"), TYPES)
def test_a_text_is_cast_exactly_or_refused(shared_spark: SparkSession, kind: str, layout: str | None) -> None:
    cases = [
        (text, value) for case_kind, case_layout, text, value in CASES if (case_kind, case_layout) == (kind, layout)
    ]
    found = cast_in_spark(shared_spark, [text for text, _ in cases], kind, layout)
    wrong = [(text, value, got) for (text, value), got in zip(cases, found, strict=True) if not same(kind, value, got)]
    assert not wrong


def test_the_linter_and_the_cast_agree_on_every_text_and_type(shared_spark: SparkSession) -> None:
    kinds = sorted({kind for kind, layout in TYPES if layout is None})
    frame = shared_spark.createDataFrame([(text,) for text in EVERY_TEXT], "text string")
    fits = [strict_cast(F.col("text"), kind).isNotNull().alias(kind) for kind in kinds]
    for row in frame.select("text", *fits).collect():
        accepted = {kind: ColumnType.parse(kind).accepts(row.text) for kind in kinds}
        assert {kind: row[kind] for kind in kinds} == accepted, repr(row.text)


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


def test_every_number_is_held_exactly_or_refused_by_the_linter_and_the_cast_alike(shared_spark: SparkSession) -> None:
    texts = [*dict.fromkeys(numbers(Random(17), 6_000)), *(f"{m}e{e}" for m in (1, 3, 2**53) for e in range(-330, 330))]
    kinds = {kind: ColumnType.parse(kind) for kind in ("FLOAT", "DOUBLE")}
    frame = shared_spark.createDataFrame([(text,) for text in texts], "text string")
    cast = frame.select("text", *(strict_cast(F.col("text"), kind).cast("DOUBLE").alias(kind) for kind in kinds))
    wrong = [
        (row.text, name, row[name])
        for row in cast.collect()
        for name, kind in kinds.items()
        if not (row[name] == oracle.cast(row.text, kind, None) and kind.accepts(row.text) == (row[name] is not None))
    ]
    assert not wrong
    for name, kind in kinds.items():
        held = [text for text in texts if kind.accepts(text)]
        assert len(held) > 500, name
        assert len(held) < len(texts) - 500, name
