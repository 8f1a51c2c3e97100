"""Build a topic's Standardized table and its parse errors from what RAW holds."""

from collections.abc import Callable
from dataclasses import dataclass

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from leanops.commits import replace_rows, stands_for
from leanops.contracts.model import Contract
from leanops.inventory import table_totals
from leanops.names import Layer, spark_table
from leanops.raw.table import ensure_raw_table
from leanops.standardized.flatten_plan import FlattenPlan
from leanops.standardized.table import add_columns, ensure_parse_errors_table, ensure_standardized_table, plan_of
from leanops.standardized.transform import (
    first_copies,
    latest_versions,
    map_envelope,
    new_paths,
    parse_errors,
    read_payloads,
    readable,
)


@dataclass(frozen=True)
class StandardizedBuild:
    """What a build did. `is_new` is False when there was nothing to do, and the counts are not known then."""

    is_new: bool
    rows_in: int
    rows: int
    snapshot_id: int | None
    raw_snapshot: int | None
    duplicates: int = 0
    parse_errors: int = 0
    superseded: int = 0
    new_columns: tuple[str, ...] = ()


def build_standardized(
    sessions: Callable[[], SparkSession], catalog: Catalog, topic: str, contract: Contract
) -> StandardizedBuild:
    """Make Standardized what the spec says it is over all of RAW. When nothing has changed, Spark is not asked.

    Parse errors go first. The table commits last, and its commit says which RAW and which envelope it stands for.
    """
    source = ensure_raw_table(catalog, topic)
    target = ensure_standardized_table(catalog, topic, contract)
    ensure_parse_errors_table(catalog)
    landed = source.current_snapshot()
    checkpoint = {
        "raw-snapshot": str(landed and landed.snapshot_id),
        "envelope": ",".join(f"{column.name}={column.source}" for column in contract.envelope_columns),
    }
    if landed is None or stands_for(target, checkpoint):
        written = target.current_snapshot()
        return StandardizedBuild(
            is_new=False,
            rows_in=table_totals(source).rows,
            rows=table_totals(target).rows,
            snapshot_id=written.snapshot_id if written else None,
            raw_snapshot=landed.snapshot_id if landed else None,
        )

    raw = sessions().read.option("versionAsOf", landed.snapshot_id).table(spark_table(Layer.RAW, topic))
    messages = raw.transform(first_copies)
    known = plan_of(target, contract)
    read, plan = _read_with_every_field(messages, known, target)
    try:
        counted = read.select(F.count("*").alias("messages"), F.count("error_kind").alias("errors")).collect()[0]
        errors, rows = read.transform(parse_errors), read.transform(readable).transform(map_envelope)
        replace_rows(errors, spark_table(Layer.PARSE_ERRORS, topic), F.col("topic_name") == topic, checkpoint)
        latest = rows.transform(latest_versions)
        replace_rows(latest, spark_table(Layer.STANDARDIZED, topic), F.lit(True), checkpoint)
    finally:
        read.unpersist()
    target.refresh()
    written = target.current_snapshot()
    rows_in, rows_out = table_totals(source).rows, table_totals(target).rows
    return StandardizedBuild(
        is_new=True,
        rows_in=rows_in,
        rows=rows_out,
        snapshot_id=written.snapshot_id if written else None,
        raw_snapshot=landed.snapshot_id,
        duplicates=rows_in - counted.messages,
        parse_errors=counted.errors,
        superseded=counted.messages - counted.errors - rows_out,
        new_columns=tuple(column.name for column in plan.columns[len(known.columns) :]),
    )


def _read_with_every_field(messages: DataFrame, plan: FlattenPlan, target: Table) -> tuple[DataFrame, FlattenPlan]:
    """The messages flattened by a plan that knows all their fields, and that plan. New fields get their columns."""
    read = messages.transform(read_payloads, plan).persist()
    paths = new_paths(read, plan)
    if not paths:
        return read, plan
    read.unpersist()
    grown = plan.extended(paths)
    add_columns(target, grown.columns)
    return messages.transform(read_payloads, grown).persist(), grown
