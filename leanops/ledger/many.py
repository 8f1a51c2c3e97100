"""The tally of any number of rows: they stay where they are, and only counts and the first that are wrong come here."""

from collections import Counter, defaultdict
from collections.abc import Callable
from datetime import date

from pyspark.sql import DataFrame, Row
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
)
from leanops.names import Layer
from leanops.standardized.transform import Fate


def tally_many(book: Book) -> Tally:
    """Where each row stands."""
    tally, unwritten, odd = Tally(), Counter[date](), Counter[date]()
    stand = checkpointed(standing(book.came_in(), book.kept(), book.refused()))
    for row in stand.groupBy("day", *PLACES, is_unwritten().alias("u"), is_odd().alias("o")).count().collect():
        tally.add(row.day, row["count"], *(row[each] for each in PLACES))
        unwritten[row.day] += row["count"] * row.u
        odd[row.day] += row["count"] * row.o
    wrong = stand.where(is_odd())
    if book.layer is Layer.STANDARDIZED:
        _explain(book, tally, stand.where(is_unwritten()), unwritten)
    else:
        wrong, odd = stand.where(is_odd() | is_unwritten()), odd + unwritten
    _note(tally, wrong, odd, lambda row: book.problem(*(row[each] for each in PLACES)))
    _note_shared(book, tally)
    return tally


def _explain(book: Book, tally: Tally, unwritten: DataFrame, count: Counter[date]) -> None:
    """Count the messages that were rightly not written, by the reason; those that are left are lost."""
    if not count.total():
        return
    messages = book.landed().join(unwritten.select("landing_seq"), "landing_seq", "left_semi")
    mine = checkpointed(book.read_keys(messages))
    copies = book.landed().join(mine.select("message_id").distinct(), "message_id", "left_semi")
    told = checkpointed(fates_of_unwritten(mine, copies, book.table(Layer.STANDARDIZED)))
    lost = Counter[date]()
    by_fate = {Fate.DUPLICATE: tally.duplicates, Fate.SUPERSEDED: tally.superseded, LOST: lost}
    for row in told.groupBy("day", "fate").count().collect():
        by_fate[row.fate][row.day] += row["count"]
    _note(tally, told.where(F.col("fate") == LOST), lost, lambda _: book.problem(1, 0, 0))


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
    again = rows.groupBy("idempotency_key").count().where("count > 1").select("idempotency_key")
    keys = [row.idempotency_key for row in again.limit(SHOWN).collect()]
    if keys:
        named = rows.where(F.col("idempotency_key").isin(keys)).withColumn("day", publish_day())
        for row in named.orderBy("idempotency_key", "landing_seq").collect():
            finding = Finding(row.landing_seq, row.message_id, f"its record {row.idempotency_key} has another row")
            tally.shared[row.day] = tally.shared[row.day].and_also(Findings(1, [finding]))
