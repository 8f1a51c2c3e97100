"""The ledgers of topics, whole or of one day: for the command line, the nightly check and the job in the UI."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from functools import reduce
from typing import TYPE_CHECKING, Any

from leanops.backoff import Failures
from leanops.contracts.manifest import Manifest
from leanops.contracts.model import Contract
from leanops.errors import LeanOpsError
from leanops.names import SOURCE, Layer, table
from leanops_assets.gates import closed_gate
from leanops_assets.raw.queue_ledger import QueueAccount, queue_accounts
from leanops_assets.run_batch import WAIT
from leanops_resources.state.lease import leases
from leanops_resources.state.store import StateStore

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyspark.sql import SparkSession

    from leanops.batch.isolation import Jobs
    from leanops.batch.topics import Outcome
    from leanops.ledger.account import Account
    from leanops.ledger.draw_up import Accounts
    from leanops.ledger.pending import PendingRows

_HELD_AT_ONCE = 100
"""So many topics are held and asked about at once: builds of others go on meanwhile."""

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
    "pending",
    "pending_since",
)


@dataclass(frozen=True)
class TopicLedger:
    """The accounts of a topic's queue and layers; or why there are none."""

    topic: str
    queue: tuple[QueueAccount, ...] = ()
    accounts: "tuple[Account, ...]" = ()
    waits_for: str | None = None
    """Why nothing of it is built at present, where that is known."""
    problem: str | None = None

    @property
    def pending(self) -> "PendingRows":
        """The rows that the layers have not built yet; none is counted twice."""
        from leanops.ledger.pending import PendingRows

        return reduce(PendingRows.and_also, (each.pending for each in self.accounts), PendingRows())

    @property
    def pending_text(self) -> str:
        """The same for people, and why."""
        return f"{self.pending}: {self.waits_for}" if self.waits_for else f"{self.pending}."

    @property
    def adds_up(self) -> bool:
        """Whether no row is wrong, be it built or pending."""
        is_clean = all(each.is_clean for each in self.accounts)
        return not self.problem and is_clean and all(each.closes for each in self.queue)

    @property
    def closes(self) -> bool:
        """Whether it adds up, and all of it is built."""
        return self.adds_up and not self.pending.rows

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
                numbers |= {**curated.numbers, "curated_percent": curated.numbers["accounted_percent"]}
            if standardized:
                numbers |= {**standardized.numbers, "post_raw_percent": standardized.numbers["accounted_percent"]}
            waiting = TopicLedger(self.topic, accounts=tuple(own.values())).pending
            numbers |= {"pending": waiting.rows, "pending_since": waiting.since}
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
    adds_up: bool
    numbers: dict[str, Any] = field(default_factory=dict)
    findings: list[tuple[str, str]] = field(default_factory=list)

    @property
    def closes(self) -> bool:
        """Whether no row is wrong, and none is pending."""
        return self.adds_up and not self.numbers.get("pending")

    @property
    def state(self) -> str:
        """The same in a word."""
        return "yes" if self.closes else "pending" if self.adds_up else "NO"


def topic_ledgers(
    sessions: "Callable[[], SparkSession]",
    catalog: "Catalog",
    store: StateStore,
    manifest: Manifest,
    holder: str,
    topics: Collection[str] | None = None,
    day: date | None = None,
) -> Iterator[TopicLedger]:
    """Draw up the ledgers of all topics, or of those named, some at a time. These are held against builds meanwhile."""
    from leanops.batch.isolation import Jobs

    failures = store.failures()
    wanted = [topic for topic in manifest.topics if topics is None or topic.name in topics]
    for at in range(0, len(wanted), _HELD_AT_ONCE):
        batch = wanted[at : at + _HELD_AT_ONCE]
        queues = {each.name: tuple(queue_accounts(catalog, store, each.name, [day] if day else None)) for each in batch}
        contracts = {each.name: each.contract for each in batch if each.contract}
        drawn = _drawn_up(Jobs(sessions), catalog, store, contracts, holder, day)
        for topic in batch:
            queue, found = queues[topic.name], drawn.get(topic.name)
            if found is None:
                why = "its contract cannot be used." if topic.contract_problem else "it waits for a contract."
                yield TopicLedger(topic.name, queue, _without_contract(catalog, topic.name, day), why)
            elif isinstance(found, Exception):
                yield TopicLedger(topic.name, queue, problem=_problem(found))
            else:
                why_not = closed_gate(topic.name, store.gate(topic.name)) or _failed(failures.get(topic.name))
                yield TopicLedger(topic.name, queue, tuple(found), why_not)


def _drawn_up(
    jobs: "Jobs",
    catalog: "Catalog",
    store: StateStore,
    contracts: Mapping[str, Contract],
    holder: str,
    day: date | None,
) -> "dict[str, Outcome[list[Account]]]":
    """The accounts of topics' layers. Topics that somebody else builds are waited for when the others are done."""
    from leanops.batch.topics import TopicTables
    from leanops.ledger.draw_up import LedgerRequest, draw_up
    from leanops.slices import Slice

    done: dict[str, Outcome[list[Account]]] = {}
    part, todo = Slice.of_days([day]) if day else None, [*contracts]
    for wait in (timedelta(0), WAIT):
        if not todo:
            break
        names = {f"build/{topic}": topic for topic in todo}
        with leases(store, names, holder, wait) as held:
            busy = {names[name]: error for name, error in held.busy.items()}
            tables = [TopicTables(catalog, topic) for topic in todo if topic not in busy]
            requests = [LedgerRequest(each, contracts[each.topic], layer, part) for each in tables for layer in SOURCE]
            drawn = draw_up(jobs, catalog, requests)
        done |= busy | {each.topic: _both_layers(drawn, each.topic) for each in tables}
        todo = [*busy]
    return done


def _both_layers(drawn: "Accounts", topic: str) -> "Outcome[list[Account]]":
    """The accounts of a topic's layers, or what is wrong with one of them."""
    accounts: list[Account] = []
    for layer in SOURCE:
        found = drawn[topic, layer]
        if isinstance(found, Exception):
            return found
        accounts += found
    return accounts


def _problem(error: Exception) -> str:
    """What Spark or a file system says goes on for pages: its first line has the cause."""
    if isinstance(error, LeanOpsError):
        return str(error)
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"


def _failed(failures: Failures | None) -> str | None:
    if failures is None:
        return None
    return "its last build failed." if failures.count == 1 else f"its last {failures.count} builds failed."


def _without_contract(catalog: "Catalog", topic: str, day: date | None) -> "tuple[Account, ...]":
    """What RAW holds that no contract has had built, by day."""
    from leanops.ledger.account import not_built
    from leanops.ledger.pending import built_upto, pending_rows
    from leanops.tables import find_table

    raw, held = (find_table(catalog, table(layer, topic)) for layer in (Layer.RAW, Layer.STANDARDIZED))
    upto = built_upto(held, Layer.STANDARDIZED, None)
    waiting = pending_rows(raw, upto) if raw else {}
    accounts = not_built(topic, Layer.STANDARDIZED, upto, waiting)
    return tuple(account for account in accounts if day is None or account.day == day)
