"""The job `catch_up`: logs once what was there before the logs were, of topics that are older than they."""

import dagster as dg

from leanops.contracts.manifest import Manifest
from leanops_assets.metadata import markdown_table
from leanops_resources.dagster_resources import CatalogResource


def build_catch_up_job(manifest: Manifest) -> dg.JobDefinition:
    """A job that logs existing columns as drift and active contracts as versions. To run it again adds nothing."""

    @dg.op(name="log_what_exists", description="Logs the columns and contracts that have no entry yet.")
    def log_what_exists(context: dg.OpExecutionContext, iceberg: CatalogResource) -> None:
        from leanops.contracts.diff import diff
        from leanops.ops.drift_log import log_existing
        from leanops.ops.schema_versions import log_version

        catalog, logged = iceberg.load(), []
        for topic in manifest.topics:
            if contract := topic.contract:
                columns = log_existing(catalog, topic.name, contract)
                is_new = log_version(catalog, topic.name, contract, diff(None, contract), None)
                logged.append((topic.name, columns, contract.version if is_new else ""))
        context.add_output_metadata({"logged": markdown_table(("topic", "columns", "contract version"), logged)})

    @dg.job(name="catch_up", description="Logs the existing columns and contracts of topics that predate the logs.")
    def catch_up() -> None:
        log_what_exists()

    return catch_up
