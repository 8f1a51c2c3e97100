"""What a commit says of itself: the checkpoint is part of the commit, so that data and checkpoint cannot disagree."""

from collections.abc import Mapping

from pyiceberg.table import Table
from pyspark.sql import Column, DataFrame

_PREFIX = "leanops."


def stands_for(table: Table, checkpoint: Mapping[str, str]) -> bool:
    """Whether the table's last commit was made for exactly this checkpoint."""
    snapshot = table.current_snapshot()
    summary = snapshot.summary.additional_properties if snapshot and snapshot.summary else {}
    return all(summary.get(_PREFIX + key) == value for key, value in checkpoint.items())


def replace_rows(rows: DataFrame, table: str, where: Column, checkpoint: Mapping[str, str]) -> None:
    """Put `rows` in the place of those that match `where`, in one commit that says what it stands for."""
    writer = rows.writeTo(table)
    for key, value in checkpoint.items():
        writer = writer.option(f"snapshot-property.{_PREFIX}{key}", value)
    writer.overwrite(where)
