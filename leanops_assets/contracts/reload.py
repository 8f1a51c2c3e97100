"""The sensor `graph`: when contracts or topics have changed, the code location is reloaded, to have them in it."""

import dagster as dg

from leanops.contracts.manifest import Manifest
from leanops.home import Home
from leanops.settings import Settings
from leanops_resources.dagster_resources import CatalogResource, SchemaStoreResource

_LOOK_EVERY_SECONDS = 30


def build_graph_sensor(manifest: Manifest, settings: Settings) -> dg.SensorDefinition:
    """The sensor that notices that the graph was built from another manifest than there is now."""

    @dg.sensor(
        name="graph",
        minimum_interval_seconds=_LOOK_EVERY_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Reloads the code location when a contract was activated or a new topic has landed.",
    )
    def graph(contracts: SchemaStoreResource, iceberg: CatalogResource) -> dg.SkipReason:
        from leanops_resources.known_topics import compile_manifest

        now = compile_manifest(Home(settings.home), contracts.store, iceberg.catalog)
        if now.version == manifest.version:
            return dg.SkipReason(f"The graph shows all {len(manifest.topics)} topics as they are.")
        changed = sorted(
            {topic.name for topic in now.topics if topic != manifest.by_name.get(topic.name)}
            | (manifest.by_name.keys() - now.by_name.keys())
        )
        if not settings.code_server_port:
            return dg.SkipReason(f"Reload the code location to see {', '.join(changed)} as they are now.")
        reload_code_location(settings.code_server_port)
        return dg.SkipReason(f"Reloaded the code location: {', '.join(changed)} changed.")

    return graph


def reload_code_location(port: int) -> None:
    """Have the code server start anew from what is there now. The UI and the daemon notice by themselves."""
    from dagster._grpc.client import DagsterGrpcClient

    DagsterGrpcClient(port=port, host="127.0.0.1").reload_code(timeout=120)
