"""The data files of a RAW table."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Self

import pyarrow as pa
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from leanops.data_files import DayFiles
from leanops.raw.table import RAW_SCHEMA
from leanops.table_files import note_files
from leanops.tables import without_retries

ARROW_SCHEMA = schema_to_pyarrow(RAW_SCHEMA)


class RawFiles:
    """The files of one commit, for as long as it takes: what comes to nothing leaves none of them."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._files = DayFiles(table.io, table.metadata, ARROW_SCHEMA, ("topic_name", "ingestion_ts"))
        self._is_committing = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Of a commit, only this fault is known not to have happened; after any other the files may be the table's.
        if error and (not self._is_committing or isinstance(error, CommitFailedException)):
            self.remove()

    def remove(self) -> None:
        """Take back all that was written."""
        for location in self._files.begun:
            with suppress(OSError):
                self._table.io.delete(location)

    def write(self, rows: pa.Table) -> Iterator[DataFile]:
        """Write rows, each publish day to a file of its own."""
        return self._files.write(rows)

    def commit(
        self, written: Collection[DataFile], properties: Mapping[str, str], replaced: Collection[DataFile] = ()
    ) -> int:
        """Put files in the place of others, in one snapshot, whose id it returns.

        `CommitFailedException` when somebody has committed since the table was loaded.
        """
        without_retries(self._table)
        base = self._table.current_snapshot()
        self._is_committing = True
        with self._table.transaction() as transaction:
            update = transaction.update_snapshot(snapshot_properties=dict(properties))
            with update.overwrite() if replaced else update.merge_append() as change:
                for file in replaced:
                    change.delete_data_file(file)
                for file in written:
                    change.append_data_file(file)
        note_files(self._table, base.snapshot_id if base else None, replaced, written)
        return change.snapshot_id
