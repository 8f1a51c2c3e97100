"""A contract is rehearsed by people: on the command line, and in the UI."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from leanops.home import Home
from leanops.names import table
from leanops_resources.catalog import LocalCatalog
from tests.conftest import EXAMPLES, PROJECT, Said
from tests.platform.test_asking_for_ledgers import run_job

Leanops = Callable[..., Said]
ACTIVE = PROJECT / "schemas" / "orders" / "active" / "schema.json"


@pytest.fixture
def orders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The place of the contracts of orders, in a folder of the test's own."""
    folder = tmp_path / "contracts" / "orders"
    shutil.copytree(ACTIVE.parents[1], folder)
    monkeypatch.setenv("LEANOPS_SCHEMAS", str(folder.parent))
    return folder


def put(folder: Path, name: str, **changes: object) -> Path:
    """The contract with one column that is new or changed, as the next version, in a file of this folder."""
    contract = json.loads(ACTIVE.read_text())
    columns = {each["name"]: each for each in contract["payload_columns"]}
    columns[name] = {**columns.get(name, {"name": name}), **changes}
    path = folder / "schema.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**contract, "version": 4, "payload_columns": list(columns.values())}))
    return path


def rehearsed(home: Home, **config: object) -> dict[str, Any] | str:
    """What the job's step shows, or why it failed."""
    done = run_job(home, "rehearse", {"ops": {"rehearsal": {"config": {"topic": "orders", **config}}}})
    if not done.success:
        return str(done.failure_data_for_node("rehearsal"))
    [output] = done.filter_events(lambda event: event.event_type is dg.DagsterEventType.STEP_OUTPUT)
    return {name: value.value for name, value in output.step_output_data.metadata.items()}


def test_what_a_contract_would_do_is_told_before_it_is_active(
    warm_home: Home, orders: Path, leanops: Leanops, tmp_path: Path
) -> None:
    draft = put(tmp_path / "drafts", "amount", type="DECIMAL(5,2)")
    said = leanops("schema", "rehearse", draft)
    assert said.exit_code == 1
    assert "Standardized holds no rows of orders: nothing was built yet." in said.err

    assert leanops("land", "orders", EXAMPLES / "orders.ndjson").exit_code == 0
    assert leanops("tick").exit_code == 0
    tables = [
        LocalCatalog(warm_home).load().load_table(table(layer, "orders")) for layer in ("standardized", "curated")
    ]

    # Rows that pass today would fail.
    said = leanops("schema", "rehearse", draft)
    assert said.exit_code == 1
    assert said.err == ""
    assert said.out.splitlines()[:3] == [
        "Version 4 of the contract, on 5 rows of orders in Standardized (2 days, 2026-01-14 to 2026-01-15).",
        "3 would pass (60.00 %), 2 would fail (40.00 %).",
        "By version 3, which is active, 4 pass today, of which 1 would fail; 1 fail, of which 0 would pass.",
    ]
    [row] = [line for line in said.out.splitlines() if line.startswith("amount")]
    assert row.split() == ["amount", "type", "2", "40.00", "%", "ord-0006:", "'1999.0',", "ord-0005:", "'12abc'"]
    assert "  ord-0006: amount is '1999.0' (type)" in said.out

    # Rows fail, but no more of them than today.
    said = leanops("schema", "rehearse", put(orders / "pending", "coupon", type="STRING"), "--json", "--days", 1)
    assert said.exit_code == 0
    document = json.loads(said.out)
    assert document["days"] == ["2026-01-15"]
    assert (document["rows"], document["passing"], document["newly_failing"]) == (3, 2, 0)
    assert document["failures"] == [
        {"column": "amount", "rule": "type", "rows": 1, "samples": [{"message_id": "ord-0005", "value": "12abc"}]}
    ]
    assert leanops("schema", "rehearse", draft, "--days", 0).exit_code == 2

    # In the UI: what is pasted, else what is pending, else what was refused.
    shown = rehearsed(warm_home, contract=draft.read_text())
    assert isinstance(shown, dict)
    assert (shown["rows"], shown["would_fail"], shown["pass_today_and_would_fail"]) == (5, 2, 1)
    assert "ord\\-0006: '1999.0', ord\\-0005: '12abc'" in shown["failures"]
    assert "3 would pass \\(60.00 %\\)" in shown["summary"]
    assert rehearsed(warm_home, days=1)["would_fail"] == 1
    shutil.rmtree(orders / "pending")
    assert "no contract of orders under pending/ or failed/" in rehearsed(warm_home)
    put(orders / "failed", "coupon", type="STRING", cde=True)
    assert rehearsed(warm_home)["pass_today_and_would_fail"] == 3
    assert "$.payload_columns: required, but missing." in rehearsed(warm_home, contract='{"table_name": "orders"}')

    after = [LocalCatalog(warm_home).load().load_table(each.name()) for each in tables]
    assert [each.metadata_location for each in after] == [each.metadata_location for each in tables]


@pytest.mark.parametrize(
    ("place", "topic"),
    [
        ("orders/pending/schema.json", "orders"),
        ("orders/pending/another.json", "orders"),
        ("orders/archive/v2/schema.json", "orders"),
        ("drafts/orders.json", "payments"),
        ("schema.json", "payments"),
    ],
)
def test_a_contract_file_is_of_the_topic_whose_folder_it_is_in_else_of_its_own(
    tmp_path: Path, place: str, topic: str
) -> None:
    from leanops_cli.schema.contract_files import contract_in

    content = b'{"table_name": "payments"}'
    file = tmp_path / place
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    assert contract_in(file) == (topic, content)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"{", "not JSON"),
        (b"\xff\xfe", "not UTF-8"),
        (b"[]", "a contract is a JSON object"),
        (b"{}", "$.table_name: required, but missing."),
    ],
)
def test_a_file_that_is_no_contract_is_told_without_waiting_for_anything(
    home: Home, leanops: Leanops, tmp_path: Path, content: bytes, problem: str
) -> None:
    file = tmp_path / "contract.json"
    file.write_bytes(content)
    said = leanops("schema", "rehearse", file)
    assert said.exit_code == 1
    assert problem in said.err
    missing = leanops("schema", "rehearse", tmp_path / "nowhere.json")
    assert missing.exit_code == 1
    assert "nowhere.json cannot be read: No such file or directory." in missing.err
