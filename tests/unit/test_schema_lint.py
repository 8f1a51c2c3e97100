"""`leanops schema lint`, on files alone."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import PROJECT, Said
from tests.unit.test_contracts import contract

Leanops = Callable[..., Said]
BROKEN = contract(version="3", payload_columns=[{"name": "amount", "type": "INTEGER"}])


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Put a contract, or other content, into a file below the test's folder."""

    def put(place: str, content: dict[str, Any] | bytes) -> Path:
        file = tmp_path / place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
        return file

    return put


def linted(leanops: Leanops, *paths: object) -> dict[str, Any]:
    """What `--json` says, by file."""
    lines = leanops("schema", "lint", "--json", *paths).out.splitlines()
    return {line["file"]: line for line in map(json.loads, lines)}


def test_the_contracts_that_are_shipped_are_ok(leanops: Leanops) -> None:
    said = leanops("schema", "lint", PROJECT / "schemas")
    assert (said.exit_code, said.err) == (0, "")
    *files, total = said.out.splitlines()
    assert len(files) >= 5
    assert all(line.endswith("/schema.json: ok") for line in files)
    assert total == f"{len(files)} contracts, all of them ok."


def test_every_problem_is_printed_below_its_file_with_path_and_fix(
    leanops: Leanops, write: Callable[..., Path]
) -> None:
    good, bad = write("payments/active/schema.json", contract(table_name="payments")), write("draft.json", BROKEN)
    said = leanops("schema", "lint", good, bad)
    assert said.exit_code == 1
    assert said.out.splitlines() == [
        f"{good}: ok",
        f"{bad}: 2 problems",
        "  $.payload_columns[0].type: there is no type 'INTEGER'. Did you mean INT?",
        '  $.version: it must be a whole number from 1 to 2147483647, found "3". Write 3.',
        "2 contracts, 2 problems in 1 of them.",
    ]


def test_json_is_one_object_per_file(leanops: Leanops, write: Callable[..., Path]) -> None:
    good, bad = write("payments/active/schema.json", contract(table_name="payments")), write("draft.json", BROKEN)
    said = leanops("schema", "lint", "--json", good, bad)
    assert said.exit_code == 1
    first, second = map(json.loads, said.out.splitlines())
    assert first == {"file": str(good), "topic": "payments", "ok": True, "problems": []}
    assert (second["file"], second["topic"], second["ok"]) == (str(bad), "orders", False)
    assert second["problems"][1] == {
        "path": "$.version",
        "message": 'it must be a whole number from 1 to 2147483647, found "3".',
        "found": '"3"',
        "allowed": "a whole number from 1 to 2147483647",
        "fix": "Write 3.",
    }


def test_a_folder_is_searched_for_what_is_active_or_pending(leanops: Leanops, write: Callable[..., Path]) -> None:
    wanted = [
        write("orders/active/schema.json", contract()),
        write("orders/pending/schema.json", contract()),
        write("orders/pending/schema-2.json", contract()),
        write("payments/pending/new.json", contract(table_name="payments")),
    ]
    for place in (
        "contract.schema.json",
        "orders/active/other.json",
        "orders/archive/v1/schema.json",
        "orders/failed/error.json",
        "orders/failed/schema.json",
        "orders/pending/.draft.json",
        "orders/pending/error.json",
        "orders/pending/notes.txt",
        ".git/pending/schema.json",
    ):
        write(place, b"not a contract")
    schemas = wanted[0].parents[2]
    assert list(linted(leanops, schemas)) == sorted(map(str, wanted))
    assert list(linted(leanops, schemas / "orders")) == sorted(map(str, wanted[:3]))
    assert list(linted(leanops, schemas / "orders" / "pending")) == sorted(map(str, wanted[1:3]))


def test_a_folder_can_be_named_by_a_dot(
    leanops: Leanops, write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(write("orders/pending/new.json", contract(table_name="payments")).parent)
    assert linted(leanops, ".")["new.json"]["topic"] == "orders"


def test_a_file_that_is_named_twice_is_told_of_once(leanops: Leanops, write: Callable[..., Path]) -> None:
    file = write("orders/active/schema.json", contract())
    assert leanops("schema", "lint", file, file.parents[1], file).out.endswith("\n1 contract, all of them ok.\n")


@pytest.mark.parametrize(
    "place", ["active/schema.json", "pending/new.json", "failed/schema.json", "archive/v1/schema.json"]
)
def test_the_topic_is_the_one_whose_folder_the_file_stands_in(
    leanops: Leanops, write: Callable[..., Path], place: str
) -> None:
    (found,) = linted(leanops, write(f"payments/{place}", contract())).values()
    assert found["topic"] == "payments"
    assert [problem["fix"] for problem in found["problems"]] == ["Write 'payments'."]


def test_a_folder_that_can_be_no_topic_is_a_problem_of_its_contract(
    leanops: Leanops, write: Callable[..., Path]
) -> None:
    (found,) = linted(leanops, write("Orders/active/schema.json", contract()).parents[2]).values()
    assert [problem["message"] for problem in found["problems"]] == ["'Orders' cannot be a topic's name."]


def test_a_file_that_is_no_contract_at_all_is_one_problem(leanops: Leanops, write: Callable[..., Path]) -> None:
    said = leanops("schema", "lint", write("draft.json", b"\xff\xfe{\0}\0"))
    assert said.exit_code == 1
    assert "  $: the file is UTF-16, not UTF-8. Save it as UTF-8 without BOM.\n1 contract, 1 problem in 1" in said.out


def test_a_path_that_does_not_exist_is_named_and_nothing_else_is_told(
    leanops: Leanops, write: Callable[..., Path], tmp_path: Path
) -> None:
    said = leanops("schema", "lint", write("draft.json", contract()), tmp_path / "nowhere.json")
    assert (said.exit_code, said.out) == (1, "")
    assert said.err.startswith(f"error: {tmp_path / 'nowhere.json'} cannot be read: No such file or directory.")


def test_a_folder_without_contracts_is_warned_of(leanops: Leanops, tmp_path: Path) -> None:
    said = leanops("schema", "lint", tmp_path)
    assert (said.exit_code, said.out) == (0, "0 contracts.\n")
    assert said.err == f"warning: there is no contract under {tmp_path}, neither active nor pending.\n"


def test_what_stands_in_a_file_does_not_steer_the_terminal(leanops: Leanops, write: Callable[..., Path]) -> None:
    said = leanops("schema", "lint", write("draft.json", contract(**{"\x1b[2J\x9b": 1})))
    assert said.exit_code == 1
    assert said.out.replace("\n", "").isprintable()
