"""The JSON Schema of contracts agrees with the reader of contracts, as far as JSON Schema goes."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from leanops.contracts.column_types import SIMPLE_TYPES
from leanops.contracts.json_schema import json_schema
from tests.conftest import PROJECT, Said
from tests.unit.test_contracts import MISSPELT, NOT_TEXT, ONE_PROBLEM, contract, read, with_column, with_envelope

COMMITTED = PROJECT / "schemas" / "contract.schema.json"
SHIPPED = sorted((PROJECT / "schemas").glob("*/active/schema.json"))

SCHEMA = json.loads(json_schema())
VALIDATOR = Draft202012Validator(SCHEMA)

BEYOND_JSON_SCHEMA = [
    "is not the topic of this folder",
    "already, at",
    "0 ≤ s ≤ p",
    "'garbage' is no format of a DATE",
    *(f"no {kind}" for kind in ("INT", "DECIMAL(5,2)", "DATE", "BOOLEAN")),
]
"""What only the linter sees, by what it says of it."""

VALID = [
    contract(),
    contract(**{"$schema": "../../contract.schema.json"}),
    contract(version=3, description="Größe", owners=["team:commerce", "ops@example.com"], envelope_columns=[]),
    contract(description=None, thresholds={"cde_percent": 1, "silent_hours": 0.5}),
    contract(thresholds={"silent_hours": None}),
    *(with_column(type=kind) for kind in (*SIMPLE_TYPES, "DECIMAL(1,0)", "DECIMAL(38,38)", "DECIMAL(05,02)")),
    with_column(cde=True),
    with_column(cde=True, default=None, format=None, description=None),
    with_column(cde=False, type="DECIMAL(18,2)", default="0.00"),
    with_column(type="DATE", format="dd.MM.yyyy", default="2026-01-31"),
    with_column(type="TIMESTAMP", format="epoch_millis"),
    with_envelope(name="a" * 64, source="größe.a-b.c"),
]


def test_the_committed_file_is_current() -> None:
    regenerate = "leanops schema json-schema > schemas/contract.schema.json"
    assert COMMITTED.read_text("utf-8") == json_schema(), f"It is not what the model says any more: run `{regenerate}`."


def test_the_command_prints_it(leanops: Callable[..., Said]) -> None:
    said = leanops("schema", "json-schema")
    assert (said.exit_code, said.out, said.err) == (0, json_schema(), "")


def test_it_is_a_json_schema_of_the_draft_that_it_names() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$schema"] == Draft202012Validator.META_SCHEMA["$id"]


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.parents[1].name)
def test_the_contracts_that_are_shipped_agree_with_it(file: Path) -> None:
    VALIDATOR.validate(json.loads(file.read_bytes()))


@pytest.mark.parametrize("document", VALID, ids=lambda each: str(each)[-60:])
def test_what_the_reader_takes_it_takes_too(document: dict[str, Any]) -> None:
    assert read(document)
    VALIDATOR.validate(document)


@pytest.mark.parametrize(("document", "path", "says"), ONE_PROBLEM + MISSPELT)
def test_what_the_reader_refuses_it_refuses_too_where_it_can(document: dict[str, Any], path: str, says: str) -> None:
    # To Python, but not to editors, a pattern's $ is also before a line feed at the end.
    is_pythons_own = document.get("owners") == ["a@b.c\n"]
    assert VALIDATOR.is_valid(document) == (is_pythons_own or any(rule in says for rule in BEYOND_JSON_SCHEMA))


@pytest.mark.parametrize("value", NOT_TEXT, ids=json.dumps)
def test_a_name_that_is_no_text_is_refused(value: object) -> None:
    assert not VALIDATOR.is_valid(contract(table_name=value))
    assert not VALIDATOR.is_valid(with_column(name=value))
    assert not VALIDATOR.is_valid(with_column(type=value))
    assert not VALIDATOR.is_valid(with_envelope(source=value))


@pytest.mark.parametrize("name", ["message_id", "idempotency_key", "landing_seq"])
def test_system_columns_are_refused_as_the_reader_refuses_them(name: str) -> None:
    assert not VALIDATOR.is_valid(contract(payload_columns=[{"name": name, "type": "STRING"}]))
    filled = contract(envelope_columns=[{"name": name, "source": "a"}])
    assert VALIDATOR.is_valid(filled) == (name == "idempotency_key")


def test_every_key_tells_editors_what_it_is_for() -> None:
    objects = [SCHEMA, *SCHEMA["$defs"].values()]
    assert len(objects) == 4
    keys = {f"{each['title']}.{key}": rule for each in objects for key, rule in each["properties"].items()}
    assert [key for key, rule in keys.items() if not rule.get("description")] == []
    assert all(each["additionalProperties"] is False and each["description"] for each in objects)


def test_editors_complete_every_type_and_tell_what_its_values_are() -> None:
    choices = SCHEMA["$defs"]["PayloadColumn"]["properties"]["type"]["anyOf"]
    assert {each["const"]: each["description"] for each in choices if "const" in each} == SIMPLE_TYPES
    (decimal,) = (each for each in choices if "pattern" in each)
    assert "1 ≤ p ≤ 38" in decimal["description"]
