"""How the platform's Iceberg tables are made: one set of properties, one way to create."""

from collections.abc import Mapping
from contextlib import suppress

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NamespaceAlreadyExistsError, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table

PROPERTIES: Mapping[str, str] = {
    "format-version": "2",
    "write.target-file-size-bytes": "268435456",
    "commit.manifest.target-size-bytes": "8388608",
    "write.parquet.compression-codec": "zstd",
}


def find_table(catalog: Catalog, identifier: tuple[str, str]) -> Table | None:
    """The table, or None if there is none. To ask for its existence first would read its metadata twice."""
    try:
        return catalog.load_table(identifier)
    except NoSuchTableError:
        return None


def ensure_table(
    catalog: Catalog,
    identifier: tuple[str, str],
    schema: Schema,
    spec: PartitionSpec,
) -> Table:
    """The table, created first if it is not there. Whoever is second to create it gets the first one's."""
    if there := find_table(catalog, identifier):
        return there
    with suppress(NamespaceAlreadyExistsError):
        catalog.create_namespace(identifier[0])
    try:
        return catalog.create_table(identifier, schema, partition_spec=spec, properties=dict(PROPERTIES))
    except TableAlreadyExistsError:
        return catalog.load_table(identifier)
