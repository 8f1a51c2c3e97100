"""An account closes when every row has exactly one fate."""

from dataclasses import replace
from datetime import date

import dagster as dg
import pytest

from leanops.contracts.model import Contract
from leanops.ledger.account import SHOWN, Account, Finding, Findings
from leanops.ledger.pending import PendingRows
from leanops.names import Layer
from leanops_assets.checks import cde_verdict, ledger_verdicts

DAY = date(2026, 1, 15)
CONTRACT = Contract.model_validate(
    {
        "table_name": "orders",
        "envelope_columns": [{"name": "idempotency_key", "source": "it's.key"}],
        "payload_columns": [{"name": "amount", "type": "INT", "cde": True}],
    }
)


def account(came_in: int, findings: Findings | None = None, **fates: int) -> Account:
    layer = Layer.STANDARDIZED if "standardized" in fates else Layer.CURATED
    return Account("orders", layer, DAY, False, 9, came_in, fates, findings or Findings())


def test_it_closes_by_count_and_by_row() -> None:
    assert account(5, standardized=3, parse_errors=1, duplicates=1).closes
    assert not account(5, standardized=3, parse_errors=1).closes
    assert not account(5, Findings(1), standardized=4, parse_errors=1).closes
    assert account(0, standardized=0).accounted == 100
    assert account(4, standardized=3).accounted == 75


def test_a_day_with_pending_rows_adds_up_and_is_not_closed() -> None:
    waiting = PendingRows(2, 1_768_464_000)
    pending = replace(account(5, standardized=5), pending=waiting)
    assert (pending.adds_up, pending.closes, pending.is_clean, pending.accounted) == (True, False, True, 100)
    assert pending.numbers["raw"] == 7
    assert (pending.numbers["pending"], pending.numbers["closed"]) == (2, False)
    assert pending.numbers["pending_since"] == "2026-01-15T08:00:00+00:00"
    closed, _ = ledger_verdicts(pending, CONTRACT)
    assert (closed.passed, closed.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert closed.description == "2 rows are pending since 2026-01-15 08:00:00 UTC."
    not_built = replace(account(0, standardized=0), pending=waiting)
    assert not_built.numbers["accounted_percent"] is None
    lost, _ = ledger_verdicts(replace(account(5, Findings(1), standardized=4), pending=waiting), CONTRACT)
    assert (lost.passed, lost.severity) == (False, dg.AssetCheckSeverity.ERROR)


def test_a_failed_check_names_rows_and_how_to_list_all() -> None:
    lost = Findings(30, [Finding(number, f"m{number}", "no fate") for number in range(SHOWN)])
    closed, single = ledger_verdicts(account(30, lost, standardized=0), CONTRACT)
    assert not closed.passed
    assert str(closed.description).startswith("30 rows without exactly one fate: m0, m1")
    assert str(closed.description).endswith("m19 …")
    assert "get_json_object(came.json_payload, '$.it\\'s.key')" in closed.metadata["query"].value
    assert closed.metadata["raw"] == 30
    assert single.passed


@pytest.mark.parametrize(
    ("missing", "passed", "severity"),
    [(0, True, "WARN"), (5, False, "WARN"), (6, False, "ERROR")],
    ids=["none", "at the threshold", "above it"],
)
def test_missing_elements_are_a_warning_up_to_the_threshold(missing: int, passed: bool, severity: str) -> None:
    lacking = {"amount": missing} if missing else {}
    found = cde_verdict(replace(account(100, curated=100 - missing, open_errors=missing), missing=lacking), CONTRACT)
    assert (found.passed, found.severity) == (passed, dg.AssetCheckSeverity[severity])


def test_the_threshold_is_the_contracts_and_changes_no_rows() -> None:
    stricter = CONTRACT.model_copy(update={"thresholds": CONTRACT.thresholds.model_copy(update={"cde_percent": 1.0})})
    found = cde_verdict(replace(account(100, curated=98, open_errors=2), missing={"amount": 2}), stricter)
    assert found.severity is dg.AssetCheckSeverity.ERROR
    assert stricter.fingerprint == CONTRACT.fingerprint
