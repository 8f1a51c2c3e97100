"""What changes between contracts, and how grave each change is."""

import json
from typing import Any

import pytest

from leanops.contracts.diff import Change, Impact, diff, require_successor
from leanops.contracts.model import Contract
from leanops.errors import ContractInvalid

ENVELOPE = [{"name": "idempotency_key", "source": "_metadata.key"}, {"name": "trace", "source": "_metadata.trace"}]
COLUMNS = [
    {"name": "placed", "type": "TIMESTAMP", "cde": True},
    {"name": "items", "type": "INT"},
    {"name": "weight", "type": "FLOAT", "description": "in kg"},
    {"name": "amount", "type": "DECIMAL(10,2)", "default": "0.00"},
    {"name": "shipped", "type": "DATE", "format": "dd.MM.yyyy"},
]


def contract(columns: list[dict[str, Any]] = COLUMNS, **others: Any) -> Contract:
    document = {"table_name": "orders", "envelope_columns": ENVELOPE, "payload_columns": columns, **others}
    return Contract.model_validate_json(json.dumps(document))


def with_column(name: str, **changed: Any) -> Contract:
    return contract([{**column, **changed} if column["name"] == name else column for column in COLUMNS])


@pytest.mark.parametrize(
    ("new", "path", "impact"),
    [
        (contract(version=2), "$.version", Impact.NOTED),
        (contract(description="Orders."), "$.description", Impact.NOTED),
        (contract(owners=["team:shop"]), "$.owners", Impact.NOTED),
        (contract(thresholds={"cde_percent": 1.0}), "$.thresholds.cde_percent", Impact.NOTED),
        (contract(thresholds={"duplicates_within_days": 7}), "$.thresholds.duplicates_within_days", Impact.BREAKING),
        (contract(COLUMNS[::-1]), "$", Impact.NOTED),
        (with_column("weight", description="in pounds"), "$.payload_columns.weight.description", Impact.NOTED),
        (contract([*COLUMNS, {"name": "note", "type": "STRING"}]), "$.payload_columns.note", Impact.COMPATIBLE),
        (
            contract([*COLUMNS, {"name": "tax", "type": "INT", "default": "0"}]),
            "$.payload_columns.tax",
            Impact.COMPATIBLE,
        ),
        (with_column("items", type="BIGINT"), "$.payload_columns.items.type", Impact.COMPATIBLE),
        (with_column("weight", type="DOUBLE"), "$.payload_columns.weight.type", Impact.COMPATIBLE),
        (with_column("amount", type="DECIMAL(18,2)"), "$.payload_columns.amount.type", Impact.COMPATIBLE),
        (with_column("amount", type="DECIMAL(18,3)"), "$.payload_columns.amount.type", Impact.BREAKING),
        (with_column("amount", type="DECIMAL(9,2)"), "$.payload_columns.amount.type", Impact.BREAKING),
        (with_column("items", type="STRING"), "$.payload_columns.items.type", Impact.BREAKING),
        (with_column("items", type="DOUBLE"), "$.payload_columns.items.type", Impact.BREAKING),
        (with_column("items", cde=True), "$.payload_columns.items.cde", Impact.BREAKING),
        (with_column("placed", cde=False), "$.payload_columns.placed.cde", Impact.BREAKING),
        (with_column("amount", default="1.00"), "$.payload_columns.amount.default", Impact.BREAKING),
        (with_column("shipped", format="yyyy/MM/dd"), "$.payload_columns.shipped.format", Impact.BREAKING),
        (contract(COLUMNS[1:]), "$.payload_columns.placed", Impact.BREAKING),
        (
            contract([*COLUMNS, {"name": "buyer", "type": "STRING", "cde": True}]),
            "$.payload_columns.buyer",
            Impact.BREAKING,
        ),
        (contract(envelope_columns=ENVELOPE[:1]), "$.envelope_columns.trace", Impact.BREAKING),
        (
            contract(envelope_columns=[*ENVELOPE, {"name": "span", "source": "span"}]),
            "$.envelope_columns.span",
            Impact.BREAKING,
        ),
        (
            contract(envelope_columns=[{**ENVELOPE[0], "source": "id"}, ENVELOPE[1]]),
            "$.envelope_columns.idempotency_key.source",
            Impact.BREAKING,
        ),
    ],
)
def test_every_change_is_named_with_its_impact(new: Contract, path: str, impact: Impact) -> None:
    changes = diff(contract(), new).changes
    assert [(change.path, change.impact) for change in changes] == [(path, impact)]
    assert diff(contract(), new).impact is impact


def test_the_same_contract_changes_nothing() -> None:
    assert diff(contract(), contract()).changes == []
    assert diff(contract(), contract()).impact is Impact.NOTED


def test_the_gravest_change_counts_and_all_are_told() -> None:
    new = contract([{"name": "placed", "type": "DATE", "cde": True}, *COLUMNS[1:]], version=2, description="x")
    found = diff(contract(), new)
    assert found.impact is Impact.BREAKING
    assert [str(change) for change in found.changes] == [
        "noted: $.version: 1 → 2",
        "noted: $.description: none → x",
        "breaking: $.payload_columns.placed.type: TIMESTAMP → DATE",
    ]
    assert found.changes[2] == Change(
        "$.payload_columns.placed.type", "TIMESTAMP → DATE", Impact.BREAKING, "placed", is_of_type=True
    )


def test_the_first_contract_is_compatible_with_nothing_being_there() -> None:
    assert diff(None, contract()).impact is Impact.COMPATIBLE


@pytest.mark.parametrize(("version", "said"), [(2, "goes back behind"), (3, "is taken by")])
def test_a_version_that_does_not_go_forward_is_refused(version: int, said: str) -> None:
    with pytest.raises(ContractInvalid) as caught:
        require_successor(contract(version=3), contract(version=version), "orders.json")
    (problem,) = caught.value.problems
    assert problem.path == "$.version"
    assert said in problem.message
    assert problem.fix == "Write 4."
    require_successor(contract(version=3), contract(version=4), "orders.json")


def test_only_what_is_said_of_rows_tells_contracts_apart() -> None:
    same = [contract(version=2), contract(owners=["team:shop"]), with_column("weight", description="in pounds")]
    assert {each.fingerprint for each in same} == {contract().fingerprint}
    others = [with_column("items", type="BIGINT"), contract(COLUMNS[1:]), contract(envelope_columns=ENVELOPE[:1])]
    assert len({each.fingerprint for each in others} | {contract().fingerprint}) == 4
