"""Which manifest this process builds its definitions from."""

from dagster._core.definitions.definitions_load_context import DefinitionsLoadContext, DefinitionsLoadType

from leanops.contracts.manifest import Manifest, Topic
from leanops.contracts.reading import read_contract
from leanops.errors import ContractInvalid
from leanops.home import Home
from leanops.settings import Settings
from leanops_resources.schema_store import LocalSchemaStore, SchemaStore, Stage

PIN = "leanops/manifest"


def planned_manifest(settings: Settings) -> Manifest:
    """The manifest of a run is the one it was planned with; a code location compiles what is active now."""
    home = Home(settings.home).prepare()
    context = DefinitionsLoadContext.get()
    if context.load_type is DefinitionsLoadType.RECONSTRUCTION and PIN in context.reconstruction_metadata:
        return Manifest.load(home.manifests, context.reconstruction_metadata[PIN])
    manifest = compile_manifest(settings)
    manifest.save(home.manifests)
    return manifest


def compile_manifest(settings: Settings) -> Manifest:
    """Every topic that has a place among the contracts or a RAW table, with its active contract."""
    from leanops_resources.catalog import LocalCatalog

    store = LocalSchemaStore(settings.schemas)
    landed = LocalCatalog(Home(settings.home).prepare()).raw_topics()
    return Manifest(topics=tuple(_topic(store, name) for name in sorted({*store.topics(), *landed})))


def _topic(store: SchemaStore, name: str) -> Topic:
    """A broken contract is that topic's trouble alone: its data buffers, and everybody else's goes on."""
    content = store.read(name, Stage.ACTIVE)
    if content is None:
        return Topic(name=name)
    try:
        return Topic(name=name, contract=read_contract(content, name, store.where(name, Stage.ACTIVE)))
    except ContractInvalid as error:
        return Topic(name=name, contract_problem=str(error))
