"""Where every row stands, one by one: asked of the tables, and of nothing that a build says of itself.

Rows are those of any number of topics and layers. `role` tells the layer whose ledger they are read for, and the place
in which they stand.
"""

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DateType, LongType, StringType, StructField, StructType

from leanops.ledger.planned import CAME_IN, HELD, KEPT, REFUSED, in_place
from leanops.names import SOURCE, Layer
from leanops.standardized.transform import MESSAGE, READ, RECORD_KEY, VERSION, Fate, is_copy
from leanops.table_files import NO_DAY

PLACES = (CAME_IN, KEPT, REFUSED)
LEDGER = ("topic", "layer")
DAY = (*LEDGER, "day")
LOST = "lost"
LANDED = "landed"
"""The place of messages that tell why others stand nowhere."""

PLACED = StructType(
    [
        MESSAGE["topic"],
        StructField("role", StringType()),
        *(MESSAGE[name] for name in ("landing_seq", *VERSION, "idempotency_key")),
        StructField("missing", ArrayType(StringType())),
        READ["error_kind"],
        READ[RECORD_KEY],
    ]
)
"""A row, the ledger that it is read for, the place in which it stands, and the critical elements that it lacks.

Of a message that tells why others stand nowhere also what is wrong with its payload, or else the key of its record.
"""


STOOD = StructType(
    [
        *PLACED.fields,
        StructField("layer", StringType()),
        StructField("day", DateType()),
        *(StructField(place, LongType()) for place in PLACES),
        StructField("rows", LongType()),
    ]
)
"""So many rows of a day that stand in so many places; or, without these, a message that is to be explained."""


def publish_day() -> Column:
    """The day that a row stands on; somebody may have taken its publish time away."""
    return F.coalesce(F.to_date("publish_time"), F.lit(NO_DAY)).alias("day")


def standing(rows: DataFrame) -> DataFrame:
    """How many rows of a day stand where; of those that do not add up, each by its number and the hash of its id.

    A row is the same row if it has the same number, message and publish day. Here a message is told apart by a hash of
    its id: with a number beside it, that is enough, and rows of a fixed width are counted several times as fast.
    """
    is_one = (*DAY, "landing_seq", F.xxhash64("message_id").alias("hash"))
    stand = rows.where(standing_in(None, *PLACES)).transform(_in_places).groupBy(*is_one).agg(*_sums())
    own = (F.when(is_odd() | is_unwritten(), F.col(name)).alias(name) for name in ("landing_seq", "hash"))
    return stand.groupBy(*DAY, *PLACES, *own).agg(F.count("*").alias("rows"))


def names_of(rows: DataFrame, wrong: DataFrame) -> DataFrame:
    """The rows that `wrong` has by their numbers and hashes, with their ids, and in how many places each stands."""
    mine, number = rows.transform(_in_places).alias("mine"), F.col("mine.landing_seq")
    is_same = number.eqNullSafe(F.col("wrong.landing_seq")) & (F.xxhash64("mine.message_id") == F.col("wrong.hash"))
    for name in DAY:
        is_same &= F.col(f"mine.{name}") == F.col(f"wrong.{name}")
    found = mine.join(wrong.alias("wrong"), is_same, "left_semi")
    return found.groupBy(*DAY, "landing_seq", "message_id").agg(*_sums()).where(is_finding())


def _in_places(rows: DataFrame) -> DataFrame:
    is_curated = F.col("role").startswith(Layer.CURATED.value)
    layer = F.when(is_curated, Layer.CURATED.value).otherwise(Layer.STANDARDIZED.value)
    places = (standing_in(None, each).cast("int").alias(each) for each in (*PLACES, HELD))
    return rows.select(
        "topic", "landing_seq", "message_id", "idempotency_key", layer.alias("layer"), publish_day(), *places
    )


def standing_in(layer: Layer | None, *places: str) -> Column:
    """The rows in some places of the ledger of a layer, or of any."""
    return F.col("role").isin([in_place(each, place) for each in SOURCE if layer in (None, each) for place in places])


def _sums() -> list[Column]:
    return [F.sum(each).alias(each) for each in PLACES]


def missing_elements(rows: DataFrame) -> DataFrame:
    """How many rows of a day lack each Critical Data Element, by its column, of those that are invalid for it."""
    invalid = rows.where(standing_in(Layer.CURATED, REFUSED))
    layer, column = F.lit(Layer.CURATED.value).alias("layer"), F.explode("missing").alias("column")
    return invalid.select("topic", layer, publish_day(), column).groupBy(*DAY, "column").agg(F.count("*").alias("rows"))


def is_unwritten() -> Column:
    """Rows that came in and stand nowhere."""
    return (F.col(CAME_IN) == 1) & (F.col(KEPT) + F.col(REFUSED) == 0)


def is_odd() -> Column:
    """Rows that came from nowhere, or stand in more than one place."""
    return (F.col(CAME_IN) != 1) | (F.col(KEPT) + F.col(REFUSED) > 1)


def is_to_explain() -> Column:
    """Messages that stand nowhere: they may be copies, or superseded."""
    return is_unwritten() & (F.col("layer") == Layer.STANDARDIZED)


def is_finding() -> Column:
    """Rows without exactly one fate. A row of Standardized that stands nowhere has none."""
    return is_odd() | (is_unwritten() & (F.col("layer") != Layer.STANDARDIZED))


