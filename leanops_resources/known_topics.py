"""Which topics there are, and what contract each has: the contracts and the catalog, read together."""

from collections.abc import Iterator

from leanops.contracts.manifest import Manifest, Topic
from leanops.contracts.reading import read_contract
from leanops.errors import ContractInvalid, TopicNameInvalid
from leanops.home import Home
from leanops.names import topic_name
from leanops.settings import Settings
from leanops_resources.catalog import IcebergCatalog
from leanops_resources.contract_cache import ReadContracts, read_contracts
from leanops_resources.schema_store import ActiveFile, SchemaStore, Stage
from leanops_resources.sources.folder import LandingFolder


def present_manifest(home: Home, store: SchemaStore, catalog: IcebergCatalog) -> Manifest:
    """The manifest of what is active now, which runs can be planned with."""
    manifest = compile_manifest(home, store, catalog)
    manifest.save(home.manifests)
    return manifest


def compile_manifest(home: Home, store: SchemaStore, catalog: IcebergCatalog) -> Manifest:
    """Every topic that has a place among the contracts or a RAW table, with its active contract."""
    names = {*store.topics(), *catalog.raw_topics()}
    with read_contracts(home) as known:
        files = store.active_files(known.marks)
        return Manifest(topics=tuple(_topic(store, name, files.get(name), known) for name in sorted(names)))


def strays(settings: Settings, store: SchemaStore, catalog: IcebergCatalog) -> Iterator[str]:
    """What stands where topics do under a name that no topic can have, and why: it is left alone, and nobody builds it.

    Queues are not among them: those beside the topics' own are somebody else's.
    """
    places = [(f"{settings.schemas}/{name}", name) for name in store.strays()]
    if settings.queue_prefix is None:
        landing = Home(settings.home).landing
        places += [(f"{landing}/{name}", name) for name in LandingFolder(landing).stray_folders()]
    places += [(f"The RAW table of {name!r}", name) for name in catalog.raw_strays()]
    for place, name in places:
        try:
            topic_name(name)
        except TopicNameInvalid as error:
            yield f"{place} is no topic's: {error}"


def _topic(store: SchemaStore, name: str, file: ActiveFile | None, known: ReadContracts) -> Topic:
    """A broken contract is that topic's trouble alone: its data buffers, and everybody else's goes on."""
    if file is None:
        return Topic(name=name)
    where = store.where(name, Stage.ACTIVE)
    if file.problem:
        return Topic(name=name, contract_problem=f"{where} cannot be read: {file.problem}.")
    if file.content is None:
        return Topic(name=name, contract=known.of(name))
    try:
        contract = read_contract(file.content, name, where)
    except ContractInvalid as error:
        return Topic(name=name, contract_problem=str(error))
    known.keep(name, file.mark, contract)
    return Topic(name=name, contract=contract)
