"""Which contract errors are open: those of rows that stand in Standardized now and break a rule."""

from collections.abc import Callable

import pyarrow as pa
from pyiceberg.expressions import And, EqualTo, IsNull, NotEqualTo
from pyiceberg.table import Table
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from leanops.checkpointed import checkpointed
from leanops.commits import replace_rows
from leanops.curated.transform import BROKEN
from leanops.few_rows import LOCAL_BYTES, few_rows, files_size
from leanops.names import Layer, spark_table
from leanops.picked import Picked
from leanops.shared_tables import replace_own
from leanops.slices import Slice


def open_errors(spark: SparkSession, topic: str) -> DataFrame:
    """The errors of a topic's rows that are broken, and were neither healed nor replaced."""
    return _errors(spark, topic).where(F.col("closed").isNull())


def has_errors(spark: SparkSession, topic: str) -> bool:
    """Whether there are errors of the topic, open or closed."""
    return bool(_errors(spark, topic).take(1))


def close_errors(spark: SparkSession, topic: str, healed: Picked) -> None:
    """Close the open errors of these rows."""
    if healed.count:
        seqs = ", ".join(map(str, healed.few or ()))
        spark.sql(
            f"UPDATE {spark_table(Layer.ERRORS, topic)} SET closed = current_timestamp() "  # noqa: S608 - our own words
            f"WHERE topic_name = '{topic}' AND closed IS NULL AND landing_seq IN ({seqs})"
        )


def merge_errors(spark: SparkSession, topic: str, part: Slice, rows: DataFrame, broken: DataFrame) -> None:
    """Open an error for each `broken` row, and close those of records whose row among `rows` is not broken so.

    What an unfinished build has left open for messages of this part that are no longer there is closed as well.
    """
    if part.is_whole or part.days:
        _leave_one_of_each(spark, topic)
    broken = broken.persist()
    try:
        _merge(spark, topic, part, rows, broken)
    finally:
        broken.unpersist()


def _merge(spark: SparkSession, topic: str, part: Slice, rows: DataFrame, broken: DataFrame) -> None:
    known = open_errors(spark, topic)
    now = rows.select("idempotency_key", F.lit(True).alias("is_judged"))
    judged_again = known.join(now, "idempotency_key", "left").where(F.col("is_judged") | F.expr(part.place))
    healed = judged_again.join(broken, "message_id", "left_anti").select("message_id", F.lit(True).alias("is_healed"))
    judgement = healed.unionByName(broken, allowMissingColumns=True).alias("judgement")
    is_healed = F.expr("judgement.is_healed")
    (
        judgement.mergeInto(
            spark_table(Layer.ERRORS, topic),
            F.expr(f"errors.topic_name = '{topic}' AND errors.message_id = judgement.message_id"),
        )
        .whenMatched(is_healed)
        .update({"closed": F.current_timestamp()})
        .whenMatched()
        .update(
            {name: F.expr(f"judgement.{name}") for name in broken.columns if name not in ("topic_name", "first_seen")}
        )
        .whenNotMatched(is_healed.isNull())
        .insert({name: F.expr(f"judgement.{name}") for name in broken.columns})
        .merge()
    )


def _leave_one_of_each(spark: SparkSession, topic: str) -> None:
    """A message has one error. Where somebody has doubled one, the oldest is left, and open if any of them is."""
    known = _errors(spark, topic)
    if not known.groupBy("message_id").count().where("count > 1").take(1):
        return
    oldest = Window.partitionBy("message_id").orderBy(F.col("closed").isNotNull(), "first_seen")
    one = known.withColumn("place", F.row_number().over(oldest)).where("place = 1").drop("place")
    replace_rows(checkpointed(one), spark_table(Layer.ERRORS, topic), F.col("topic_name") == topic)


def restamp_open_errors(sessions: Callable[[], SparkSession], errors: Table, topic: str, version: int) -> None:
    """Open errors are of the contract's version in force, also where it says the same of rows as the one before."""
    is_open = And(EqualTo(term="topic_name", value=topic), IsNull(term="closed"))
    is_stale = And(is_open, NotEqualTo(term="contract_version", value=version))
    if files_size(errors, is_stale) > LOCAL_BYTES:
        sessions().sql(
            f"UPDATE {spark_table(Layer.ERRORS, topic)} SET contract_version = {version} "  # noqa: S608 - our own words
            f"WHERE topic_name = '{topic}' AND closed IS NULL AND contract_version <> {version}"
        )
        return
    rows = few_rows(errors, [field.name for field in errors.schema().fields], is_stale)
    if rows.num_rows:
        versions = pa.array([version] * rows.num_rows, pa.int32())
        place = rows.column_names.index("contract_version")
        replace_own(errors, rows.set_column(place, "contract_version", versions), is_stale)


def count_by_rule(broken: DataFrame) -> dict[str, int]:
    """How often each rule of each column is broken."""
    found = broken.select(F.explode(BROKEN).alias("broken")).groupBy("broken.column", "broken.rule").count()
    return {f"{row['column']}: {row['rule']}": row["count"] for row in sorted(found.collect())}


def _errors(spark: SparkSession, topic: str) -> DataFrame:
    return spark.read.table(spark_table(Layer.ERRORS, topic)).where(F.col("topic_name") == topic)
