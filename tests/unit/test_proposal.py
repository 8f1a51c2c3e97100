"""A contract to start from, out of what has been seen of fields."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leanops.contracts.column_types import DECIMAL_DIGITS, ColumnType
from leanops.contracts.model import MAX_COLUMNS, Contract
from leanops.contracts.proposal import FieldProfile, Form, Profile, Proposal, forms_to_count, narrowest_type, propose
from leanops.contracts.reading import read_contract
from leanops.errors import ProposalImpossible
from leanops.standardized.flatten_plan import FlatColumn, Path

DECIMALS = [ColumnType("DECIMAL", DECIMAL_DIGITS, scale) for scale in range(DECIMAL_DIGITS + 1)]
ORDER: list[list[ColumnType]] = [
    *([ColumnType(name)] for name in ("BOOLEAN", "INT", "BIGINT")),
    DECIMALS,
    *([ColumnType(name)] for name in ("DOUBLE", "DATE", "TIMESTAMP", "STRING")),
]


def profiled(path: Path, texts: Sequence[str], active: Contract | None = None) -> FieldProfile:
    """What a profile must say of these texts, by what the types themselves say that they accept."""
    scales = [[kind.scale or 0 for kind in DECIMALS if kind.accepts(text)] for text in texts]
    fitting = {form: sum(map(form.type.accepts, texts)) for form in forms_to_count(active) if not form.format}
    return FieldProfile(
        path,
        values=len(texts),
        blanks=sum(not text.strip(" ") for text in texts),
        fitting=fitting,
        decimals=sum(map(bool, scales)),
        whole_digits=max((DECIMAL_DIGITS - each[-1] for each in scales if each), default=0),
        scale=max((each[0] for each in scales if each), default=0),
        samples=tuple(dict.fromkeys(text for text in texts if text.strip(" ")))[:3],
    )


def profile(fields: dict[str | Path, Sequence[str]], active: Contract | None = None, **facts: Any) -> Profile:
    """A topic of four messages, if nothing else is said, with these values in its fields."""
    paths = {name if isinstance(name, tuple) else (name,): texts for name, texts in fields.items()}
    said = {"messages": 4, "refused": 0, "overflowing": 0, **facts}
    return Profile(fields=tuple(profiled(path, texts, active) for path, texts in paths.items()), **said)


def proposed(seen: Profile, active: Contract | None = None) -> Proposal:
    """A proposal, which passes the linter and says there what it says."""
    proposal = propose("orders", seen, active)
    assert read_contract(proposal.text.encode(), "orders", "the proposal") == proposal.contract
    return proposal


def columns(proposal: Proposal) -> dict[str, dict[str, Any]]:
    return {column["name"]: column for column in json.loads(proposal.text)["payload_columns"]}


TYPES = [
    # texts, the type
    (["true", "false"], "BOOLEAN"),
    (["true", "1"], "STRING"),
    (["1", "-2147483648"], "INT"),
    (["1", "2147483648"], "BIGINT"),
    (["1", "12abc"], "STRING"),
    (["01067", "10115"], "STRING"),
    (["007.5"], "STRING"),
    (["1", "1.5"], "DECIMAL(18,2)"),
    (["15.0"], "DECIMAL(18,2)"),
    (["1e3"], "DECIMAL(18,2)"),
    (["1234567.89"], "DECIMAL(18,2)"),
    (["1.005"], "DECIMAL(18,4)"),
    (["12345678901234.99"], "DECIMAL(18,2)"),
    (["123456789012345.99"], "DECIMAL(38,2)"),
    (["9223372036854775808"], "DECIMAL(38,0)"),
    (["1234567890123456789012345"], "DECIMAL(38,0)"),
    (["1.1234567890123456789012345"], "DECIMAL(38,26)"),
    (["0.12345678901234567890123456789012345678"], "DECIMAL(38,38)"),
    (["1" * 37 + ".5"], "DECIMAL(38,1)"),
    (["1" * 30, "0.123456789"], "STRING"),
    (["100000000000000000000", "1e-30"], "DOUBLE"),
    (["1e-50", "1"], "DOUBLE"),
    (["1e400"], "STRING"),
    (["2026-01-31"], "DATE"),
    (["2026-02-30"], "STRING"),
    (["2026-01-31T08:15:00Z", "2026-01-31 08:15:00.5"], "TIMESTAMP"),
    (["2026-01-31", "2026-01-31T08:15:00Z"], "STRING"),
    (["1", ""], "STRING"),
    (["[1,2]"], "STRING"),
    ([], "STRING"),
]


@pytest.mark.parametrize(("texts", "kind"), TYPES)
def test_a_column_has_the_narrowest_type_that_every_value_fits(texts: Sequence[str], kind: str) -> None:
    assert str(narrowest_type(profiled(("a",), texts))) == kind


DIGITS = st.integers(min_value=0, max_value=10**40).map(str)
NUMBERS = st.one_of(
    st.integers().map(str),
    st.sampled_from([31, 63, 100]).flatmap(lambda bits: st.integers(-(2**bits) - 1, 2**bits)).map(str),
    st.decimals(allow_nan=False, allow_infinity=False).map(str),
    st.builds("{}.{}".format, DIGITS, DIGITS),
    st.builds("{}.{}e{}".format, st.integers(-9, 9), DIGITS, st.integers(-400, 400)),
)
KINDS = [
    st.sampled_from(["true", "false"]),
    NUMBERS,
    st.builds("0{}".format, DIGITS),
    st.dates().map(str),
    st.datetimes().map(lambda moment: f"{moment.isoformat(timespec='microseconds')}Z"),
    st.sampled_from(["", " ", "null", "[]", "1e3", "-0", "0.00", "2026-02-30"]),
    st.text(max_size=3),
]
TEXTS = st.one_of([st.lists(kind, max_size=6) for kind in [*KINDS, st.one_of(KINDS)]])


@given(TEXTS)
def test_the_type_picked_accepts_every_value_and_no_narrower_one_does(texts: list[str]) -> None:
    picked = narrowest_type(profiled(("a",), texts))
    assert all(map(picked.accepts, texts))
    place = next(i for i, kinds in enumerate(ORDER) if kinds[0].name == picked.name)
    if texts:
        for narrower in (kind for kinds in ORDER[:place] for kind in kinds):
            assert not all(map(narrower.accepts, texts)), narrower
    else:
        assert picked.name == "STRING"


@given(st.lists(NUMBERS, min_size=1, max_size=6))
def test_a_decimal_has_room_for_larger_numbers_while_there_are_digits_left(texts: list[str]) -> None:
    seen = profiled(("a",), texts)
    picked = narrowest_type(seen)
    if picked.precision is not None and picked.scale is not None:
        assert picked.precision in (18, 38)
        assert picked.precision == 38 or picked.precision - picked.scale >= seen.whole_digits + 2


def test_a_description_says_how_often_a_field_is_missing_and_what_it_looks_like() -> None:
    found = profile({"id": ["a", "b", "c", "d"], "note": ["x", " "], "gone": []}, messages=4)
    first = replace(found.fields[0], since=date(2026, 1, 15))
    said = columns(proposed(replace(found, fields=(first, *found.fields[1:]))))
    assert said["id"]["description"] == (
        "Proposed: missing in 0 of 4 messages (0.0%); since 2026-01-15; such as “a”, “b”, “c”; a candidate for cde."
    )
    assert said["note"]["description"] == ("Proposed: missing in 2 of 4 messages (50.0%); blank in 1; such as “x”.")
    assert said["gone"] == {
        "name": "gone",
        "type": "STRING",
        "description": "Proposed: missing in 4 of 4 messages (100.0%).",
    }


def test_what_was_blank_in_some_message_is_no_candidate() -> None:
    said = columns(proposed(profile({"id": ["a", "b", "c", ""]})))
    assert "candidate" not in said["id"]["description"]


def test_nothing_is_made_a_cde() -> None:
    assert not any(column.cde for column in proposed(profile({"id": ["1"] * 4})).contract.payload_columns)


def test_samples_are_short_and_printable() -> None:
    said = columns(proposed(profile({"a": ["x" * 1000, "\x1b[31m\n", "“q”\\"]})))
    assert f"“{'x' * 39}…”, “\\x1b[31m\\n”, ““q”\\”" in said["a"]["description"]


def test_a_column_that_a_few_values_keep_from_being_typed_says_what_the_others_are() -> None:
    said = columns(proposed(profile({"amount": ["1.50", "2", "12abc"], "name": ["a", "b", "1"]})))
    assert said["amount"]["type"] == "STRING"
    assert "2 of 3 values would fit DECIMAL(18,2)" in said["amount"]["description"]
    assert "would fit" not in said["name"]["description"]


def test_the_fields_under_metadata_are_the_envelope() -> None:
    fields = {
        ("_metadata", "correlationId"): ["c"],
        ("_metadata", "idempotencyKeyResource"): ["k"],
        ("_metadata", "source", "IPAddress"): ["i"],
        ("_metadata", "producer"): ["p"],
        ("_metadata", "publishTime"): ["t"],
        ("_metadata", "overflow_json"): ["o"],
        ("_metadata", "x-request-id"): ["x"],
        ("producer",): ["q"],
    }
    proposal = proposed(profile(fields))
    assert [(column.name, column.source) for column in proposal.contract.envelope_columns] == [
        ("idempotency_key", "_metadata.idempotencyKeyResource"),
        ("correlation_id", "_metadata.correlationId"),
        ("source_ip_address", "_metadata.source.IPAddress"),
        ("metadata_producer", "_metadata.producer"),
        ("metadata_publish_time", "_metadata.publishTime"),
        ("metadata_overflow_json", "_metadata.overflow_json"),
        ("x_request_id", "_metadata.x-request-id"),
    ]
    assert list(columns(proposal)) == ["producer"]
    assert proposal.remarks == ()


@pytest.mark.parametrize(
    ("paths", "source"),
    [
        (
            [("_metadata", "idempotencyKey"), ("_metadata", "idempotencyKeyResource")],
            "_metadata.idempotencyKeyResource",
        ),
        ([("idempotency_key",), ("_metadata", "idempotencyKey")], "_metadata.idempotencyKey"),
        ([("meta", "idempotencyKey"), ("IDEMPOTENCY-KEY",)], "IDEMPOTENCY-KEY"),
        ([("my idempotency key",)], None),
        ([("key",)], None),
    ],
)
def test_the_key_is_the_field_that_looks_most_like_one(paths: list[Path], source: str | None) -> None:
    proposal = proposed(profile({**dict.fromkeys(paths, ("k",)), "other": ["1"]}))
    sources = {column.name: column.source for column in proposal.contract.envelope_columns}
    assert sources.get("idempotency_key") == source
    assert any("looks like a record's key" in remark for remark in proposal.remarks) == (source is None)


def test_fields_whose_names_no_contract_can_have_are_left_out_and_named() -> None:
    fields = {
        ("_internal",): ["1"],
        ("_metadata", "a.b"): ["1"],
        ("x" * 65,): ["1"],
        ("message_id",): ["1"],
        ("a", "b"): ["1"],
        ("a_b",): ["1"],
        **{(f"_{i}",): ["1"] for i in range(20)},
    }
    proposal = proposed(profile(fields))
    assert [name.partition("__")[0] for name in columns(proposal)] == ["payload_message_id", "a_b", "a_b"]
    (remark,) = [remark for remark in proposal.remarks if remark.startswith("Left out")]
    assert '["_internal"] (_internal)' in remark
    assert '["_metadata","a.b"] (_metadata_a_b)' in remark
    assert remark.endswith("and 13 more.")


def test_fields_keep_the_columns_that_standardized_has_for_them() -> None:
    carried = (FlatColumn(("B",), "b"), FlatColumn(("b",), "b__0123456789"))
    seen = profile({"b": ["small"], "B": ["1"]}, carried=carried)
    said = columns(proposed(seen))
    assert [said[name]["type"] for name in ("b", "b__0123456789")] == ["INT", "STRING"]


def test_a_remark_tells_of_payloads_and_fields_that_are_not_in_it() -> None:
    remarks = proposed(profile({"idempotencyKey": ["1"], "a": ["1"]}, refused=1200, overflowing=3)).remarks
    assert remarks == (
        "1,200 payloads are not one JSON object and were left out.",
        "3 messages have fields beyond the cap on columns; they stay in overflow_json.",
    )


@pytest.mark.parametrize(
    "nothing", [profile({}), profile({"_a": ["1"]}), profile({}, messages=0, refused=3), profile({"a": []}, messages=0)]
)
def test_without_any_column_there_is_no_proposal(nothing: Profile) -> None:
    with pytest.raises(ProposalImpossible, match="could be a column"):
        propose("orders", nothing)


ACTIVE = Contract.model_validate(
    {
        "table_name": "orders",
        "version": 7,
        "description": "Orders.",
        "owners": ["team:commerce"],
        "envelope_columns": [{"name": "idempotency_key", "source": "_metadata.key"}],
        "thresholds": {"cde_percent": 1},
        "payload_columns": [
            {"name": "id", "type": "STRING", "cde": True},
            {"name": "amount", "type": "DECIMAL(18,3)", "default": "0.00", "description": "What it costs."},
            {"name": "items", "type": "INT", "default": "1"},
            {"name": "day", "type": "DATE", "format": "dd.MM.yyyy"},
            {"name": "old", "type": "BOOLEAN", "description": "Proposed: long ago."},
            {"name": "unseen", "type": "TIMESTAMP", "description": "Nobody has sent it."},
        ],
    }
)


def after_active(fields: dict[str | Path, Sequence[str]]) -> Proposal:
    seen = profile(fields, ACTIVE)
    days = [replace(each, fitting={**each.fitting, Form(ColumnType("DATE"), "dd.MM.yyyy"): 1}) for each in seen.fields]
    return proposed(replace(seen, fields=tuple(days)), ACTIVE)


def test_what_fits_of_the_active_contract_stays_and_what_is_new_is_added() -> None:
    proposal = after_active(
        {
            ("_metadata", "key"): ["k"],
            "more": ["1"],
            "day": ["31.01.2026"],
            "id": ["1", "2", "3", "4"],
            "amount": ["1"],
            "items": ["5"],
            "old": ["true"],
        }
    )
    document, was = json.loads(proposal.text), json.loads(ACTIVE.model_dump_json(exclude_defaults=True))
    kept, added = document["payload_columns"][:-1], document["payload_columns"][-1]
    assert {**document, "payload_columns": None} == {**was, "version": 8, "payload_columns": None}
    undescribed = [
        {key: each[key] for key in each if key != "description"} for each in (*kept, *was["payload_columns"])
    ]
    assert undescribed[:6] == undescribed[6:]
    assert kept[1]["description"] == "What it costs."
    assert kept[4]["description"] == "Proposed: missing in 3 of 4 messages (75.0%); such as “true”."
    assert kept[5] == was["payload_columns"][5]
    assert "candidate" not in kept[0]["description"]
    assert (added["name"], added["type"]) == ("more", "INT")
    assert proposal.remarks == ()


def test_a_type_of_the_active_contract_that_does_not_fit_is_changed_in_place_where_it_can_be() -> None:
    proposal = after_active({"amount": ["1234567890123456", "1.5"], "items": ["3000000000"]})
    said = columns(proposal)
    assert (said["amount"]["type"], said["amount"]["default"]) == ("DECIMAL(38,3)", "0.00")
    assert (said["items"]["type"], said["items"]["default"]) == ("BIGINT", "1")
    assert "amount: 1 of 2 values do not fit DECIMAL(18,3); it is DECIMAL(38,3) now." in proposal.remarks


def test_a_default_and_a_format_that_the_new_type_does_not_take_are_gone() -> None:
    proposal = after_active({"items": ["true"], "day": ["2026-01-31", "2026-02-01"]})
    said = columns(proposal)
    assert said["items"]["type"] == "BOOLEAN"
    assert "default" not in said["items"]
    assert "items: its default '1' is no BOOLEAN and is gone." in proposal.remarks
    assert said["day"]["type"] == "DATE"
    assert "format" not in said["day"]
    assert "day: 1 of 2 values do not fit DATE as dd.MM.yyyy; it is DATE now." in proposal.remarks


WIDER = [
    # the active type, texts that do not all fit it, the type proposed
    ("INT", ["1", "3000000000"], "BIGINT"),
    ("FLOAT", ["0.5", "3.14159265358979"], "DOUBLE"),
    ("DECIMAL(5,0)", ["123456"], "DECIMAL(18,0)"),
    ("DECIMAL(18,4)", ["123456789012345", "0.5"], "DECIMAL(38,4)"),
    ("DECIMAL(18,2)", ["0.005"], "DECIMAL(18,4)"),
    ("BIGINT", ["true"], "BOOLEAN"),
    ("DATE", ["2026-01-31T00:00:00Z"], "TIMESTAMP"),
]


@pytest.mark.parametrize(("was", "texts", "kind"), WIDER)
def test_a_type_is_widened_before_it_is_changed(was: str, texts: Sequence[str], kind: str) -> None:
    document = {"table_name": "orders", "envelope_columns": [], "payload_columns": [{"name": "a", "type": was}]}
    active = Contract.model_validate(document)
    assert columns(proposed(profile({"a": texts}, active), active))["a"]["type"] == kind


def test_a_proposal_of_more_fields_than_a_contract_may_have_still_passes_the_linter() -> None:
    full = [{"name": f"c{i}", "type": "STRING"} for i in range(MAX_COLUMNS - 1)]
    active = Contract.model_validate({"table_name": "orders", "envelope_columns": [], "payload_columns": full})
    proposal = proposed(profile({"new": ["1"], "newer": ["1"]}, active), active)
    assert len(proposal.contract.payload_columns) == MAX_COLUMNS
    assert any("newer" in remark for remark in proposal.remarks)