def standing_of_shares(stood: DataFrame) -> DataFrame:
    """What workers have counted, as `standing` has it."""
    hashed = F.when(F.col("message_id").isNotNull(), F.xxhash64("message_id")).alias("hash")
    return stood.where("rows IS NOT NULL").select(*DAY, *PLACES, "landing_seq", hashed, "rows")


def told_apart(messages: DataFrame) -> DataFrame:
    """Messages that may explain each other, with the hashes of their ids."""
    hashed = (publish_day(), F.xxhash64("message_id").alias("hash"))
    return messages.select("topic", "landing_seq", *VERSION, "error_kind", RECORD_KEY, *hashed)


def with_ids_of(landed: DataFrame, unwritten: DataFrame, is_sent: bool) -> DataFrame:
    """What has landed with the ids of messages that stand nowhere, by their hashes."""
    ids = _broadcast(unwritten.select("topic", "hash"), is_sent)
    hashed = landed.select("topic", "message_id", "landing_seq", "ingestion_ts", F.xxhash64("message_id").alias("hash"))
    return hashed.join(ids, ["topic", "hash"], "left_semi")


def marked_if_unwritten(landed: DataFrame, unwritten: DataFrame) -> DataFrame:
    """What has landed, with the keys of its records, and whether it stands nowhere, by its number and hash."""
    wanted = unwritten.select("topic", "landing_seq", "day", "hash", F.lit(True).alias("is_unwritten"))
    return landed.transform(told_apart).join(wanted, ["topic", "landing_seq", "day", "hash"], "left")


def with_keys_of(versions: DataFrame, unwritten: DataFrame, is_sent: bool) -> DataFrame:
    """Rows of Standardized of the same records."""
    keys = unwritten.select("topic", F.col(RECORD_KEY).alias("idempotency_key"))
    return versions.join(_broadcast(keys, is_sent), keys.columns, "left_semi")


def fates_of_unwritten(landed: DataFrame, versions: DataFrame, horizons: Mapping[str, int]) -> DataFrame:
    """Why messages stand nowhere: another copy landed before, or a later version of their record stands; else lost.

    `landed` are these messages, marked, and all others with their ids; `versions` rows of Standardized with their keys.
    """
    version = F.struct(F.struct(*VERSION).alias("version"), F.col("landing_seq").alias("seq")).alias("version")
    standing = versions.select("topic", F.col("idempotency_key").alias(RECORD_KEY), version)
    rows = landed.unionByName(standing, allowMissingColumns=True)
    latest = F.max("version").over(Window.partitionBy("topic", RECORD_KEY))
    is_duplicate = is_copy(F.col("landing_seq").isNotNull(), horizons)
    known = rows.withColumns({"is_duplicate": is_duplicate, "latest": latest}).where("is_unwritten")
    is_of_another = F.col("latest.seq") != F.col("landing_seq")
    is_outdated = is_of_another & (F.col("latest.version") > F.struct(*VERSION))
    fate = (
        F.when(F.col("is_duplicate"), Fate.DUPLICATE)
        .when(F.col("error_kind").isNull() & is_outdated, Fate.SUPERSEDED)
        .otherwise(LOST)
    )
    layer = F.lit(Layer.STANDARDIZED.value).alias("layer")
    return known.select("topic", "landing_seq", "day", "message_id", layer, fate.alias("fate"))


def shared_keys(rows: DataFrame) -> DataFrame:
    """The keys that more than one row has, by their hashes: keys of any length are counted by these first.

    Of the rows that are looked at, and, where these are a part, among all others that the tables hold: the other row of
    a record may stand anywhere.
    """
    counted = (
        rows.where(standing_in(None, KEPT, HELD))
        .transform(_in_places)
        .groupBy(*LEDGER, F.xxhash64("idempotency_key").alias("key_hash"))
    )
    rows_of_key = counted.agg(F.sum(KEPT).alias("looked_at"), F.count("*").alias("rows"))
    return rows_of_key.where("looked_at > 0 AND rows > 1")


def rows_sharing(held: DataFrame, shared: DataFrame) -> DataFrame:
    """The rows whose record has another one. Two keys with one hash are told apart here."""
    rows = held.transform(_in_places).withColumn("key_hash", F.xxhash64("idempotency_key"))
    rows = rows.join(shared.select(*LEDGER, "key_hash"), [*LEDGER, "key_hash"], "left_semi")
    count = F.count("*").over(Window.partitionBy(*LEDGER, "idempotency_key"))
    found = rows.withColumn("rows", count).where("rows > 1")
    return found.select(*DAY, "landing_seq", "message_id", "idempotency_key")


def first_of_each_day(rows: DataFrame, count: int, order: Sequence[str]) -> DataFrame:
    """So many rows of each day, the first by some columns, with the number of all that there are."""
    day = Window.partitionBy(*DAY)
    place = F.row_number().over(day.orderBy(*(F.asc_nulls_last(name) for name in order)))
    numbered = rows.withColumns({"place": place, "of_day": F.count("*").over(day)})
    return numbered.where(F.col("place") <= count).orderBy(*DAY, "place")


def _broadcast(wanted: DataFrame, is_sent: bool) -> DataFrame:
    """What is to be sent goes to all workers with rows that it is joined with; else both are sorted."""
    return F.broadcast(wanted) if is_sent else wanted
