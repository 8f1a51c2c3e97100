import pytest

from leanops.contracts.column_types import SIMPLE_TYPES, ColumnType
from tests.cases.casts import CASES

WITHOUT_FORMAT = [(kind, text, value) for kind, layout, text, value in CASES if layout is None]

TYPES = [*SIMPLE_TYPES, "DECIMAL(18,2)", "DECIMAL(1,0)", "DECIMAL(1,1)", "DECIMAL(38,0)", "DECIMAL(38,38)"]

NO_TYPES = [
    # text, what the error says
    ("int", "write INT"),
    ("Bigint", "write BIGINT"),
    (" STRING", "write STRING"),
    ("decimal(18,2)", "write DECIMAL(18,2)"),
    ("DECIMAL(18, 2)", "write DECIMAL(18,2)"),
    ("DECIMAL", "did you mean DECIMAL(p,s)?"),
    ("DECIMAL(18)", "did you mean DECIMAL(p,s)?"),
    ("DECIMAL(18,-2)", "did you mean DECIMAL(p,s)?"),
    ("DECIMAL(100,2)", "did you mean DECIMAL(p,s)?"),
    ("DECMAL(18,2)", "did you mean DECIMAL(p,s)?"),
    ("DECIMAL(٣,٢)", "did you mean DECIMAL(p,s)?"),
    ("NUMERIC(18,2)", "did you mean DECIMAL(p,s)?"),
    ("NUMBER", "did you mean DECIMAL(p,s)?"),
    ("INTEGER", "did you mean INT?"),
    ("smallint", "did you mean INT?"),
    ("LONG", "did you mean BIGINT?"),
    ("VARCHAR(255)", "did you mean STRING?"),
    ("text", "did you mean STRING?"),
    ("bool", "did you mean BOOLEAN?"),
    ("REAL", "did you mean FLOAT?"),
    ("DATETIME", "did you mean TIMESTAMP?"),
    ("TIMESTMAP", "did you mean TIMESTAMP?"),
    ("STRNG", "did you mean STRING?"),
    ("ARRAY<INT>", "use STRING, BOOLEAN, INT, BIGINT, FLOAT, DOUBLE, DATE, TIMESTAMP or DECIMAL(p,s)"),
    ("xyzzy", "use STRING, BOOLEAN"),
    ("", "use STRING, BOOLEAN"),
    ("DECIMAL(39,2)", "1 ≤ p ≤ 38"),
    ("DECIMAL(0,0)", "1 ≤ p ≤ 38"),
    ("DECIMAL(2,3)", "0 ≤ s ≤ p"),
]


@pytest.mark.parametrize("text", TYPES)
def test_a_type_reads_as_a_contract_writes_it(text: str) -> None:
    assert str(ColumnType.parse(text)) == text


def test_a_decimal_has_a_precision_and_a_scale() -> None:
    assert ColumnType.parse("DECIMAL(18,2)") == ColumnType("DECIMAL", precision=18, scale=2)
    assert ColumnType.parse("INT") == ColumnType("INT")


@pytest.mark.parametrize(("text", "says"), NO_TYPES)
def test_a_type_that_does_not_exist_is_answered_with_the_nearest_that_does(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=r"there is no type|is no DECIMAL") as caught:
        ColumnType.parse(text)
    assert says in str(caught.value)


@pytest.mark.parametrize("text", ["decimal(99,2)", "decimal(2,3)", "DECIMAL(0, 0)"])
def test_nobody_is_told_to_write_a_type_that_does_not_exist(text: str) -> None:
    with pytest.raises(ValueError, match="DECIMAL") as caught:
        ColumnType.parse(text)
    assert "write" not in str(caught.value)


def test_every_type_is_among_the_cases() -> None:
    assert {kind.partition("(")[0] for kind, _, _ in WITHOUT_FORMAT} == {*SIMPLE_TYPES, "DECIMAL"}


@pytest.mark.parametrize(("kind", "text", "value"), WITHOUT_FORMAT, ids=lambda each: repr(each)[:40])
def test_a_type_accepts_exactly_the_texts_that_the_strict_cast_takes(kind: str, text: str, value: str | None) -> None:
    assert ColumnType.parse(kind).accepts(text) == (value is not None)
