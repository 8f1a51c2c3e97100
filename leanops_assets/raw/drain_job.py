"""The job `drain` and its sensor: what waits in the sources of all topics is brought to RAW by itself.

One step drains all topics that have anything waiting: a minute's trickle of 700 topics is one process and one buffer.
It tells Dagster of each topic's days as if the topic's own step had done it. A topic that failed is named, and fails
the run after all others are done.
"""

from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import dagster as dg
from dagster._core.storage.dagster_run import NOT_FINISHED_STATUSES
from pydantic import Field

from leanops.concurrency import Concurrency
from leanops.errors import DrainIncomplete, Problem
from leanops.ingestion.breaker import Breaker, Circuit
from leanops.names import Layer, table
from leanops.settings import Settings
from leanops_assets.metadata import markdown_table, shown_days
from leanops_assets.raw.dead_letters_job import letters_event
from leanops_assets.raw.report import circuit_verdict, landed_events, queue_verdict
from leanops_resources.dagster_resources import CatalogResource, IntakeResource, StateStoreResource
from leanops_resources.state.store import StateStore

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

    from leanops.batch.topics import Outcome
    from leanops_assets.raw.drain import Drained
    from leanops_assets.raw.queue_ledger import QueueBooks

_TOLD_TOGETHER = 32
"""Of so many topics the books are read at once. They are read before RAW is, and others may be at work."""
COLUMNS = ("topic", "landed", "days", "dead_letters", "given_back", "not_deleted", "commits", "source", "said")
DRAINED = "drained"
_Context = dg.AssetExecutionContext | dg.OpExecutionContext


class DrainOf(dg.Config):
    """What is drained. Without anything: all topics that have something waiting."""

    topics: list[str] = Field(default=[], description="Only these topics.")


def build_drain_job(settings: Settings) -> dg.JobDefinition:
    """The job of all topics' sources."""

    @dg.op(name="drain_sources", description="Receives what waits, brings it to RAW, and lets the sources forget it.")
    def drain_sources(
        context: dg.OpExecutionContext,
        config: DrainOf,
        iceberg: CatalogResource,
        state: StateStoreResource,
        intake: IntakeResource,
    ) -> None:
        topics = config.topics or intake.sources.topics()
        catalog, store, holder = iceberg.load(), state.store, f"run {context.run_id}"
        drained = drain_topics(catalog, store, intake, settings.first_day, topics, holder)
        if settings.firehose:
            from leanops_assets.raw.firehose import take_over

            drained += take_over(catalog, store, iceberg.catalog.raw_topics(), holder)
        tell_all(context, catalog, store, drained)
        if any(each.dead for each in drained):
            context.log_event(letters_event(catalog))
        rows = [drained_row(each) for each in drained]
        shown = markdown_table(COLUMNS, ([row[name] for name in COLUMNS] for row in rows), signs=200)
        said: dict[str, Any] = {"topics": len(rows), DRAINED: dg.MetadataValue.json(rows), "table": shown}
        try:
            require_drained(drained)
        except DrainIncomplete as error:
            raise dg.Failure(str(error), metadata=said, allow_retries=False) from None
        context.add_output_metadata(said)

    @dg.job(name="drain", description="Brings what waits in queues or in the landing folder to RAW, topic by topic.")
    def drain_job() -> None:
        drain_sources()

    return drain_job


def build_drain_sensor(job: dg.JobDefinition, settings: Settings) -> dg.SensorDefinition:
    """The sensor that looks whether anything waits."""

    @dg.sensor(
        name="drain",
        job=job,
        minimum_interval_seconds=settings.drain_seconds,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Drains the sources when anything waits there.",
    )
    def drain_sensor(
        context: dg.SensorEvaluationContext, state: StateStoreResource, intake: IntakeResource
    ) -> dg.RunRequest | dg.SkipReason:
        if context.instance.get_runs(dg.RunsFilter(job_name=job.name, statuses=NOT_FINISHED_STATUSES), limit=1):
            return dg.SkipReason("A drain is under way.")
        now, breakers = datetime.now(UTC), state.store.breakers()
        is_open = {topic for topic, breaker in breakers.items() if breaker.at(now).circuit is Circuit.OPEN}
        waiting = intake.sources.topics()
        # What a Firehose has brought is found out by the drain itself.
        if settings.firehose or set(waiting) - is_open:
            return dg.RunRequest()
        held = f" Held back by their circuit: {', '.join(sorted(is_open & set(waiting)))}." if waiting else ""
        return dg.SkipReason(f"Nothing waits in {intake.sources.name}.{held}")

    return drain_sensor


