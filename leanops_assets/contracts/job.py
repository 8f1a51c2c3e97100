"""The job `contract` and its sensor: whatever is uploaded to `schemas/*/pending/` is taken in by itself."""

from typing import TYPE_CHECKING

import dagster as dg
from dagster._core.storage.dagster_run import NOT_FINISHED_STATUSES
from pydantic import Field

from leanops.errors import LeanOpsError, TopicBusy
from leanops.names import table
from leanops.settings import Settings
from leanops_assets.checks import ledger_verdicts
from leanops_assets.metadata import days_metadata, markdown_table
from leanops_assets.specs import asset_key
from leanops_resources.dagster_resources import (
    CatalogResource,
    SchemaStoreResource,
    SparkConnectResource,
    StateStoreResource,
)

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from leanops.rebuild import Rebuilt
    from leanops_assets.contracts.activation import Activated

_LOOK_EVERY_SECONDS = 30
_TOPIC_TAG = "leanops/contract_of"


class UploadsOf(dg.Config):
    """Whose uploads are taken in."""

    topic: str = Field(description="The folder under the contracts, which is the topic.")


@dg.op(
    name="take_in",
    description="Validates what is pending, compares it with the active contract, makes tables follow, activates it.",
)
def take_in(
    context: dg.OpExecutionContext,
    config: UploadsOf,
    contracts: SchemaStoreResource,
    state: StateStoreResource,
    iceberg: CatalogResource,
    spark: SparkConnectResource,
) -> None:
    """All uploads of a topic, in the order in which they came. One that is refused does not keep the next waiting."""
    from leanops_assets.contracts.activation import REFUSALS, Activation

    activation = Activation(
        Settings.load(), contracts.store, state.store, iceberg.catalog, spark.session, context.log.info
    )
    refused: list[LeanOpsError] = []
    for upload in contracts.store.uploads():
        if upload.topic != config.topic:
            continue
        try:
            if activated := activation.take_in(upload):
                _tell(context, iceberg.load(), activated)
        except TopicBusy as error:
            context.log.warning("%s It stays pending and is asked for again.", error)
            return
        except REFUSALS as error:
            refused.append(error)
        except LeanOpsError as error:
            raise dg.Failure(f"{error} The upload stays pending, and is tried again.", allow_retries=False) from None
    if refused:
        raise dg.Failure("\n".join(map(str, refused)), allow_retries=False)


@dg.job(name="contract", description="Takes in what was uploaded for a topic: from pending to active, or to failed.")
def contract_job() -> None:
    """One step: what an upload goes through is one thing, whole or not at all."""
    take_in()


@dg.sensor(
    name="contracts",
    job=contract_job,
    minimum_interval_seconds=_LOOK_EVERY_SECONDS,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Takes in contracts as soon as they are uploaded to schemas/*/pending/.",
)
def contracts_sensor(
    context: dg.SensorEvaluationContext, contracts: SchemaStoreResource
) -> list[dg.RunRequest] | dg.SkipReason:
    """A run for each topic with anything pending, unless one is under way. What was cut off is asked for again."""
    wanted = dict.fromkeys(upload.topic for upload in contracts.store.uploads())
    under_way = context.instance.get_runs(dg.RunsFilter(job_name=contract_job.name, statuses=NOT_FINISHED_STATUSES))
    for run in under_way:
        wanted.pop(run.tags.get(_TOPIC_TAG, ""), None)
    requests = [
        dg.RunRequest(run_config=dg.RunConfig(ops={take_in.name: UploadsOf(topic=topic)}), tags={_TOPIC_TAG: topic})
        for topic in wanted
    ]
    return requests or dg.SkipReason("Nothing is pending that is not being taken in already.")


def _tell(context: dg.OpExecutionContext, catalog: "Catalog", activated: "Activated") -> None:
    """Show what has happened: in the log, as the step's metadata, and on the assets that were rebuilt."""
    from leanops_assets.contracts.activation import described

    for line in described(activated):
        context.log.info("%s", line)
    changes = ((change.impact, change.path, change.what) for change in activated.diff.changes)
    shown = {
        "topic": activated.topic,
        "version": activated.contract.version,
        "impact": activated.diff.impact.value,
        "changes": markdown_table(("impact", "path", "what"), changes, signs=200),
    }
    if rebuilt := activated.rebuilt:
        _tell_rebuilt(context, catalog, activated, rebuilt)
        rows = ((layer, rebuilt.rows_before[layer], rebuilt.rows_after[layer]) for layer in rebuilt.rows_after)
        shown["rebuilt"] = markdown_table(("layer", "rows before", "rows now"), rows)
    context.add_output_metadata(shown)


def _tell_rebuilt(
    context: dg.OpExecutionContext, catalog: "Catalog", activated: "Activated", rebuilt: "Rebuilt"
) -> None:
    """Every day of both layers is materialised anew, and its ledger was drawn up before anybody saw it."""
    from leanops.ops.reconciliation_log import ledger_row, log_ledgers

    topic, accounts = activated.topic, rebuilt.accounts
    for layer in rebuilt.rows_after:
        days = {account.day for account in accounts if account.layer is layer}
        for day, metadata in days_metadata(catalog.load_table(table(layer, topic)), days).items():
            key = asset_key(layer, topic)
            context.log_event(dg.AssetMaterialization(key, partition=day.isoformat(), metadata=metadata))
    for account in accounts:
        for verdict in ledger_verdicts(account, activated.contract):
            context.log_event(verdict.evaluation())  # type: ignore[arg-type]  # Dagster's type forgets it
    log_ledgers(catalog, (ledger_row(topic, each.layer, each.day, context.run_id, each.numbers) for each in accounts))
