"""Data files of a table whose partitions are publish days: one day each, written so that a row is found by its key.

PyIceberg's own writer makes no bloom filters. With them, asking which keys a table holds costs the same whether it
holds thousands of rows or millions.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date
from types import TracebackType
from typing import Self
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io.pyarrow import parquet_file_to_data_file
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update.snapshot import ManageSnapshots

from leanops.names import DAY_FIELD
from leanops.tables import without_retries

_ROWS_PER_GROUP = 20_000
# A tick asks for thousands of keys at once: at 1 in 100 wrong, every filter would say yes to one of them.
_WRONG_YES = 0.00001


class DataFiles:
    """The files of one commit, for as long as it takes: what comes to nothing leaves none of them."""

    def __init__(self, table: Table, schema: pa.Schema, key: str, repeated: Sequence[str]) -> None:
        """`repeated` are the columns that are worth a dictionary.

        The key is not: Iceberg would read the whole dictionary of each row group before it asks the bloom filter.
        """
        self._table = table
        self.schema = schema
        self._key = key
        self._repeated = list(repeated)
        self._begun: list[str] = []
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
        for location in self._begun:
            with suppress(OSError):
                self._table.io.delete(location)

    def write(self, rows: pa.Table) -> Iterator[DataFile]:
        """Write rows, each publish day to a file of its own."""
        days = pc.cast(rows["publish_time"], pa.date32())
        for day in pc.unique(days).to_pylist():
            yield self._write_day(day, rows.filter(pc.equal(days, day)))

    def commit(
        self,
        written: Collection[DataFile],
        properties: Mapping[str, str],
        replaced: Collection[DataFile] = (),
        branch: str = MAIN_BRANCH,
        ended: Collection[str] = (),
    ) -> int:
        """Put files in the place of others, in one snapshot, whose id it returns; and end the branches that have to.

        `CommitFailedException` when somebody has committed since the table was loaded.
        """
        without_retries(self._table)
        self._is_committing = True
        with self._table.transaction() as transaction:
            update = transaction.update_snapshot(snapshot_properties=dict(properties), branch=branch)
            with update.overwrite() if replaced else update.merge_append() as change:
                for file in replaced:
                    change.delete_data_file(file)
                for file in written:
                    change.append_data_file(file)
            if ended:
                refs = ManageSnapshots(transaction)
                for each in ended:
                    refs = refs.remove_branch(each)
                refs.commit()
        return change.snapshot_id

    def _write_day(self, day: date, rows: pa.Table) -> DataFile:
        location = self._table.location_provider().new_data_location(f"{DAY_FIELD}={day}/{uuid4()}.parquet")
        self._begun.append(location)
        distinct = min(rows.num_rows, _ROWS_PER_GROUP)
        with (
            self._table.io.new_output(location).create() as stream,
            pq.ParquetWriter(
                stream,
                self.schema,
                compression="zstd",
                use_dictionary=self._repeated,
                bloom_filter_options={self._key: {"ndv": distinct, "fpp": _WRONG_YES}},
            ) as writer,
        ):
            writer.write_table(rows, row_group_size=_ROWS_PER_GROUP)
        return parquet_file_to_data_file(self._table.io, self._table.metadata, location)
