"""Text to a contract's type, strictly: one Spark job per type for all its cases."""

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from leanops.contracts.column_types import ColumnType
from leanops.curated.strict_cast import strict_cast
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
