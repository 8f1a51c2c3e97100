"""The payload reader without Spark: every case, by plans that know it well, badly or not at all; and mutants."""

import json
import random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leanops.standardized.flatten_plan import FlattenPlan, Path, path_from_text
from leanops.standardized.payload_reader import PayloadReader
from tests import oracle
from tests.cases.payloads import CASES

PLANS: dict[str, list[Path]] = {
    "no plan": [],
    "one field": [("a",)],
    "nested": [("a", "b"), ("x", "a"), ("b",), ("x", "b")],
    "a leaf that is an object too, and odd names": [("a",), ("a", "b"), ("",), ('a"b',), ("größe",)],
}
PATHS: list[Path] = [("a",), ("a", "b"), ("a", "c"), ("d",), ("e", "f", "g"), ("b",), ("x",), ("e",), ("",)]
SEEDS = [case.payload for case in CASES if len(case.payload) < 300] + [
    '{"a":{"b":[1.5e-3,true,{"x":"\\u00e9\\n"}],"c":null},"d":"x","e":{"f":{"g":-0}}}',
    '{"a": {"b": 1, "c": "x:y\\": null"}, "d": "2024-01-01T10:00:00Z", "b": ":"}',
] * 60
SIGNS = [*"{}[]\",:\\/bnu0123.eE+-aN \t\n'd8c", "null", "true", "\\u", "\x00", '"a":', '"b":1,', '"a":{"b":2},', "{}"]


def read(plan: FlattenPlan, payloads: list[bytes | None]) -> list[dict[str, str | None]]:
    rows: list[dict[str, str | None]] = PayloadReader(plan).read(pa.array(payloads, pa.binary())).to_pylist()
    return rows


def mutant(rnd: random.Random) -> bytes:
    text = rnd.choice(SEEDS)
    for _ in range(rnd.choice((0, 1, 1, 2))):
        at = rnd.randrange(len(text) + 1)
        text = text[:at] + (rnd.choice(SIGNS) if rnd.random() < 0.6 else "") + text[at + rnd.randrange(2) :]
    return text.encode()


def assert_as_the_oracle_says(plan: FlattenPlan, payload: bytes, row: dict[str, str | None]) -> None:
    expected = oracle.leaves(payload)
    assert (expected is None) == (row["error_kind"] is not None), payload
    if expected is None:
        assert row["error_reason"]
        return
    texts = {column.path: row[f"c{place}"] for place, column in enumerate(plan.columns)}
    known = {path: text for path, text in texts.items() if text is not None}
    unknown = {path_from_text(line) for line in (row["new_paths"] or "").split("\n") if line}
    assert known.keys() | unknown == expected.keys()
    assert not known.keys() & unknown
    below = {path[:level] for path in known for level in range(len(path))}
    objects = json.loads(row["objects"] or "{}")
    assert {tuple(path) for paths in objects.values() for path in paths} == oracle.objects_in(payload) - below, payload
    for path, text in known.items():
        assert text == expected[path] or (expected[path] == oracle.ARRAY and text.startswith("[")), payload


@pytest.mark.parametrize("name", PLANS)
def test_no_payloads_are_no_rows(name: str) -> None:
    assert read(FlattenPlan().extended(PLANS[name]), []) == []


@pytest.mark.parametrize("name", PLANS)
def test_every_payload_is_taken_or_refused_whatever_the_plan_knows(name: str) -> None:
    rows = read(FlattenPlan().extended(PLANS[name]), [case.payload.encode() for case in CASES])
    for case, row in zip(CASES, rows, strict=True):
        assert (row["error_kind"] is None) == (case.valid and case.rule is None), case.name
        assert case.rule is None or row["error_kind"] == case.rule, case.name


def test_bytes_that_are_no_text_are_refused_alone() -> None:
    payloads = [b'{"a":"\xff"}', None, b'{"a":"ok"}', b'{"a":"\xed\xa0\x80"}', b'{"\xc3":1}']
    rows = read(FlattenPlan().extended([("a",)]), payloads)
    assert [row["error_kind"] for row in rows] == ["not_utf8", "empty", None, "not_utf8", "not_utf8"]
    assert rows[2]["c0"] == "ok"


@pytest.mark.parametrize(
    "text",
    [
        "1",
        "-0",
        "1.10",
        "123456789012345678901234567890",
        "1.1234567890123456789012345",
        "1e400",
        "[1.10, 2 ,{}]",
        "true",
    ],
)
def test_a_value_that_is_no_string_keeps_its_text_to_the_letter(text: str) -> None:
    (row,) = read(FlattenPlan().extended([("a",)]), [f'{{"a": {text} }}'.encode()])
    assert row["c0"] == text


def test_what_the_plan_has_no_room_for_goes_to_the_overflow() -> None:
    plan = FlattenPlan(cap=1).extended([("a",)])
    (row,) = read(plan, [b'{"a":1,"b":{"c":2.50,"d":[1]},"e":null}'])
    assert row["overflow"] == '{"b":{"c":2.50,"d":[1]}}'
    assert row["new_paths"] is None


def assert_mutants_are_read_as_the_oracle_reads_them(seed: int, count: int) -> None:
    rnd = random.Random(seed)
    plan = FlattenPlan().extended(rnd.sample(PATHS, rnd.randrange(len(PATHS))))
    payloads = [mutant(rnd) for _ in range(count)]
    for payload, row in zip(payloads, read(plan, list(payloads)), strict=True):
        assert_as_the_oracle_says(plan, payload, row)


@given(st.integers(0, 2**32))
def test_a_mutant_is_read_as_the_oracle_reads_it(seed: int) -> None:
    assert_mutants_are_read_as_the_oracle_reads_them(seed, count=20)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100))
def test_two_hundred_thousand_mutants_are_read_as_the_oracle_reads_them(seed: int) -> None:
    assert_mutants_are_read_as_the_oracle_reads_them(seed, count=2000)
