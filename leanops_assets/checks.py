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

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import TYPE_CHECKING, Any

import dagster as dg

from leanops.contracts.model import Contract
from leanops.names import SOURCE, Layer
from leanops_assets.metadata import markdown_table
from leanops_assets.specs import asset_key

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from leanops.batch.isolation import Jobs
    from leanops.batch.topics import Outcome, TopicTables
    from leanops.ledger.account import Account, Findings
    from leanops.ledger.draw_up import LedgerRequest
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
_ROWS_IN_FULL = 2_000
"""Days of so many rows together are looked at in full after a build; of others what was taken in, until the night."""


@dataclass(frozen=True)
class DaysToCheck:
    """Days of one layer of a topic that are to be checked."""

    tables: "TopicTables"
    contract: Contract
    layer: Layer
    days: frozenset[date]
    new: "Slice | None" = None
    """The rows that a build has just taken in: only these are looked at where the days hold many."""

    @property
    def topic(self) -> str:
        return self.tables.topic


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

    @property
    def output_name(self) -> str:
        """The output of the layer's step that stands for the check."""
        return dg.AssetCheckSpec(self.check, asset=asset_key(self.layer, self.topic)).get_python_identifier()

    def evaluation(self) -> dg.AssetCheckEvaluation:
        """The verdict, as the UI has it."""
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
    jobs: "Jobs", catalog: "Catalog", to_check: Sequence[DaysToCheck]
) -> "dict[tuple[str, Layer], Outcome[list[Verdict]]]":
    """The verdicts on some days of any number of topics and layers, all of them asked about at once.

    What is wrong with one topic is its own outcome.
    """
    from leanops.batch.topics import each_topic
    from leanops.ledger.draw_up import LedgerRequest, draw_up

    asked = {(each.topic, each.layer): each for each in to_check}
    planned = {
        (topic, layer): request
        for layer in SOURCE
        for topic, request in each_topic([each for each in to_check if each.layer is layer], _ledger_request).items()
    }
    failed = {which: request for which, request in planned.items() if isinstance(request, Exception)}
    requests = [request for request in planned.values() if isinstance(request, LedgerRequest)]
    drawn = draw_up(jobs, catalog, requests)
    accounts = {
        which: [account for account in found if account.day in asked[which].days]
        for which, found in drawn.items()
        if not isinstance(found, Exception)
    }
    failed |= {which: found for which, found in drawn.items() if isinstance(found, Exception)}
    return failed | _verdicts(catalog, asked, accounts)


def _ledger_request(to_check: DaysToCheck) -> "LedgerRequest":
    """All rows of the days, or the new ones where the days hold many."""
    from leanops.inventory import table_days
    from leanops.ledger.draw_up import LedgerRequest
    from leanops.slices import Slice

    is_built, days = to_check.new is not None, Slice.of_days(to_check.days)
    request = LedgerRequest(to_check.tables, to_check.contract, to_check.layer, days, asks_index=is_built)
    if not is_built or request.source is None:
        return request
    rows = sum(day.rows for day in table_days(request.source, to_check.days).values())
    return request if rows <= _ROWS_IN_FULL else replace(request, part=to_check.new)


def _verdicts(
    catalog: "Catalog",
    asked: Mapping[tuple[str, Layer], DaysToCheck],
    accounts: "Mapping[tuple[str, Layer], Sequence[Account]]",
) -> "dict[tuple[str, Layer], Outcome[list[Verdict]]]":
    """What the checks say of the days of accounts. The log of drift is read once for all topics."""
    from leanops.ops.drift_log import new_columns

    of_drift = [
        asked[topic, layer] for (topic, layer), found in accounts.items() if layer is not Layer.CURATED and found
    ]
    unknown = new_columns(catalog, {each.topic: (each.tables.curated, each.contract) for each in of_drift})
    verdicts: dict[tuple[str, Layer], Outcome[list[Verdict]]] = {}
    for (topic, layer), found in accounts.items():
        contract = asked[topic, layer].contract
        verdicts[topic, layer] = [
            verdict
            for account in found
            for verdict in (
                *ledger_verdicts(account, contract),
                cde_verdict(account, contract) if layer is Layer.CURATED else _drift(account, unknown[topic]),
            )
        ]
    return verdicts


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


def cde_verdict(account: "Account", contract: Contract) -> Verdict:
    """What the rows without their Critical Data Elements say, by column."""
    missing, limit = account.missing, contract.thresholds.cde_percent
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
