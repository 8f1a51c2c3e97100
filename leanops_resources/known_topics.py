"""Which topics there are, and what contract each has: the contracts and the catalog, read together."""

from leanops.contracts.manifest import Manifest, Topic
from leanops.errors import ContractInvalid
from leanops_resources.catalog import IcebergCatalog
from leanops_resources.schema_store import SchemaStore, Stage, read_active


def compile_manifest(store: SchemaStore, catalog: IcebergCatalog) -> Manifest:
    """Every topic that has a place among the contracts or a RAW table, with its active contract."""
    names = {*store.topics(), *catalog.raw_topics()}
    return Manifest(topics=tuple(_topic(store, name) for name in sorted(names)))


def _topic(store: SchemaStore, name: str) -> Topic:
    """A broken contract is that topic's trouble alone: its data buffers, and everybody else's goes on."""
    try:
        return Topic(name=name, contract=read_active(store, name))
    except ContractInvalid as error:
        return Topic(name=name, contract_problem=str(error))
    except OSError as error:
        return Topic(name=name, contract_problem=f"{store.where(name, Stage.ACTIVE)} cannot be read: {error.strerror}.")
