"""The job `rehearse`: what a contract that is not active would do, for people who are in the UI."""

from typing import TYPE_CHECKING

import dagster as dg
from pydantic import Field

from leanops.contracts.manifest import Manifest
from leanops.contracts.model import Contract
from leanops.contracts.reading import read_contract
from leanops.errors import RehearsalImpossible
from leanops_assets.metadata import markdown_table
from leanops_resources.dagster_resources import CatalogResource, SchemaStoreResource, SparkConnectResource
from leanops_resources.schema_store import SchemaStore, Stage

if TYPE_CHECKING:
    from leanops.curated.rehearsal import Rehearsal


class RehearsalOf(dg.Config):
    """What is rehearsed, and on how much."""

    topic: str
    days: int = Field(default=7, ge=1, description="How many of the last publish days that hold rows.")
    contract: str | None = Field(
        default=None, description="The contract, as JSON. Without it: the one under pending/, else under failed/."
    )


def build_rehearse_job(manifest: Manifest) -> dg.JobDefinition:
    """A job that tells in the metadata of its one step what a contract would do. `manifest` says which are active."""

    @dg.op(name="rehearsal", description="Judges the last days of Standardized by the contract, and writes nothing.")
    def rehearsal(
        context: dg.OpExecutionContext,
        config: RehearsalOf,
        iceberg: CatalogResource,
        spark: SparkConnectResource,
        contracts: SchemaStoreResource,
    ) -> None:
        from leanops.curated.rehearsal import rehearse

        contract = _contract(config, contracts.store)
        known = manifest.by_name.get(config.topic)
        active = known.contract if known else None
        found = rehearse(spark.session(), iceberg.load(), config.topic, contract, active, config.days)
        context.add_output_metadata(_shown(found))
        for sentence in found.sentences:
            context.log.info("%s", sentence)

    @dg.job(name="rehearse", description="What a contract that is not active would do with the last days' rows.")
    def rehearse_job() -> None:
        rehearsal()

    return rehearse_job


def _contract(config: RehearsalOf, store: SchemaStore) -> Contract:
    """The contract that was pasted; else the newest upload, or the last one that was refused."""
    if config.contract is not None:
        return read_contract(config.contract.encode(), config.topic, "The contract of this run")
    uploads = [upload for upload in store.uploads() if upload.topic == config.topic]
    if uploads:
        where = store.where(config.topic, Stage.PENDING, uploads[-1].name)
        return read_contract(uploads[-1].content, config.topic, where)
    refused = store.read(config.topic, Stage.FAILED)
    if refused is None:
        raise RehearsalImpossible(
            f"There is no contract of {config.topic} under pending/ or failed/.",
            "Upload one, or paste it into the run's configuration as `contract`.",
        )
    return read_contract(refused, config.topic, store.where(config.topic, Stage.FAILED))


def _shown(found: "Rehearsal") -> dict[str, int | dg.MarkdownMetadataValue]:
    failures = (
        (each.column, each.rule, each.rows, found.percent(each.rows), ", ".join(map(str, each.samples)))
        for each in found.failures
    )
    newly = ((row.message_id, "; ".join(map(str, row.broken_rules))) for row in found.newly_failing_samples)
    return {
        "summary": markdown_table(("what it would do",), ([each] for each in found.sentences), signs=400),
        "rows": found.rows,
        "would_pass": found.passing,
        "would_fail": found.failing,
        "pass_today_and_would_fail": found.newly_failing,
        "failures": markdown_table(("column", "rule", "rows", "%", "samples"), failures, signs=400),
        "some_that_pass_today_and_would_fail": markdown_table(("message_id", "broken rules"), newly, signs=400),
    }
