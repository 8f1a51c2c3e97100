"""The oracle, by hand: sentences of the spec, each as a small history whose outcome anybody can see."""

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import numpy as np

from leanops.contracts.column_types import ColumnType
from leanops.contracts.model import Contract, Thresholds
from tests import oracle
from tests.cases import casts, payloads
from tests.oracle import BrokenRule, Message

CONTRACT = Contract.model_validate(
    {
        "table_name": "t",
        "envelope_columns": [
            {"name": "idempotency_key", "source": "meta.key"},
            {"name": "producer", "source": "meta.by"},
        ],
        "payload_columns": [
            {"name": "who", "type": "STRING", "cde": True},
            {"name": "amount", "type": "DECIMAL(5,2)", "default": "0.00"},
            {"name": "count", "type": "INT"},
        ],
    }
)


def message(name: str, seq: int, payload: Any, *, day: int = 1, key: str | None = None) -> Message:
    text = payload if isinstance(payload, str) else json.dumps(payload)
    return Message(name, text, datetime(2026, 1, day, tzinfo=UTC), 0, seq, key)


def standardized(*messages: Message) -> oracle.Standardized:
    return oracle.standardized_under(CONTRACT, messages)


def test_the_first_copy_to_land_counts() -> None:
    found = standardized(message("m", 2, {"who": "second"}, day=3), message("m", 1, {"who": "first"}))
    assert [row["who"] for row in found.rows.values()] == ["first"]
    assert found.duplicates == 1


def test_a_copy_that_lands_after_the_horizon_is_a_message_of_its_own() -> None:
    landed = [
        Message("m", f'{{"who": "{day}"}}', datetime(2026, 1, 1, tzinfo=UTC), day * 86_400, seq)
        for seq, day in enumerate((1, 3, 5, 8))
    ]
    horizon = CONTRACT.model_copy(update={"thresholds": Thresholds(duplicates_within_days=2)})
    found = oracle.standardized_under(horizon, landed)
    assert (found.duplicates, found.superseded) == (2, 1)
    assert [row["who"] for row in found.rows.values()] == ["8"]
    assert standardized(*landed).duplicates == 3


def test_the_latest_version_counts_whenever_it_lands() -> None:
    newer = message("b", 1, {"meta": {"key": "k"}, "who": "new"}, day=2)
    older = message("c", 2, {"meta": {"key": "k"}, "who": "old"}, day=1)
    found = standardized(newer, older)
    assert found.latest == {"k": newer}
    assert found.rows["k"]["who"] == "new"
    assert found.superseded == 1


def test_versions_of_one_moment_are_told_apart_by_ingestion_and_then_by_id() -> None:
    first, second = message("a", 2, {}, key="k"), message("b", 1, {}, key="k")
    assert standardized(first, second).latest == {"k": second}
    later = Message("a", "{}", first.publish_time, 1, 3, "k")
    assert standardized(later, second).latest == {"k": later}


def test_a_key_is_the_payloads_then_the_messages_then_the_id() -> None:
    found = standardized(
        message("a", 1, {"meta": {"key": "k1"}}, key="k2"),
        message("b", 2, {"meta": {"key": " "}}, key="k2"),
        message("c", 3, {"meta": {"key": None}}, key=" "),
    )
    assert {key: each.message_id for key, each in found.latest.items()} == {"k1": "a", "k2": "b", "c": "c"}


def test_columns_are_named_in_landing_order_and_none_is_taken_over() -> None:
    found = standardized(message("b", 2, {"a": {"b": 2}}), message("a", 1, {"a_b": 1}))
    first, second = (found.plan.columns[place].name for place in (1, 2))
    assert (found.rows["a"][first], found.rows["b"][first]) == ("1", None)
    assert (found.rows["a"][second], found.rows["b"][second]) == (None, "2")
    assert first == "a_b"


def test_a_payload_that_is_no_object_is_refused_even_when_a_readable_copy_follows() -> None:
    found = standardized(message("m", 1, "[]"), message("m", 2, {}))
    assert [each.message_id for each in found.refused.values()] == ["m"]
    assert not found.rows


def test_every_payload_is_read_or_refused_as_its_case_says() -> None:
    for case in payloads.CASES:
        assert (oracle.leaves(case.payload.encode()) is not None) == (case.valid and case.rule is None), case.name


def test_a_leaf_is_its_text_to_the_letter_and_a_string_is_decoded() -> None:
    assert oracle.leaves(
        b' {"a": {"b" :[ 1,{"c":null} ] , "n":-1.50E+2,"t":true},"s":"\\u00e9\\"","z":null,"e":{}} '
    ) == {
        ("a", "b"): '[ 1,{"c":null} ]',
        ("a", "n"): "-1.50E+2",
        ("a", "t"): "true",
        ("s",): 'é"',
    }


def test_a_row_that_keeps_the_contract_is_typed_and_a_missing_value_has_its_default() -> None:
    found = oracle.curated(standardized(message("m", 1, {"who": "x", "count": 7, "meta": {"by": "p"}})), CONTRACT)
    assert found.rows == {"m": {"producer": "p", "who": "x", "amount": Decimal("0.00"), "count": 7}}
    assert not found.broken


def test_a_row_that_breaks_rules_is_told_with_all_of_them_in_the_contracts_order() -> None:
    found = oracle.curated(standardized(message("m", 1, {"count": "x", "who": " ", "amount": 1.001})), CONTRACT)
    assert not found.rows
    assert found.broken == {
        "m": [BrokenRule("who", "cde", " "), BrokenRule("amount", "type", "1.001"), BrokenRule("count", "type", "x")]
    }


def test_a_broken_correction_takes_the_valid_row_away_and_a_later_one_brings_it_back() -> None:
    versions = [
        message("a", 1, {"who": "x"}, key="k"),
        message("b", 2, {"who": None}, key="k", day=2),
        message("c", 3, {"who": "y"}, key="k", day=3),
    ]
    outcomes = [oracle.curated(standardized(*versions[:count]), CONTRACT) for count in (1, 2, 3)]
    assert [list(each.rows) for each in outcomes] == [["k"], [], ["k"]]
    assert [list(each.broken) for each in outcomes] == [[], ["k"], []]


def test_every_text_is_cast_or_refused_as_its_case_says() -> None:
    for kind, layout, text, expected in casts.CASES:
        value = oracle.cast(text, ColumnType.parse(kind), layout)
        if isinstance(value, float) and expected is not None:
            assert value == float(np.float32(expected) if kind == "FLOAT" else expected), (kind, text)
        else:
            assert (None if value is None else as_spark_prints(value)) == expected, (kind, layout, text)


def as_spark_prints(value: oracle.Value) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime):
        text = value.strftime("%Y-%m-%d %H:%M:%S.%f")
        return text.rstrip("0").rstrip(".") if value.microsecond else text[:19]
    return str(value)
