"""What starts work by itself. All of it is on by default, and all of it is in the UI.

| sensor | every | what |
|---|---|---|
| tick | `LEANOPS_TICK_MINUTES` | requests a run of the main job for each publish day on which anything has landed |

The tick asks the tables' metadata alone what is pending; Spark is woken by the runs. What is pending stays pending
until it is built, so a lost cursor loses nothing. The same work is requested once an hour at most: its run may still
be in the queue.
"""

from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, date, datetime
from hashlib import sha256
from typing import TYPE_CHECKING

import dagster as dg

from leanops.contracts.manifest import Manifest
from leanops.names import Layer
from leanops.settings import Settings
from leanops_assets import jobs
from leanops_assets.specs import asset_key
from leanops_resources.dagster_resources import CatalogResource

if TYPE_CHECKING:
    from leanops.pending import Pending


def build_tick_sensor(manifest: Manifest, settings: Settings) -> dg.SensorDefinition:
    """The sensor that finds what has landed for the topics of `manifest`."""

    @dg.sensor(
        name="tick",
        job=jobs.tick,
        minimum_interval_seconds=settings.tick_minutes * 60,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Builds what has landed: one run per publish day, for the topics that have anything new there.",
    )
    def tick(context: dg.SensorEvaluationContext, iceberg: CatalogResource) -> list[dg.RunRequest] | dg.SkipReason:
        from leanops.pending import pending

        catalog = iceberg.load()
        asked = [(topic.name, topic.contract) for topic in manifest.topics if topic.contract]
        found, damaged = [], []
        for topic, contract in asked:
            try:
                found.append(pending(catalog, topic, contract))
            except Exception as error:  # noqa: BLE001 - whatever is wrong with one topic, the others go on
                context.log.warning("%s is left out: %s: %s", topic, type(error).__name__, error)
                damaged.append(topic)
        requests = run_requests([each for each in found if each], settings.first_day, datetime.now(UTC))
        left_out = f" Left out, because their tables cannot be read: {', '.join(damaged)}." if damaged else ""
        return requests or dg.SkipReason(
            f"Nothing new in RAW for any of {len(asked)} topics with a contract.{left_out}"
        )

    return tick


def run_requests(found: "Iterable[Pending]", first_day: date, now: datetime) -> list[dg.RunRequest]:
    """One run per day of the platform, over the layers of the topics that are pending on it."""
    by_day: dict[date, list[Pending]] = defaultdict(list)
    for each in found:
        for day in each.days:
            by_day[day].append(each)
    return [
        dg.RunRequest(
            run_key=_run_key(day, topics, now),
            partition_key=day.isoformat(),
            asset_selection=[asset_key(layer, each.topic) for each in topics for layer in Layer],
        )
        for day, topics in sorted(by_day.items())
        if day >= first_day
    ]


def _run_key(day: date, topics: "list[Pending]", now: datetime) -> str:
    """The same for the same work within an hour: what failed is asked for again in the next."""
    work = "\n".join(f"{each.topic} {each.raw_snapshot}" for each in topics)
    return f"{day} {now:%Y-%m-%dT%H} {sha256(work.encode()).hexdigest()[:16]}"
