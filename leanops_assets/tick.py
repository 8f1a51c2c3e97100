"""What a tick has to do, and doing it once: the sensor requests these runs, `leanops tick` runs them at once."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from leanops.backoff import Failures
from leanops.concurrency import Concurrency
from leanops.contracts.manifest import Manifest, Topic
from leanops.home import Home
from leanops.names import Layer
from leanops.progress import Advance, unseen
from leanops.settings import Settings
from leanops_assets.gates import closed_gate
from leanops_assets.packing import planned_runs
from leanops_resources.state.store import StateStore

if TYPE_CHECKING:
    from leanops.pending import Pending
    from leanops_resources.catalog import IcebergCatalog
    from leanops_resources.findings import Finding


@dataclass(frozen=True)
class Work:
    """What is pending, and why topics with something new are left out."""

    pending: "list[Pending]" = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    damaged: dict[str, str] = field(default_factory=dict)
    failed_before: frozenset[str] = frozenset()
    """The topics whose last build failed."""


def find_work(
    catalog: "IcebergCatalog",
    store: StateStore,
    manifest: Manifest,
    settings: Settings,
    topics: Collection[str] | None = None,
) -> Work:
    """Ask the tables' metadata of every topic, or of those named. What is wrong with one leaves the others alone.

    A topic that has failed is due when its time has come, or when it is named.
    """
    from leanops_resources.findings import findings

    gates, failures = store.gates(), store.failures()
    work = Work(failed_before=frozenset(failures))
    asked = [topic for topic in manifest.topics if topics is None or topic.name in topics]
    with findings(Home(settings.home), catalog) as found_of:

        def find(topic: Topic) -> "Finding | Exception":
            try:
                return found_of.of(topic)
            except Exception as error:  # noqa: BLE001 - whatever is wrong with one topic, the others go on
                return error

        for topic, found in zip(asked, Concurrency().map(find, asked), strict=True):
            if isinstance(found, Exception):
                work.damaged[topic.name] = f"{type(found).__name__}: {found}"
            elif found.buffered:
                why = "its contract cannot be used" if topic.contract_problem else "no active contract"
                work.skipped[topic.name] = f"{why}: {found.buffered:,} messages are kept in RAW until there is one."
            elif found.pending:
                reason = closed_gate(topic.name, gates.get(topic.name)) or _not_due(
                    failures.get(topic.name) if topics is None else None, settings, datetime.now(UTC)
                )
                if reason:
                    work.skipped[topic.name] = reason
                else:
                    work.pending.append(found.pending)
    return work


def _not_due(failures: Failures | None, settings: Settings, now: datetime) -> str | None:
    """Why a topic that has failed is left alone for now."""
    due = failures.tried_again(timedelta(minutes=settings.tick_minutes)) if failures else now
    if failures is None or due <= now:
        return None
    times = "once" if failures.count == 1 else f"{failures.count} times in a row"
    return f"it failed {times}, and is tried again by the first tick after {due:%Y-%m-%d %H:%M} UTC."


@dataclass
class Ticked:
    """What a tick has done: what was built of each topic and layer, what was skipped and why, and what failed."""

    built: dict[tuple[str, Layer], Mapping[str, Any]] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


def tick_once(settings: Settings, topics: Collection[str] | None = None, advance: Advance = unseen) -> Ticked:
    """Do at once, in this process, what the sensor would request."""
    from leanops_resources.catalog import LocalCatalog
    from leanops_resources.known_topics import present_manifest
    from leanops_resources.schema_store import schema_store
    from leanops_resources.state.stores import state_store

    home = Home(settings.home).prepare()
    catalog = LocalCatalog(home)
    manifest = present_manifest(home, schema_store(settings.schemas), catalog)
    work = find_work(catalog, state_store(settings), manifest, settings, topics)
    ticked = Ticked(skipped=dict(work.skipped), failed=dict(work.damaged))
    if runs := planned_runs(work.pending, settings.first_day, settings.topics_per_run, work.failed_before):
        from leanops_resources.spark.server import wake

        wake(settings)
        # Dagster alone takes longer to load than to find out that there is nothing to do.
        from leanops_assets.tick_runs import run_at_once

        run_at_once(home, catalog, runs, ticked, advance)
    return ticked
