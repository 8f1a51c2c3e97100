"""The check that says what a peer's table has lost, let in or changed."""

import json
from pathlib import Path

import pytest

from benchmarks.peers.checking import Found, check
from benchmarks.peers.messages import Expected, Record, what_must_stand

EXPECTED = Expected({"a": Record("m-2", {"amount": "1.10"}), "b": Record("m-3", {"serial": "9" * 30})}, broken=1)
A = {"idempotency_key": "a", "message_id": "m-2", "amount": "1.10"}
B = {"idempotency_key": "b", "message_id": "m-3", "serial": "9" * 30}


def found(*rows: dict[str, object]) -> Found:
    return check(EXPECTED, rows)


def test_a_table_that_holds_what_must_stand_has_no_differences() -> None:
    assert found(A, B) == Found(2, 0, 0, 0, 0, 0, 0, {})


@pytest.mark.parametrize(
    ("row", "differs"),
    [
        ({**A, "message_id": "m-1"}, {"outdated": 1}),
        ({**A, "idempotency_key": "c"}, {"unknown": 1, "missing": 1}),
        ({**A, "idempotency_key": None}, {"unknown": 1, "missing": 1}),
        ({**A, "amount": 1.1}, {"rewritten": 1}),
        ({**A, "amount": "1.2"}, {"changed": 1, "changed_by_field": {"amount": 1}}),
        ({**A, "amount": None}, {"changed": 1, "changed_by_field": {"amount": 1}}),
        ({**A, "amount": float("inf")}, {"changed": 1, "changed_by_field": {"amount": 1}}),
        ({**A, "amount": '"Infinity"'}, {"changed": 1, "changed_by_field": {"amount": 1}}),
    ],
)
def test_a_row_that_differs_is_counted_by_how_it_differs(row: dict[str, object], differs: dict[str, object]) -> None:
    fields = {name: value for name, value in vars(found(row, B)).items() if name != "rows"}
    assert {name: value for name, value in fields.items() if value} == differs


def test_a_missing_and_a_doubled_record_are_counted() -> None:
    assert (found(A).missing, found(A, A, B).doubled) == (1, 1)


def test_the_latest_version_of_a_key_must_stand_with_the_text_of_its_numbers(tmp_path: Path) -> None:
    def line(message_id: str, publish_time: str, payload: str) -> str:
        envelope = {"message_id": message_id, "publish_time": publish_time, "ingestion_ts": 5, "payload": payload}
        return json.dumps(envelope) + "\n"

    file = tmp_path / "messages.ndjson"
    key = '{"_metadata":{"idempotencyKeyResource":"a"},"amount":'
    file.write_text(
        line("m-2", "2026-01-02T00:00:00.000000Z", key + "1.10}")
        + line("m-1", "2026-01-01T00:00:00.000000Z", key + "7}")
        + line("m-3", "2026-01-03T00:00:00.000000Z", key[:20])
    )
    assert what_must_stand([file]) == Expected({"a": Record("m-2", {"amount": "1.10"})}, broken=1)
