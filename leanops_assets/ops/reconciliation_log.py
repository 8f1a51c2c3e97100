"""`ops/reconciliation_log`: the ledger of all topics over all days, drawn up every night, or for a scope on demand."""

from collections.abc import Iterator, Sequence
from datetime import date
from typing import TYPE_CHECKING

import dagster as dg
from pydantic import Field

from leanops.contracts.manifest import Manifest
from leanops.names import Layer
from leanops_assets.checks import ledger_verdicts
from leanops_assets.metadata import markdown_table
from leanops_assets.ops.table_asset import ops_asset
from leanops_assets.raw.report import queue_verdict
from leanops_resources.dagster_resources import CatalogResource, SparkConnectResource, StateStoreResource

if TYPE_CHECKING:
    from leanops_assets.topic_ledgers import TopicLedger

_DAYS_SHOWN, _SIGNS = 100, 1000


class LedgerScope(dg.Config):
    """Which ledgers are drawn up. Without anything: all of them."""

    topics: list[str] = Field(default=[], description="Only these topics.")
    day: str = Field(default="", description="Only this publish day, such as 2026-01-15.")


def build_reconciliation_log(manifest: Manifest) -> dg.AssetsDefinition:
    """The asset of `ops_db.reconciliation_log`, over the topics of `manifest`."""

    @ops_asset(
        "reconciliation_log",
        "The ledger of each topic and day, each time it was drawn up: every row has exactly one fate.",
        __file__,
        check_specs=[
            dg.AssetCheckSpec(
                "all_closed", asset=["ops", "reconciliation_log"], description="The ledger of every topic closes."
            )
        ],
    )
    def reconciliation_log(
        context: dg.AssetExecutionContext,
        config: LedgerScope,
        iceberg: CatalogResource,
        state: StateStoreResource,
        spark: SparkConnectResource,
    ) -> Iterator[dg.MaterializeResult[None] | dg.AssetCheckResult]:
        from leanops.ops.reconciliation_log import ledger_row, log_ledgers
        from leanops_assets.topic_ledgers import topic_ledgers

        catalog, day = iceberg.load(), date.fromisoformat(config.day) if config.day else None
        holder = f"run {context.run.run_id}"
        ledgers = list(topic_ledgers(spark.session, catalog, state.store, manifest, holder, config.topics or None, day))
        accounts = [account for ledger in ledgers for account in ledger.accounts]
        run_id = context.run.run_id
        rows = [ledger_row(each.topic, each.layer, each.day, run_id, each.numbers) for each in accounts]
        queues = [account for ledger in ledgers for account in ledger.queue]
        rows += [ledger_row(each.topic, Layer.RAW, each.day, run_id, each.numbers) for each in queues]
        log_ledgers(catalog, rows)
        for queue in queues:
            if not queue.closes:
                context.log_event(dg.AssetCheckEvaluation(**queue_verdict(queue), partition=queue.day.isoformat()))
        for account in accounts:
            contract = manifest.by_name[account.topic].contract
            for verdict in ledger_verdicts(account, contract) if contract else ():
                # The others would say again what the last build has said; 700 topics have too many days for that.
                if not verdict.passed:
                    context.log_event(verdict.evaluation())
        wrong_ones = [ledger for ledger in ledgers if not ledger.adds_up]
        pending_ones = [ledger for ledger in ledgers if ledger.adds_up and ledger.pending.rows]
        since = min((ledger.pending.since for ledger in ledgers if ledger.pending.since), default=None)
        yield dg.MaterializeResult(
            metadata={
                "topics": len(ledgers),
                "accounts": len(accounts),
                "not_closed": len(wrong_ones) + len(pending_ones),
                "pending": sum(ledger.pending.rows for ledger in ledgers),
                "pending_since": since.isoformat() if since else None,
                "ledger": _table([*wrong_ones, *pending_ones] or ledgers),
            }
        )
        yield dg.AssetCheckResult(
            passed=not wrong_ones and not pending_ones,
            severity=dg.AssetCheckSeverity.ERROR if wrong_ones else dg.AssetCheckSeverity.WARN,
            check_name="all_closed",
            asset_key=["ops", "reconciliation_log"],
            description=_described(wrong_ones, pending_ones),
        )

    return reconciliation_log


def _described(wrong: "Sequence[TopicLedger]", pending: "Sequence[TopicLedger]") -> str | None:
    said = [", ".join(each.problem or each.topic for each in wrong)] if wrong else []
    said += [f"{each.topic}: {each.pending_text}" for each in pending]
    return "; ".join(said) or None


def _table(ledgers: "Sequence[TopicLedger]") -> dg.MarkdownMetadataValue:
    """The ledgers as people read them, as many days as can be shown."""
    lines = [line for ledger in ledgers for line in ledger.days()]
    if not lines:
        return dg.MetadataValue.md("Nothing has been built yet.")
    rows = (
        [
            line.topic,
            line.day,
            *line.numbers.values(),
            line.state,
            "; ".join(f"{message_id}: {problem}" for message_id, problem in line.findings),
        ]
        for line in lines[:_DAYS_SHOWN]
    )
    names = ("topic", "day", *lines[0].numbers, "closed", "rows that do not add up")
    return markdown_table(names, rows, signs=_SIGNS)
