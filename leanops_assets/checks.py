"""The asset checks of a topic's layers: what each is, and how its verdict on a day is reached and shown.

| check | on | fails when |
|---|---|---|
| `ledger_closed` | Standardized, Curated | a row has no fate, or more than one; rows are not built yet: a warning |
| `one_row_per_key` | Standardized, Curated | a record has more than one row |
| `drift` | Standardized | fields have appeared since the contract, which does not know them: a warning |
| `cde_counts` | Curated | a Critical Data Element is missing: a warning; an error above the contract's threshold |

They are drawn up after a build for the days that it touched: over all rows of these days, or, where the days hold many,
over the rows that the build took in. Every night `ops/reconciliation_log` draws them up over all days.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import TYPE_CHECKING, Any

import dagster as dg

from leanops.contracts.model import Contract
from leanops.names import SOURCE, Layer, table
from leanops_assets.metadata import markdown_table
from leanops_assets.specs import asset_key

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyspark.sql import SparkSession

    from leanops.ledger.account import Account, Findings
    from leanops.slices import Slice

_CHECKS = {
    Layer.STANDARDIZED: {
        "ledger_closed": "RAW = Standardized + parse errors + duplicates + superseded, row by row.",
        "one_row_per_key": "Every record has one row.",
        "drift": "The contract knows every field that messages have.",
    },
    Layer.CURATED: {
        "ledger_closed": "Standardized = Curated + open errors, row by row.",
        "one_row_per_key": "Every record has one row.",
        "cde_counts": "No Critical Data Element is missing or blank.",
    },
}
_ROWS_IN_FULL = 200_000
"""Days of so many rows together are looked at in full after a build."""


@dataclass(frozen=True)
class Verdict:
    """What a check says of a day."""

    layer: Layer
    topic: str
    check: str
    day: date
    passed: bool
    severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.ERROR
    description: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)

    def result(self) -> dg.AssetCheckResult:
        """The verdict on the day of a run."""
        return dg.AssetCheckResult(
            passed=self.passed,
            asset_key=asset_key(self.layer, self.topic),
            check_name=self.check,
            severity=self.severity,
            description=self.description,
            metadata=self.metadata,
        )

    def evaluation(self) -> dg.AssetCheckEvaluation:
        """The verdict on any day."""
        return dg.AssetCheckEvaluation(
            asset_key=asset_key(self.layer, self.topic),
            check_name=self.check,
            passed=self.passed,
            severity=self.severity,
            description=self.description,
            metadata=self.metadata,
            partition=self.day.isoformat(),
        )


def check_specs(layer: Layer, topic: str, days: dg.DailyPartitionsDefinition) -> list[dg.AssetCheckSpec]:
    """All checks of a layer."""
    return [
        dg.AssetCheckSpec(name, asset=asset_key(layer, topic), description=description, partitions_def=days)
        for name, description in _CHECKS[layer].items()
    ]


def check_days(
    sessions: "Callable[[], SparkSession]",
    catalog: "Catalog",
    topic: str,
    contract: Contract,
    layer: Layer,
    days: Collection[date],
    new: "Slice | None" = None,
) -> Iterator[Verdict]:
    """The verdicts on some days: over all their rows, or over the `new` ones where the days hold many."""
    from leanops.inventory import table_days
    from leanops.ledger.draw_up import draw_up
    from leanops.slices import Slice
    from leanops.tables import find_table

    source = find_table(catalog, table(SOURCE[layer], topic))
    if source is None:
        return
    part = Slice.of_days(days)
    if new is not None and sum(day.rows for day in table_days(source, days).values()) > _ROWS_IN_FULL:
        part = new
    accounts = draw_up(sessions, catalog, topic, contract, layer, part)
    yield from verdicts(sessions, catalog, contract, [each for each in accounts if each.day in days])


def verdicts(
    sessions: "Callable[[], SparkSession]", catalog: "Catalog", contract: Contract, accounts: "Iterable[Account]"
) -> Iterator[Verdict]:
    """What the checks of one layer say of the days of its accounts."""
    from leanops.ledger.cde import cde_violations
    from leanops.ops.drift_log import new_columns

    accounts = list(accounts)
    missing: Mapping[date, Mapping[str, int]] = {}
    unknown: list[str] = []
    if accounts and accounts[0].layer is Layer.CURATED:
        missing = cde_violations(sessions, catalog, accounts)
    elif accounts:
        unknown = new_columns(catalog, accounts[0].topic, contract)
    for account in accounts:
        yield from ledger_verdicts(account, contract)
        if account.layer is Layer.CURATED:
            yield cde_verdict(account, contract, missing.get(account.day, {}))
        else:
            yield _drift(account, unknown)


def ledger_verdicts(account: "Account", contract: Contract) -> Iterator[Verdict]:
    """What an account alone says."""
    yield _ledger_closed(account, contract)
    yield _one_row_per_key(account)


def _ledger_closed(account: "Account", contract: Contract) -> Verdict:
    from leanops.ledger.queries import findings_query

    return Verdict(
        account.layer,
        account.topic,
        "ledger_closed",
        account.day,
        account.closes,
        # Rows that wait for the next build are no error, but the day is not closed before they have a fate.
        severity=dg.AssetCheckSeverity.WARN if account.adds_up else dg.AssetCheckSeverity.ERROR,
        description=_ledger_description(account),
        metadata={
            **account.numbers,
            **({} if account.adds_up else _named(account.findings, findings_query(account, contract))),
        },
    )


def _ledger_description(account: "Account") -> str | None:
    if not account.adds_up:
        return _told(account.findings, "without exactly one fate")
    return f"{account.pending}." if account.pending.rows else None


def _one_row_per_key(account: "Account") -> Verdict:
    from leanops.ledger.queries import shared_keys_query

    shared = account.shared
    return Verdict(
        account.layer,
        account.topic,
        "one_row_per_key",
        account.day,
        not shared.count,
        description=_told(shared, "whose record has another row") if shared.count else None,
        metadata=_named(shared, shared_keys_query(account)) if shared.count else {},
    )


def cde_verdict(account: "Account", contract: Contract, missing: Mapping[str, int]) -> Verdict:
    """What the rows without their Critical Data Elements say, by column."""
    missing = {column: count for column, count in missing.items() if count}
    limit = contract.thresholds.cde_percent
    percents = {column: 100 * count / account.came_in for column, count in missing.items() if account.came_in}
    worst = max(percents.values(), default=0.0)
    return Verdict(
        account.layer,
        account.topic,
        "cde_counts",
        account.day,
        not missing,
        severity=dg.AssetCheckSeverity.ERROR if worst > limit else dg.AssetCheckSeverity.WARN,
        description=", ".join(
            f"{name} is missing in {missing[name]:,} rows ({percents[name]:.1f} %)" for name in percents
        )
        or None,
        metadata={"rows": account.came_in, "error_above_percent": limit, **missing},
    )


def _drift(account: "Account", unknown: list[str]) -> Verdict:
    return Verdict(
        account.layer,
        account.topic,
        "drift",
        account.day,
        not unknown,
        severity=dg.AssetCheckSeverity.WARN,
        description=f"Fields that the contract does not know: {', '.join(unknown)}" if unknown else None,
        metadata={"new_columns": unknown},
    )


def _told(findings: "Findings", problem: str) -> str:
    ids = ", ".join(dict.fromkeys(finding.message_id for finding in findings.first))
    return f"{findings.count:,} rows {problem}: {ids}" + (" …" if findings.count > len(findings.first) else "")


def _named(findings: "Findings", query: str) -> dict[str, Any]:
    rows = ((finding.message_id, finding.landing_seq, finding.problem) for finding in findings.first)
    return {
        "count": findings.count,
        "first_of_them": markdown_table(("message_id", "landing_seq", "problem"), rows, signs=200),
        "query": dg.MetadataValue.md(f"```sql\n{query}\n```"),
    }
