"""Dead letters in the UI: the asset of their table, and the jobs `dead_letters` and `dlq_retention`.

The one lists, replays or discards letters. It does what `leanops dlq` does, but for a mended body, which only the
command line takes. What it is asked for is the configuration of its one step, and what became of each letter is in the
step's metadata. The other removes bodies that nobody needs any more.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

import dagster as dg
from pydantic import Field

from leanops.errors import LeanOpsError
from leanops.names import CATALOG, RAW_DB, Layer, asset_group
from leanops.settings import Settings
from leanops_assets.metadata import markdown_table
from leanops_assets.raw.report import landed_days, queue_verdict
from leanops_resources.dagster_resources import CatalogResource, IntakeResource, StateStoreResource

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from leanops_assets.raw.drain import Intake
    from leanops_assets.raw.replay import Replayed

_KEY = dg.AssetKey([asset_group(Layer.RAW), "dlq_errors"])
_LETTERS_SHOWN = 500
_LISTED = ("dead_letter_id", "topic_name", "day", "fault", "reason", "receives", "message_id", "body_bytes", "received")


class LettersOf(dg.Config):
    """What is done, and with which letters. Without `ids`: with all open ones of `topics`, or of all topics."""

    action: Literal["list", "replay", "discard"] = "list"
    topics: list[str] = Field(default=[], description="Only letters of these topics.")
    ids: list[str] = Field(default=[], description="Only these: ids, or as much of their beginnings as is unambiguous.")
    reason: str | None = Field(default=None, description="Why they are discarded. That must be said.")


def build_dead_letters_asset() -> dg.AssetSpec:
    """The table of all topics' dead letters. Drains fill it, so that it is no step of its own."""
    return dg.AssetSpec(
        key=_KEY,
        group_name=asset_group(Layer.RAW),
        kinds={"iceberg"},
        description="Messages of all topics that never reached RAW: why, where their body is, what became of them.",
        metadata={
            "dagster/table_name": f"{CATALOG}.{RAW_DB}.dlq_errors",
            "dagster/code_references": dg.CodeReferencesMetadataValue(
                code_references=[dg.LocalFileCodeReference(file_path=__file__)]
            ),
        },
    )


def build_dead_letters_job(settings: Settings) -> dg.JobDefinition:
    """The job of all topics' dead letters."""

    @dg.op(name="letters", description="Lists dead letters, replays them into RAW, or discards them.")
    def letters(
        context: dg.OpExecutionContext,
        config: LettersOf,
        iceberg: CatalogResource,
        state: StateStoreResource,
        intake: IntakeResource,
    ) -> None:
        from leanops_assets.raw.drain import Intake

        outside = Intake(iceberg.load(), state.store, intake.archive, settings.first_day)
        if config.action == "list":
            context.add_output_metadata(_listed(outside, config))
        else:
            _work(context, outside, config)

    @dg.job(name="dead_letters", description="Lists, replays or discards messages that never reached RAW.")
    def dead_letters_job() -> None:
        letters()

    return dead_letters_job


def build_dlq_retention_job() -> dg.JobDefinition:
    """The job that removes bodies that nobody needs any more."""

    @dg.op(name="expire", description="Removes archived bodies after 14 days, but for those of open letters.")
    def expire(context: dg.OpExecutionContext, iceberg: CatalogResource, intake: IntakeResource) -> None:
        from leanops.raw.dead_letters import find_dead_letters

        # A letter that is written down from here on has a body that is too young to be removed.
        still_open = find_dead_letters(iceberg.load(), only_open=True, columns=("body_archive", "received"))
        removed = intake.archive.expire(keep=[letter["body_archive"] for letter in still_open])
        context.add_output_metadata({"removed": removed, "open_letters": len(still_open)})

    @dg.job(name="dlq_retention", description="Removes the bodies of closed dead letters after 14 days.")
    def dlq_retention_job() -> None:
        expire()

    return dlq_retention_job


