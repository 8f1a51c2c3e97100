"""The data files of a RAW table: one publish day each, written so that a message can be found by its id.

PyIceberg's own writer makes no bloom filters. With them, asking which of a tick's messages have landed before costs
the same whether RAW holds thousands of rows or millions.
"""

from collections.abc import Iterator
from contextlib import suppress
from datetime import date
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import parquet_file_to_data_file, schema_to_pyarrow
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from leanops.raw.table import RAW_SCHEMA

ARROW_SCHEMA = schema_to_pyarrow(RAW_SCHEMA)
_ROWS_PER_GROUP = 20_000
# A tick asks for thousands of ids at once: at 1 in 100 wrong, every filter would say yes to one of them.
_WRONG_YES = 0.00001
# Not the ids: Iceberg would read the whole dictionary of each row group before it asks the group's bloom filter.
_REPEATED = ("topic_name", "ingestion_ts")


class RawFiles:
    """The files of one append, as they are begun: writing that comes to nothing leaves none of them."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._begun: list[str] = []

    def write(self, rows: pa.Table) -> Iterator[DataFile]:
        """Write rows of RAW, each publish day to a file of its own."""
        days = pc.cast(rows["publish_time"], pa.date32())
        for day in pc.unique(days).to_pylist():
            yield self._write_day(day, rows.filter(pc.equal(days, day)))

    def remove(self) -> None:
        """Take back all that was written."""
        for location in self._begun:
            with suppress(OSError):
                self._table.io.delete(location)

    def _write_day(self, day: date, rows: pa.Table) -> DataFile:
        location = self._table.location_provider().new_data_location(f"publish_time_day={day}/{uuid4()}.parquet")
        self._begun.append(location)
        distinct = min(rows.num_rows, _ROWS_PER_GROUP)
        with (
            self._table.io.new_output(location).create() as stream,
            pq.ParquetWriter(
                stream,
                ARROW_SCHEMA,
                compression="zstd",
                use_dictionary=list(_REPEATED),
                bloom_filter_options={"message_id": {"ndv": distinct, "fpp": _WRONG_YES}},
            ) as writer,
        ):
            writer.write_table(rows, row_group_size=_ROWS_PER_GROUP)
        return parquet_file_to_data_file(self._table.io, self._table.metadata, location)
