"""Data files of a table whose partitions are publish days, one day each; and of the positions deleted in them.

PyIceberg's own writer has no say in the size of row groups, or in which columns have dictionaries. Small row groups,
each with the bounds of its numbers, are what a look-up reads of a large file.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io import FileIO, OutputStream
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Record

from leanops.names import DAY_FIELD
from leanops.table_files import NO_DAY

_ROWS_PER_GROUP = 20_000


_DELETED_FILE, _DELETED_POSITION = 2147483546, 2147483545
"""The ids that Iceberg has set aside for these columns."""

_DELETES = pa.schema(
    [
        pa.field("file_path", pa.string(), False, {"PARQUET:field_id": str(_DELETED_FILE)}),
        pa.field("pos", pa.int64(), False, {"PARQUET:field_id": str(_DELETED_POSITION)}),
    ]
)


@dataclass(frozen=True)
class DayFiles:
    """Writes rows of a table, each publish day to a file of its own. Nothing is committed."""

    io: FileIO
    metadata: TableMetadata
    schema: pa.Schema
    repeated: Sequence[str]
    """The columns that are worth a dictionary."""
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
        with new_file(self.io, location) as stream:
            with pq.ParquetWriter(
                stream,
                self.schema,
                compression="zstd",
                use_dictionary=list(self.repeated),
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


def new_file(io: FileIO, location: str) -> OutputStream:
    """A file that nobody else can have made, for its name is new: to look whether it is there would be a call more."""
    return io.new_output(location).create(overwrite=True)


def write_deleted_positions(io: FileIO, metadata: TableMetadata, path: str, rows: pa.Table) -> DataFile:
    """Write down that rows of one data file are deleted, by their places in it, as Iceberg has it."""
    day = pc.cast(pc.cast(rows["publish_time"][0], pa.date32()), pa.int32()).as_py()
    positions = pc.sort_indices(rows["position"])
    deletes = pa.table([pa.repeat(path, rows.num_rows), rows["position"].take(positions)], schema=_DELETES)
    provider = load_location_provider(metadata.location, metadata.properties)
    location = provider.new_data_location(f"{DAY_FIELD}={NO_DAY + timedelta(days=day or 0)}/{uuid4()}-deletes.parquet")
    with new_file(io, location) as stream:
        pq.write_table(deletes, stream, compression="zstd")
        size = stream.tell()
    # Both bounds are the one file that it is about: nobody opens it for another.
    bounds = {_DELETED_FILE: path.encode()}
    return DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=location,
        file_format=FileFormat.PARQUET,
        partition=Record(day),
        record_count=rows.num_rows,
        file_size_in_bytes=size,
        lower_bounds=bounds,
        upper_bounds=bounds,
        spec_id=metadata.default_spec_id,
    )
