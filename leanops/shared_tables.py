"""Tables that all topics share: rows are added whoever else commits at the same time."""

import pyarrow as pa
from pyiceberg.exceptions import ValidationException
from pyiceberg.table import Table

from leanops.tables import with_many_retries


def append_rows(table: Table, rows: pa.Table) -> None:
    """Add rows in one commit. PyIceberg gives up where the snapshot that it began at has expired meanwhile."""
    with_many_retries(table)
    try:
        table.append(rows)
    except ValidationException:
        table.refresh()
        with_many_retries(table)
        table.append(rows)
