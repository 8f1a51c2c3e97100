"""The data files of a RAW table, in which a message is found by its id."""

from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table

from leanops.data_files import DataFiles
from leanops.raw.table import RAW_SCHEMA

ARROW_SCHEMA = schema_to_pyarrow(RAW_SCHEMA)


class RawFiles(DataFiles):
    """The files of one landing."""

    def __init__(self, table: Table) -> None:
        super().__init__(table, ARROW_SCHEMA, "message_id", ("topic_name", "ingestion_ts"))
