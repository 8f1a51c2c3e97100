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
from pyiceberg.io.pyarrow import (
    _check_pyarrow_schema_compatible,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
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
        footers: list[pq.FileMetaData] = []
        with self._table.io.new_output(location).create() as stream:
            with pq.ParquetWriter(
                stream,
                self.schema,
                compression="zstd",
                use_dictionary=self._repeated,
                bloom_filter_options={self._key: {"ndv": distinct, "fpp": _WRONG_YES}},
                metadata_collector=footers,
            ) as writer:
                writer.write_table(rows, row_group_size=_ROWS_PER_GROUP)
            size = stream.tell()
        return self._data_file(location, footers[0], size)

    def _data_file(self, location: str, footer: pq.FileMetaData, size: int) -> DataFile:
        """What PyIceberg makes of a file that it finds, without opening and reading again what was just written."""
        schema, metadata = self._table.schema(), self._table.metadata
        if not self._begun[1:]:
            _check_pyarrow_schema_compatible(schema, self.schema, format_version=metadata.format_version)
        statistics = data_file_statistics_from_parquet_metadata(
            parquet_metadata=footer,
            stats_columns=compute_statistics_plan(schema, metadata.properties),
            parquet_column_mapping=parquet_path_to_id_mapping(schema),
        )
        return DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=location,
            file_format=FileFormat.PARQUET,
            partition=statistics.partition(metadata.spec(), schema),
            file_size_in_bytes=size,
            sort_order_id=None,
            spec_id=metadata.default_spec_id,
            equality_ids=None,
            key_metadata=None,
            **statistics.to_serialized_dict(),
        )
