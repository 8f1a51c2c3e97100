"""The tally of any number of rows: they stay where they are, and only counts and the first that are wrong come here."""

from collections import Counter, defaultdict
from collections.abc import Callable
from datetime import date

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from leanops.checkpointed import checkpointed
from leanops.ledger.account import SHOWN, Finding, Findings
from leanops.ledger.book import Book, Tally
from leanops.ledger.rows import (
    LOST,
    PLACES,
    fates_of_unwritten,
    first_of_each_day,
    is_odd,
    is_unwritten,
    publish_day,
    standing,
    standing_by_number,
)
from leanops.names import Layer
from leanops.picked import hinted
from leanops.standardized.transform import RECORD_KEY, Fate


def tally_many(book: Book) -> Tally:
    """Where each row stands."""
    tally, unwritten, odd = Tally(), 0, 0
    stand = checkpointed(standing_by_number(book.came_in(), book.kept(), book.refused()))
    is_wrong = (is_odd().alias("is_odd"), is_unwritten().alias("is_unwritten"))
    for row in stand.groupBy("day", *PLACES, *is_wrong).agg(F.sum("rows").alias("rows")).collect():
        tally.add(row.day, row.rows, *(row[each] for each in PLACES))
        unwritten += row.rows * row.is_unwritten
        odd += row.rows * row.is_odd
    is_finding = is_odd()
    if book.layer is Layer.STANDARDIZED:
        _explain(book, tally, stand.where(is_unwritten()), unwritten)
    else:
        is_finding, odd = is_odd() | is_unwritten(), odd + unwritten
    if odd:
        _name(book, tally, stand, is_finding)
    _note_shared(book, tally)
    return tally


def _explain(book: Book, tally: Tally, unwritten: DataFrame, count: int) -> None:
    """Count the messages that were rightly not written, by the reason; those that are left are lost."""
    if not count:
        return
    messages = book.landed().join(hinted(unwritten.select("landing_seq"), count), "landing_seq", "left_semi")
    mine = checkpointed(book.read_keys(messages))
    ids, keys = mine.select("message_id").distinct(), mine.select(F.col(RECORD_KEY).alias("idempotency_key")).distinct()
    copies = book.landed().join(hinted(ids, count), "message_id", "left_semi")
    versions = book.table(Layer.STANDARDIZED).join(hinted(keys, count), "idempotency_key", "left_semi")
    told = checkpointed(fates_of_unwritten(mine, copies, versions))
    lost = Counter[date]()
    by_fate = {Fate.DUPLICATE: tally.duplicates, Fate.SUPERSEDED: tally.superseded, LOST: lost}
    for row in told.groupBy("day", "fate").count().collect():
        by_fate[row.fate][row.day] += row["count"]
    _note(tally, told.where(F.col("fate") == LOST), lost, lambda _: book.problem(1, 0, 0))


def _name(book: Book, tally: Tally, stand: DataFrame, is_finding: Column) -> None:
    """Look at the rows that are findings again, by their ids."""
    numbers = stand.where(is_finding).select(F.col("landing_seq").alias("number")).distinct()
    is_wanted = F.col("landing_seq").eqNullSafe(F.col("number"))
    frames = (each.join(numbers, is_wanted, "left_semi") for each in (book.came_in(), book.kept(), book.refused()))
    named = checkpointed(standing(*frames).where(is_finding))
    counts = Counter({row.day: row["count"] for row in named.groupBy("day").count().collect()})
    _note(tally, named, counts, lambda row: book.problem(*(row[each] for each in PLACES)))


def _note(tally: Tally, rows: DataFrame, counts: Counter[date], problem: Callable[[Row], str]) -> None:
    """How many such rows each day has, and the first of them."""
    found = defaultdict[date, list[Finding]](list)
    for row in first_of_each_day(rows, SHOWN).collect() if counts.total() else ():
        found[row.day].append(Finding(row.landing_seq, row.message_id, problem(row)))
    for day, first in found.items():
        tally.findings[day] = tally.findings[day].and_also(Findings(counts[day], first))


def _note_shared(book: Book, tally: Tally) -> None:
    """The rows whose record has another row. Where only a part is looked at, the other may stand anywhere."""
    rows = book.table(book.layer)
    if not book.part.is_whole:
        rows = rows.join(book.kept().select("idempotency_key").distinct(), "idempotency_key", "left_semi")
    # Keys of any length are counted by their hashes first. Two keys with one hash are told apart afterwards.
    hashed = rows.select("idempotency_key", F.xxhash64("idempotency_key").alias("hash"))
    again = [row.hash for row in hashed.groupBy("hash").count().where("count > 1").limit(SHOWN).collect()]
    if not again:
        return
    twice = hashed.where(F.col("hash").isin(again)).groupBy("idempotency_key").count().where("count > 1")
    keys = [row.idempotency_key for row in twice.collect()]
    if keys:
        named = rows.where(F.col("idempotency_key").isin(keys)).withColumn("day", publish_day())
        for row in named.orderBy("idempotency_key", "landing_seq").collect():
            tally.add_shared(row)
