"""The job `trace`: the story of a message or a record, for people who are in the UI."""

import dagster as dg
from pydantic import Field

from leanops.contracts.manifest import Manifest
from leanops_assets.metadata import markdown_table
from leanops_resources.dagster_resources import CatalogResource, SparkConnectResource


class TraceOf(dg.Config):
    """What is looked for."""

    id: str = Field(description="A message_id, an idempotency_key or the id of a dead letter.")
    topics: list[str] = Field(default=[], description="Only in these topics.")


def build_trace_job(manifest: Manifest) -> dg.JobDefinition:
    """A job that tells the story in the metadata of its one step."""

    @dg.op(name="story", description="Tells when it landed, what became of it, where it stands, what would heal it.")
    def story(
        context: dg.OpExecutionContext, config: TraceOf, iceberg: CatalogResource, spark: SparkConnectResource
    ) -> None:
        from leanops.ledger.trace import trace

        events = list(trace(spark.session(), iceberg.load(), manifest.topics, config.id, config.topics))
        rows = ([event.topic, event.what] for event in events)
        table = markdown_table(("topic", "what happened"), rows, signs=400)
        context.add_output_metadata({"found": bool(events), "story": table})
        for event in events:
            context.log.info("%s: %s", event.topic, event.what)

    @dg.job(name="trace", description="The whole story of a message_id, an idempotency_key or a dead letter.")
    def trace_job() -> None:
        story()

    return trace_job
