"""Which contract errors are open: those of rows that stand in Standardized now and break a rule."""

from collections.abc import Mapping, Sequence

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, StringType, StructField, StructType

from leanops.curated.planned import PlannedCurated
from leanops.curated.table import ERRORS_SCHEMA, KEY_COLUMNS
from leanops.names import Layer, spark_table
from leanops.standardized.transform import MESSAGE

INVALID = (
    StructType([MESSAGE[name] for name in KEY_COLUMNS])
    .add(
        "broken_rules", ArrayType(StructType([StructField(each, StringType()) for each in ("column", "rule", "value")]))
    )
    .add("is_invalid", "boolean")
    .add("contract_version", "integer")
)
"""A row that workers hand back: because it is invalid, or because errors of its record may be open."""

_COLUMNS = [field.name for field in ERRORS_SCHEMA.fields]
_SAME = ("topic_name", "message_id", "landing_seq")


def errors_of(spark: SparkSession, topics: Sequence[str]) -> DataFrame:
    """The errors of topics, open or closed."""
    return spark.read.table(spark_table(Layer.ERRORS, "")).where(F.col("topic_name").isin(list(topics)))


def error_changes(spark: SparkSession, planned: Sequence[PlannedCurated], rows: DataFrame) -> DataFrame:
    """The errors that come, and those that change, as they are from now on; `is_there` tells those that replace some.

    A row that breaks its contract now has an open error, since it was first seen. An open one is closed when its row
    was replaced, or validated again and found good; also what an unfinished build has left for messages of its part.
    A row has one error: where somebody has doubled one of rows that are made anew, the oldest is left.
    """
    invalid = rows.where("is_invalid").select(
        *KEY_COLUMNS,
        F.col("topic").alias("topic_name"),
        "broken_rules",
        "contract_version",
        F.current_timestamp().alias("first_seen"),
        F.lit(None).cast("timestamp").alias("closed"),
    )
    looked_at = [each for each in planned if is_looked_at(each)]
    if not looked_at:
        return invalid.select(*_COLUMNS, F.lit(False).alias("is_there"))
    known = _one_of_each(errors_of(spark, [each.topic for each in looked_at]))
    known = known.transform(_marked_if_validated_again, spark, looked_at, rows)
    both = known.select(*_SAME, "copies", "is_again", F.struct(*_COLUMNS).alias("known")).join(
        invalid.select(*_SAME, F.struct(*_COLUMNS).alias("new")), [*_SAME], "full"
    )
    new, old = F.col("new"), F.col("known")
    is_invalid, is_there = new.isNotNull(), old.isNotNull()
    is_resolved = F.col("is_again") & old["closed"].isNull()
    is_doubled = (F.col("copies") > 1) & _in_topics([each for each in looked_at if each.is_made_anew])
    first_seen = F.coalesce(old["first_seen"], new["first_seen"])
    error = (
        F.when(is_invalid, new.withField("first_seen", first_seen))
        .when(is_resolved, old.withField("closed", F.current_timestamp()))
        .otherwise(old)
    )
    changed = both.where(is_invalid | is_resolved | is_doubled)
    return changed.select(error.alias("error"), is_there.alias("is_there")).select("error.*", "is_there")


def is_looked_at(planned: PlannedCurated) -> bool:
    """Whether errors of a topic may be there that change: a build that replaces nothing opens new ones only."""
    return planned.lost is None or bool(planned.lost)


def write_errors(changes: DataFrame, is_any_there: bool) -> None:
    """Make the table of errors what the changes say, in one commit."""
    name = spark_table(Layer.ERRORS, "")
    if not is_any_there:
        changes.select(*_COLUMNS).writeTo(name).append()
        return
    # What is there gives way, wherever and however often it stands, to what it is from now on: two rows of the source.
    gone = changes.where("is_there").select(*_SAME, F.lit(True).alias("is_gone"))
    rows = changes.select(*_COLUMNS).unionByName(gone, allowMissingColumns=True).alias("change")
    is_same = " AND ".join(f"errors.{each} <=> change.{each}" for each in _SAME)
    is_gone = F.expr("change.is_gone")
    (
        rows.mergeInto(name, is_gone & F.expr(is_same))
        .whenMatched()
        .delete()
        .whenNotMatched(is_gone.isNull())
        .insert({each: F.expr(f"change.{each}") for each in _COLUMNS})
        .merge()
    )


def restamp_open_errors(spark: SparkSession, versions: Mapping[str, int]) -> None:
    """Open errors are of the contract's version in force, also where it says the same of rows as the one before."""
    for topic, version in versions.items():
        spark.sql(
            f"UPDATE {spark_table(Layer.ERRORS, '')} SET contract_version = {version} "  # noqa: S608 - our own words
            f"WHERE topic_name = '{topic}' AND closed IS NULL AND contract_version <> {version}"
        )


def _one_of_each(known: DataFrame) -> DataFrame:
    """One error of each message: an open one if there is any, and the oldest of these; and how many there were."""
    message = Window.partitionBy(*_SAME)
    place = F.row_number().over(message.orderBy(F.col("closed").isNotNull(), "first_seen"))
    counted = known.withColumns({"place": place, "copies": F.count("*").over(message)})
    return counted.where("place = 1").drop("place")


def _marked_if_validated_again(
    known: DataFrame, spark: SparkSession, planned: Sequence[PlannedCurated], rows: DataFrame
) -> DataFrame:
    """Errors, and whether their rows were replaced, or their records validated again."""
    named = [(each.topic, seq) for each in planned for seq in each.lost or ()]
    unnamed = [each for each in planned if each.lost is None]
    is_again = F.lit(False)
    if named:
        topics, seqs = zip(*named, strict=True)
        lost = spark.createDataFrame(pa.table({"topic_name": topics, "landing_seq": pa.array(seqs, pa.int64())}))
        lost = F.broadcast(lost.withColumn("is_lost", F.lit(True)))
        known = known.join(lost, ["topic_name", "landing_seq"], "left")
        is_again = is_again | F.col("is_lost")
    if unnamed:
        records = rows.select(F.col("topic").alias("topic_name"), "idempotency_key", F.lit(True).alias("is_judged"))
        known = known.join(records.distinct(), ["topic_name", "idempotency_key"], "left")
        # A text: Spark Connect cannot send hundreds of conditions that are nested in each other.
        places = " OR ".join(f"(topic_name = '{each.topic}' AND {each.part.place})" for each in unnamed)
        is_again = is_again | (_in_topics(unnamed) & (F.col("is_judged") | F.expr(places)))
    return known.withColumn("is_again", F.coalesce(is_again, F.lit(False)))


def _in_topics(planned: Sequence[PlannedCurated]) -> Column:
    return F.col("topic_name").isin([each.topic for each in planned])
