"""What Dagster is told of a replay: the days of RAW that have grown, and the accounts of all days that it touched."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import dagster as dg

from leanops_assets.raw.report import landed_days, queue_verdict

if TYPE_CHECKING:
    from leanops_assets.raw.drain import Intake
    from leanops_assets.raw.replay import Replayed

Event = dg.AssetMaterialization | dg.AssetCheckEvaluation


def replay_events(intake: "Intake", replayed: "Replayed") -> Iterator[Event]:
    """The events of a topic's replay."""
    from leanops_assets.raw.queue_ledger import queue_accounts

    yield from landed_days(intake.catalog, replayed.topic, replayed.landed, "a replay of dead letters")
    days = {*replayed.landed, *replayed.counted_on}
    for account in queue_accounts(intake.catalog, intake.store, replayed.topic, days):
        yield dg.AssetCheckEvaluation(**queue_verdict(account), partition=account.day.isoformat())
