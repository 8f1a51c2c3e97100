"""Which manifest this process builds its definitions from."""

from dagster._core.definitions.definitions_load_context import DefinitionsLoadContext, DefinitionsLoadType

from leanops.contracts.manifest import Manifest
from leanops.home import Home
from leanops.settings import Settings

PIN = "leanops/manifest"


def planned_manifest(settings: Settings) -> Manifest:
    """The manifest of a run is the one it was planned with; a code location compiles what is active now."""
    home = Home(settings.home).prepare()
    context = DefinitionsLoadContext.get()
    if context.load_type is DefinitionsLoadType.RECONSTRUCTION and PIN in context.reconstruction_metadata:
        return Manifest.load(home.manifests, context.reconstruction_metadata[PIN])

    from leanops_resources.catalog import LocalCatalog
    from leanops_resources.known_topics import present_manifest
    from leanops_resources.schema_store import schema_store

    manifest = present_manifest(home, schema_store(settings.schemas), LocalCatalog(home))
    # Dagster 1.13 hands to runs what is noted here, and not what is said on the definitions.
    context.add_to_pending_reconstruction_metadata(PIN, manifest.version)
    return manifest