def _wanted(intake: "Intake", config: LettersOf) -> dict[str, list[str]]:
    """The ids of the letters that are meant, by topic."""
    from leanops.raw.dead_letter_names import named_letters, open_letters

    if config.ids:
        return named_letters(intake.catalog, config.ids, config.topics)
    return open_letters(intake.catalog, config.topics)


def _listed(intake: "Intake", config: LettersOf) -> dict[str, Any]:
    from leanops.raw.dead_letters import find_dead_letters

    wanted = {each for ids in _wanted(intake, config).values() for each in ids}
    found = [row for row in find_dead_letters(intake.catalog, columns=_LISTED) if row["dead_letter_id"] in wanted]
    rows = ([row[name] for name in _LISTED] for row in found[:_LETTERS_SHOWN])
    return {"letters": len(found), "table": markdown_table(_LISTED, rows, signs=200)}


def _work(context: dg.OpExecutionContext, intake: "Intake", config: LettersOf) -> None:
    """Replay or discard, topic by topic. What goes wrong with one topic leaves the others alone."""
    if config.action == "discard" and not (config.reason or "").strip():
        raise dg.Failure("Nothing was discarded: `reason` does not say why.", allow_retries=False)
    rows: list[tuple[str, str, str]] = []
    problems: list[str] = []
    for topic, ids in _wanted(intake, config).items():
        try:
            became, is_complete = _done(context, intake, config, topic, ids)
        except LeanOpsError as error:
            problems.append(f"{topic}: {error}")
            continue
        rows += [(topic, each, what) for each, what in became]
        if not is_complete:
            problems.append(f"{topic}: some could not be replayed.")
    shown = markdown_table(("topic", "dead letter", "what became of it"), islice(rows, _LETTERS_SHOWN), signs=400)
    said: dict[str, Any] = {"letters": len(rows), "table": shown}
    context.log.info("%s: %d dead letters looked at.", config.action, len(rows))
    context.log_event(letters_event(intake.catalog))
    if problems:
        raise dg.Failure("\n".join(problems), metadata=said, allow_retries=False)
    context.add_output_metadata(said)


def _done(
    context: dg.OpExecutionContext, intake: "Intake", config: LettersOf, topic: str, ids: list[str]
) -> tuple[Iterator[tuple[str, str]], bool]:
    """What became of each letter of a topic, and whether that is what was asked for."""
    from leanops_assets.raw.replay import discard, replay

    by = f"run {context.run_id}"
    if config.action == "discard":
        return discard(intake, topic, ids, str(config.reason), by).letters, True
    replayed = replay(intake, topic, ids, by=by)
    _tell(context, intake, replayed)
    return replayed.letters, replayed.is_complete


def _tell(context: dg.OpExecutionContext, intake: "Intake", replayed: "Replayed") -> None:
    """Record the days of RAW that have grown, and the accounts of all days that the replay touched."""
    from leanops_assets.raw.queue_ledger import queue_accounts
    from leanops_assets.raw.replay import SOURCE

    for event in landed_days(intake.catalog, replayed.topic, replayed.landed, SOURCE):
        context.log_event(event)
    days = {*replayed.landed, *replayed.counted_on}
    for account in queue_accounts(intake.catalog, intake.store, replayed.topic, days):
        evaluation = dg.AssetCheckEvaluation(**queue_verdict(account), partition=account.day.isoformat())
        context.log_event(evaluation)  # type: ignore[arg-type]  # Dagster's type forgets it


def letters_event(catalog: "Catalog") -> dg.AssetMaterialization:
    """What the table of dead letters holds now, for its own asset."""
    from leanops.raw.dead_letters import find_dead_letters

    rows = find_dead_letters(catalog, columns=("topic_name", "outcome", "received"))
    still_open = Counter(row["topic_name"] for row in rows if row["outcome"] is None)
    return dg.AssetMaterialization(
        _KEY,
        metadata={
            "dagster/row_count": len(rows),
            "open": still_open.total(),
            "open_by_topic": markdown_table(("topic", "open"), still_open.most_common(_LETTERS_SHOWN)),
        },
    )
