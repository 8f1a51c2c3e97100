"""Data files of a table whose partitions are publish days: one day each, written so that a row is found by its key.

PyIceberg's own writer makes no bloom filters. With them, asking which keys a table holds costs the same whether it
holds thousands of rows or millions.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.metadata import TableMetadata

from leanops.names import DAY_FIELD

_ROWS_PER_GROUP = 20_000
# A tick asks for thousands of keys at once: at 1 in 100 wrong, every filter would say yes to one of them.
_FALSE_POSITIVES = 0.00001


@dataclass(frozen=True)
class DayFiles:
    """Writes rows of a table, each publish day to a file of its own. Nothing is committed."""

    io: FileIO
    metadata: TableMetadata
    schema: pa.Schema
    key: str
    repeated: Sequence[str]
    """The columns that are worth a dictionary.

    The key is not: Iceberg would read the whole dictionary of each row group before it asks the bloom filter.
    """
    begun: list[str] = field(default_factory=list)
    """Where files were written, or begun."""

    def write(self, rows: pa.Table) -> Iterator[DataFile]:
        """Write rows, day by day."""
        days = pc.cast(rows["publish_time"], pa.date32())
        for day in pc.unique(days).to_pylist():
            yield self._write_day(str(day), rows.filter(pc.equal(days, day)))

    def _write_day(self, day: str, rows: pa.Table) -> DataFile:
        provider = load_location_provider(self.metadata.location, self.metadata.properties)
        location = provider.new_data_location(f"{DAY_FIELD}={day}/{uuid4()}.parquet")
        self.begun.append(location)
        footers: list[pq.FileMetaData] = []
        with self.io.new_output(location).create() as stream:
            with pq.ParquetWriter(
                stream,
                self.schema,
                compression="zstd",
                use_dictionary=list(self.repeated),
                bloom_filter_options={self.key: {"ndv": min(rows.num_rows, _ROWS_PER_GROUP), "fpp": _FALSE_POSITIVES}},
                metadata_collector=footers,
            ) as writer:
                writer.write_table(rows, row_group_size=_ROWS_PER_GROUP)
            size = stream.tell()
        return self._data_file(location, footers[0], size)

    def _data_file(self, location: str, footer: pq.FileMetaData, size: int) -> DataFile:
        """What PyIceberg makes of a file that it finds, without opening and reading again what was just written."""
        schema = self.metadata.schema()
        statistics = data_file_statistics_from_parquet_metadata(
            parquet_metadata=footer,
            stats_columns=compute_statistics_plan(schema, self.metadata.properties),
            parquet_column_mapping=parquet_path_to_id_mapping(schema),
        )
        return DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=location,
            file_format=FileFormat.PARQUET,
            partition=statistics.partition(self.metadata.spec(), schema),
            file_size_in_bytes=size,
            sort_order_id=None,
            spec_id=self.metadata.default_spec_id,
            equality_ids=None,
            key_metadata=None,
            **statistics.to_serialized_dict(),
        )
