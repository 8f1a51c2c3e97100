"""PyIceberg's catalog in SQL, spared what it does again and again.

A table is found by a question that is put together once. Metadata that a process has read or written before is not read
again: each commit puts it in another place, and what is there never changes. And a transaction knows what its table
becomes until something is added to it: PyIceberg would copy all metadata, with every snapshot, each time that one of a
dozen places asks. Of a small build all that was a quarter.
"""

import logging
from functools import cached_property
from typing import Any

from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.serializers import Compressor, FromByteStream
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import TableUpdate, update_table_metadata
from pyiceberg.typedef import Identifier
from sqlalchemy import Select, bindparam, select

from leanops.recent import Recent

_kept: Recent[str, TableMetadata] = Recent(2048)
"""Metadata by its place."""

# Of several who commit at once all but the first find old metadata removed already, which is no news.
logging.getLogger("pyiceberg.catalog").setLevel(logging.ERROR)


class QuickCatalog(SqlCatalog):
    """The catalog, in which tables are quick to load and to commit to."""

    def load_table(self, identifier: str | Identifier) -> Table:
        namespace, name = self.namespace_to_string(self.namespace_from(identifier)), self.table_name_from(identifier)
        with self.engine.connect() as connection:
            location = connection.execute(self._place, {"namespace": namespace, "name": name}).scalar()
        if location is None:
            raise NoSuchTableError(f"Table does not exist: {namespace}.{name}")
        metadata = _kept.get(location) or _kept.keep(location, self._read_metadata(location))
        return _QuickTable(
            identifier=(*self.identifier_to_tuple(namespace), name),
            metadata=metadata,
            metadata_location=location,
            io=self._load_file_io(metadata.properties, location),
            catalog=self,
        )

    def _read_metadata(self, location: str) -> TableMetadata:
        with load_file_io(self.properties, location).new_input(location).open() as file:
            return FromByteStream.table_metadata(file, compression=Compressor.get_compressor(location))

    @staticmethod
    def _write_metadata(metadata: TableMetadata, io: FileIO, metadata_path: str) -> None:
        SqlCatalog._write_metadata(metadata, io, metadata_path)  # noqa: SLF001 - all that is created or committed
        _kept.keep(metadata_path, metadata)

    @cached_property
    def _place(self) -> Select[Any]:
        """The question where a table's metadata is, put together once: PyIceberg does so for each of 40 in a step."""
        asked = select(IcebergTables.metadata_location).where(
            IcebergTables.catalog_name == self.name,
            IcebergTables.table_namespace == bindparam("namespace"),
            IcebergTables.table_name == bindparam("name"),
        )
        is_table = self._iceberg_type_filter()
        return asked if is_table is None else asked.where(is_table)


class _QuickTable(Table):
    def transaction(self) -> Transaction:
        return _QuickTransaction(self)


class _QuickTransaction(Transaction):
    _told: tuple[TableMetadata, tuple[TableUpdate, ...], TableMetadata] | None = None

    @property
    def table_metadata(self) -> TableMetadata:
        base, updates = self._table.metadata, self._updates
        if not updates:
            return base
        if self._told is None or self._told[0] is not base or self._told[1] is not updates:
            self._told = base, updates, update_table_metadata(base, updates)
        return self._told[2]
