"""What a commit says of itself: the checkpoint is part of the commit, so that data and checkpoint cannot disagree."""

from collections.abc import Mapping

from pyiceberg.table import Table
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

_PREFIX = "leanops."


def stands_for(table: Table, checkpoint: Mapping[str, str]) -> bool:
    """Whether the table's last commit was made for exactly this checkpoint."""
    found = checkpoint_of(table)
    return all(found.get(key) == value for key, value in checkpoint.items())


def checkpoint_of(table: Table | None) -> dict[str, str]:
    """What the table's last commit says it stands for."""
    snapshot = table.current_snapshot() if table else None
    summary = snapshot.summary.additional_properties if snapshot and snapshot.summary else {}
    return {key.removeprefix(_PREFIX): value for key, value in summary.items() if key.startswith(_PREFIX)}


def replace_rows(rows: DataFrame, table: str, where: Column, checkpoint: Mapping[str, str]) -> None:
    """Put `rows` in the place of those that match `where`, in one commit that says what it stands for."""
    writer = rows.transform(_with_columns_of, table).writeTo(table)
    for key, value in checkpoint.items():
        writer = writer.option(f"snapshot-property.{_PREFIX}{key}", value)
    writer.overwrite(where)


def _with_columns_of(rows: DataFrame, table: str) -> DataFrame:
    """All columns of the table; those that nothing fills any more are NULL."""
    unfilled = [field for field in rows.sparkSession.read.table(table).schema if field.name not in rows.columns]
    return rows.select("*", *(F.lit(None).cast(field.dataType).alias(field.name) for field in unfilled))
