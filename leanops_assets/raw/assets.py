"""RAW of a topic. Materialising a day drains the topic's source, and takes stock of what RAW holds of that day.

The job `drain` does the same for all topics at once, every minute; this is for one topic, by hand.
"""

from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg

from leanops.contracts.manifest import Topic
from leanops.names import Layer, step_name
from leanops.settings import Settings
from leanops_assets.metadata import days_metadata
from leanops_assets.partitions import publish_days
from leanops_assets.raw.report import CIRCUIT_CLOSED, QUEUE_CLOSED, check_specs, circuit_verdict, queue_verdict
from leanops_assets.specs import asset_key, asset_spec
from leanops_assets.steps import topic_step
from leanops_resources.dagster_resources import CatalogResource, IntakeResource, StateStoreResource

if TYPE_CHECKING:
    from leanops_assets.raw.drain import Drained

PATIENCE = timedelta(minutes=1)
"""How long a step waits for another drain of the same topic."""

Result = dg.MaterializeResult[None] | dg.AssetCheckResult


def build_raw_assets(topic: Topic, settings: Settings) -> dg.AssetsDefinition:
    """The step that drains a topic's source into its RAW table."""
    days = publish_days(settings.first_day)

    @topic_step(
        name=step_name(Layer.RAW, topic.name),
        specs=[asset_spec(Layer.RAW, topic, [], Path(__file__), settings)],
        check_specs=check_specs(topic.name, days),
        partitions_def=days,
        can_subset=True,
    )
    def drain_topic(
        context: dg.AssetExecutionContext,
        iceberg: CatalogResource,
        state: StateStoreResource,
        intake: IntakeResource,
    ) -> Iterator[Result]:
        from leanops.raw.table import ensure_raw_table
        from leanops_assets.raw.drain_job import drain_topics, require_drained, tell
        from leanops_assets.raw.queue_ledger import QueueAccount, queue_accounts

        catalog, store = iceberg.load(), state.store
        day = date.fromisoformat(context.partition_key)
        checks = {key.name for key in context.selected_asset_check_keys}
        drained: list[Drained] = []
        if context.selected_asset_keys:
            raw = ensure_raw_table(catalog, topic.name)
            holder = f"run {context.run.run_id}"
            drained = drain_topics(catalog, store, intake, settings.first_day, [topic.name], holder, PATIENCE)
            tell(context, catalog, store, drained[0], leave_out=[day])
            raw.refresh()
            shown = days_metadata(raw, [day])[day]
            yield dg.MaterializeResult(
                asset_key=asset_key(Layer.RAW, topic.name),
                metadata={**shown, "rows_landed": drained[0].landed[day], "landed_from": drained[0].source},
            )
        if QUEUE_CLOSED in checks:
            found = queue_accounts(catalog, store, topic.name, [day]) or [QueueAccount(topic.name, day)]
            yield dg.AssetCheckResult(**queue_verdict(found[0]))
        if CIRCUIT_CLOSED in checks:
            yield dg.AssetCheckResult(**circuit_verdict(topic.name, store.breaker(topic.name)))
        require_drained(drained)

    return drain_topic