def drain_topics(
    catalog: "Catalog",
    store: StateStore,
    intake: IntakeResource,
    first_day: date,
    topics: Iterable[str],
    holder: str,
    patience: timedelta = timedelta(0),
) -> "list[Drained]":
    """Drain the sources of these topics."""
    from leanops_assets.raw.drain import Intake, drain

    outside = Intake(catalog, store, intake.archive, first_day, patience=patience)
    return drain(outside, [intake.sources.of(topic) for topic in topics], holder)


def tell_all(context: _Context, catalog: "Catalog", store: StateStore, drained: "Sequence[Drained]") -> None:
    """Record what came in of many topics. What cannot be told of one is its problem, and the others are told of."""
    from leanops_assets.raw.queue_ledger import QueueBooks

    concurrency = Concurrency()
    for at in range(0, len(drained), _TOLD_TOGETHER):
        group = drained[at : at + _TOLD_TOGETHER]
        try:
            books = QueueBooks.of(catalog, store, [each.topic for each in group])
            breakers = store.breakers()
        except Exception as error:  # noqa: BLE001 - it is told of each topic
            for each in group:
                each.problem = each.problem or f"{type(error).__name__}: {error}"
            continue
        tables = concurrency.map(partial(_raw_table, catalog), group)
        for each, raw in zip(group, tables, strict=True):
            try:
                _tell(context, catalog, store, each, books, breakers.get(each.topic, Breaker()), raw)
            except Exception as error:  # noqa: BLE001 - whatever is wrong with one topic, the others are told of
                each.problem = each.problem or f"{type(error).__name__}: {error}"


def tell(
    context: _Context, catalog: "Catalog", store: StateStore, drained: "Drained", leave_out: Collection[date] = ()
) -> None:
    """Record what came in on the topic's own asset, day by day, but for days that the step itself tells of."""
    from leanops_assets.raw.queue_ledger import QueueBooks

    books = QueueBooks.of(catalog, store, [drained.topic])
    _tell(
        context, catalog, store, drained, books, store.breaker(drained.topic), _raw_table(catalog, drained), leave_out
    )


def _raw_table(catalog: "Catalog", drained: "Drained") -> "Outcome[Table | None]":
    """The topic's RAW table with its files listed, where anything came in; or why it cannot be read."""
    from leanops.table_files import table_files
    from leanops.tables import find_table

    try:
        raw = find_table(catalog, table(Layer.RAW, drained.topic)) if drained.days else None
        if raw:
            table_files(raw)
    except Exception as error:  # noqa: BLE001 - it is told of its topic
        return error
    return raw


def _tell(
    context: _Context,
    catalog: "Catalog",
    store: StateStore,
    drained: "Drained",
    books: "QueueBooks",
    breaker: Breaker,
    read: "Outcome[Table | None]",
    leave_out: Collection[date] = (),
) -> None:
    from leanops.batch.topics import built_or_raised
    from leanops.inventory import table_days
    from leanops_assets.raw.queue_ledger import queue_accounts

    topic, days = drained.topic, [day for day in drained.days if day not in leave_out]
    landed = {day: drained.landed[day] for day in days if drained.landed[day]}
    raw = built_or_raised(read) if days else None
    found = table_days(raw, days) if raw else {}
    for event in landed_events(topic, landed, drained.source, shown_days(found, raw) if raw else {}):
        context.log_event(event)
    circuit = circuit_verdict(topic, breaker)
    accounts = books.accounts(topic, {day: held.rows for day, held in found.items() if held.rows})
    accounts = [account for account in accounts if account.day in days]
    if not all(account.closes for account in accounts):
        # Somebody may have brought in more since the books were read.
        accounts = queue_accounts(catalog, store, topic, days)
    verdicts = [(account.day, queue_verdict(account)) for account in accounts]
    verdicts += [(day, circuit) for day in days or ([] if leave_out else [datetime.now(UTC).date()])]
    for day, verdict in verdicts:
        evaluation = dg.AssetCheckEvaluation(**verdict, partition=day.isoformat())
        context.log_event(evaluation)  # type: ignore[arg-type]  # Dagster's type forgets it
    if said := drained.problem or drained.skipped:
        context.log.warning("%s: %s", topic, said)


def drained_row(drained: "Drained") -> dict[str, Any]:
    """What a drain has done with a topic, by the names that are shown."""
    return {
        "topic": drained.topic,
        "landed": drained.landed.total(),
        "days": len(drained.landed),
        "dead_letters": drained.dead.total(),
        "given_back": drained.given_back,
        "not_deleted": drained.not_deleted,
        "commits": drained.commits,
        "source": drained.source,
        "said": drained.problem or drained.skipped or "",
        "failed": drained.problem is not None,
    }


def require_drained(drained: "Sequence[Drained]") -> None:
    """Fail if any topic could not be drained to its end."""
    if problems := [Problem(each.topic, each.problem) for each in drained if each.problem]:
        raise DrainIncomplete(
            "The drain", problems, "What had been received and is not in RAW comes again with the next drain."
        )
