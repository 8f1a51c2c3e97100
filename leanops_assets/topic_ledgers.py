"""The ledgers of topics, whole or of one day: for the command line, the nightly check and the job in the UI."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from datetime import date
from typing import TYPE_CHECKING, Any

from leanops.contracts.manifest import Manifest
from leanops.errors import LedgerImpossible, TopicBusy
from leanops.names import Layer, table
from leanops_assets.layer_step import PATIENCE
from leanops_assets.raw.queue_ledger import QueueAccount, queue_accounts
from leanops_resources.state.lease import lease
from leanops_resources.state.store import StateStore

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyspark.sql import SparkSession

    from leanops.ledger.account import Account

_COLUMNS = (
    "received",
    "dead_letters",
    "in_flight",
    "pre_raw_percent",
    "raw",
    "standardized",
    "parse_errors",
    "duplicates",
    "superseded",
    "post_raw_percent",
    "curated",
    "open_errors",
    "curated_percent",
)


@dataclass(frozen=True)
class TopicLedger:
    """The accounts of a topic's queue and layers; or why there are none; and what is not in them yet."""

    topic: str
    queue: tuple[QueueAccount, ...] = ()
    accounts: "tuple[Account, ...]" = ()
    waiting: int = 0
    """Messages that have landed and are not built yet."""
    problem: str | None = None

    @property
    def closes(self) -> bool:
        is_clean = all(each.is_clean for each in self.accounts)
        return not self.problem and is_clean and all(each.closes for each in self.queue)

    def days(self) -> "Iterator[DayLine]":
        """A line for each day, from the queue to Curated."""
        came_in = {account.day: account for account in self.queue}
        for day in sorted({*came_in, *(account.day for account in self.accounts)}):
            own = {account.layer: account for account in self.accounts if account.day == day}
            standardized, curated = own.get(Layer.STANDARDIZED), own.get(Layer.CURATED)
            queue = came_in.get(day)
            numbers: dict[str, Any] = {}
            if queue:
                numbers |= {**queue.numbers, "pre_raw_percent": queue.accounted}
            if curated:
                numbers |= {**curated.numbers, "curated_percent": curated.accounted}
            if standardized:
                numbers |= {**standardized.numbers, "post_raw_percent": standardized.accounted}
            found = [finding for each in own.values() for finding in (*each.findings.first, *each.shared.first)]
            named = [(finding.message_id, finding.problem) for finding in found]
            yield DayLine(
                self.topic,
                day,
                all(each.is_clean for each in own.values()) and (queue is None or queue.closes),
                {name: numbers.get(name) for name in _COLUMNS},
                [("queue", queue.problem), *named] if queue and queue.problem else named,
            )


@dataclass(frozen=True)
class DayLine:
    """What a topic's ledger says of a day."""

    topic: str
    day: date
    closes: bool
    numbers: dict[str, Any] = field(default_factory=dict)
    findings: list[tuple[str, str]] = field(default_factory=list)


def topic_ledgers(
    sessions: "Callable[[], SparkSession]",
    catalog: "Catalog",
    store: StateStore,
    manifest: Manifest,
    holder: str,
    topics: Collection[str] | None = None,
    day: date | None = None,
) -> Iterator[TopicLedger]:
    """Draw up the ledgers of all topics, or of those named. Each topic is held against builds meanwhile."""
    from leanops.commits import checkpoint_of
    from leanops.ledger.draw_up import draw_up
    from leanops.raw.table import last_landing_seq
    from leanops.slices import Slice
    from leanops.tables import find_table

    for topic in manifest.topics:
        if topics is not None and topic.name not in topics:
            continue
        landed = last_landing_seq(find_table(catalog, table(Layer.RAW, topic.name)))
        queue = tuple(queue_accounts(catalog, store, topic.name, [day] if day else None))
        if topic.contract is None:
            yield TopicLedger(topic.name, queue, waiting=landed)
            continue
        try:
            with lease(store, f"build/{topic.name}", holder, PATIENCE):
                built = checkpoint_of(find_table(catalog, table(Layer.STANDARDIZED, topic.name)))
                accounts: list[Account] = []
                if built:
                    part = Slice.of_days([day]) if day else None
                    for layer in (Layer.STANDARDIZED, Layer.CURATED):
                        accounts += draw_up(sessions, catalog, topic.name, topic.contract, layer, part)
            yield TopicLedger(topic.name, queue, tuple(accounts), landed - int(built.get("upto", 0)))
        except (TopicBusy, LedgerImpossible) as error:
            yield TopicLedger(topic.name, queue, problem=str(error))
