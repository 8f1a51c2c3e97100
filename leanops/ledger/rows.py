"""Where every row stands, one by one: asked of the tables, and of nothing that a build says of itself."""

from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from leanops.inventory import NO_DAY
from leanops.standardized.transform import RECORD_KEY, VERSION, Fate

ROW = ("landing_seq", "message_id", "day")
PLACES = ("came_in", "kept", "refused")
LOST = "lost"


def publish_day() -> Column:
    """The day that a row stands on; somebody may have taken its publish time away."""
    return F.coalesce(F.to_date("publish_time"), F.lit(NO_DAY)).alias("day")


def standing(came_in: DataFrame, kept: DataFrame, refused: DataFrame) -> DataFrame:
    """In how many places of each kind every row stands, and the key of its record.

    A row is the same row if it has the same number, message and publish day.
    """
    key = F.max("key").alias("key")
    return _placed(came_in, kept, refused).groupBy(*ROW).agg(key, *(F.sum(each).alias(each) for each in PLACES))


def standing_by_number(came_in: DataFrame, kept: DataFrame, refused: DataFrame) -> DataFrame:
    """How many rows of a day stand where; of those that do not add up, each by its number.

    Here a message is told apart by a hash of its id: with a number beside it, that is enough, and rows of a fixed
    width are counted several times as fast.
    """
    placed = _placed(came_in, kept, refused)
    is_one = ("landing_seq", "day", F.xxhash64("message_id").alias("hash"))
    stand = placed.groupBy(*is_one).agg(*(F.sum(each).alias(each) for each in PLACES))
    odd_number = F.when(is_odd() | is_unwritten(), F.col("landing_seq")).alias("landing_seq")
    return stand.groupBy("day", *PLACES, odd_number).agg(F.count("*").alias("rows"))


def _placed(came_in: DataFrame, kept: DataFrame, refused: DataFrame) -> DataFrame:
    places = (
        frame.select(
            "landing_seq",
            "message_id",
            publish_day(),
            (F.col("idempotency_key") if place == "kept" else F.lit(None).cast("string")).alias("key"),
            *(F.lit(int(place == each)).alias(each) for each in PLACES),
        )
        for place, frame in zip(PLACES, (came_in, kept, refused), strict=True)
    )
    return reduce(DataFrame.unionAll, places)


def is_unwritten() -> Column:
    """Rows that came in and stand nowhere."""
    return (F.col("came_in") == 1) & (F.col("kept") + F.col("refused") == 0)


def is_odd() -> Column:
    """Rows that came from nowhere, or stand in more than one place."""
    return (F.col("came_in") != 1) | (F.col("kept") + F.col("refused") > 1)


def fates_of_unwritten(unwritten: DataFrame, copies: DataFrame, versions: DataFrame) -> DataFrame:
    """Why messages stand nowhere: another copy landed before, or a later version of their record stands; else lost.

    `unwritten` have been read, so that their records' keys are known. `copies` are messages with their ids,
    `versions` rows of Standardized with their keys.
    """
    firsts = copies.groupBy("message_id").agg(F.min("landing_seq").alias("first"))
    mine, other = unwritten.alias("mine"), versions.alias("other")
    is_later = F.struct(*(f"other.{each}" for each in VERSION)) > F.struct(*(f"mine.{each}" for each in VERSION))
    is_of_record = F.col(f"mine.{RECORD_KEY}") == F.col("other.idempotency_key")
    is_other = F.col("mine.message_id") != F.col("other.message_id")
    outdated = mine.join(other, is_of_record & is_other & is_later, "left_semi").select(
        "landing_seq", F.lit(True).alias("is_outdated")
    )
    fate = (
        F.when(F.col("first") < F.col("landing_seq"), Fate.DUPLICATE)
        .when(F.col("error_kind").isNull() & F.col("is_outdated"), Fate.SUPERSEDED)
        .otherwise(LOST)
    )
    found = unwritten.join(firsts, "message_id", "left").join(outdated, "landing_seq", "left")
    return found.withColumn("day", publish_day()).select(*ROW, fate.alias("fate"))


def first_of_each_day(rows: DataFrame, count: int) -> DataFrame:
    """So many rows of each day, those that landed first."""
    place = F.row_number().over(Window.partitionBy("day").orderBy("landing_seq", "message_id"))
    return rows.withColumn("place", place).where(F.col("place") <= count).orderBy("day", "place")
