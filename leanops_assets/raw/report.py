"""What Dagster is told of messages that came in: a materialisation of RAW for each day, and what its checks say.

| check | on | fails when |
|---|---|---|
| `queue_closed` | each day | what was received is not in RAW, not among the dead letters and not in flight |
| `circuit_closed` | each day | most messages failed, and nothing is received until a trial batch is good |
"""

from collections.abc import Iterator, Mapping
from datetime import date
from typing import TYPE_CHECKING, Any

import dagster as dg

from leanops.ingestion.breaker import Breaker, Circuit
from leanops.names import Layer, table
from leanops_assets.metadata import days_metadata
from leanops_assets.specs import asset_key

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from leanops_assets.raw.queue_ledger import QueueAccount

QUEUE_CLOSED, CIRCUIT_CLOSED = "queue_closed", "circuit_closed"


def check_specs(topic: str, days: dg.DailyPartitionsDefinition) -> list[dg.AssetCheckSpec]:
    """The checks of a topic's RAW."""
    described = {
        QUEUE_CLOSED: "Queue = RAW + dead letters + in flight.",
        CIRCUIT_CLOSED: "Messages are received: its circuit breaker has not opened.",
    }
    return [
        dg.AssetCheckSpec(name, asset=asset_key(Layer.RAW, topic), description=description, partitions_def=days)
        for name, description in described.items()
    ]


def landed_days(
    catalog: "Catalog", topic: str, landed: Mapping[date, int], source: str
) -> Iterator[dg.AssetMaterialization]:
    """A materialisation of RAW for each day that has grown."""
    shown = days_metadata(catalog.load_table(table(Layer.RAW, topic)), landed) if landed else {}
    return landed_events(topic, landed, source, shown)


def landed_events(
    topic: str, landed: Mapping[date, int], source: str, shown: Mapping[date, Mapping[str, Any]]
) -> Iterator[dg.AssetMaterialization]:
    """The same, with what is `shown` of each day."""
    for day, rows in sorted(landed.items()):
        yield dg.AssetMaterialization(
            asset_key(Layer.RAW, topic),
            partition=day.isoformat(),
            metadata={**shown[day], "rows_landed": rows, "landed_from": source},
        )


def queue_verdict(account: "QueueAccount") -> dict[str, Any]:
    """What `queue_closed` says of a day."""
    return {
        "asset_key": asset_key(Layer.RAW, account.topic),
        "check_name": QUEUE_CLOSED,
        "passed": account.closes,
        "description": account.problem,
        "metadata": account.numbers,
    }


def circuit_verdict(topic: str, breaker: Breaker) -> dict[str, Any]:
    """What `circuit_closed` says of a topic."""
    good, failed = (sum(getattr(batch, name) for batch in breaker.window) for name in ("good", "failed"))
    metadata: dict[str, Any] = {"circuit": breaker.circuit.value, "good_in_window": good, "failed_in_window": failed}
    if breaker.opened:
        metadata["opened"] = breaker.opened.isoformat(timespec="seconds")
    return {
        "asset_key": asset_key(Layer.RAW, topic),
        "check_name": CIRCUIT_CLOSED,
        "passed": breaker.circuit is Circuit.CLOSED,
        "description": breaker.reason,
        "metadata": metadata,
    }
