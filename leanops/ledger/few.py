"""The tally of a few rows: they are brought here, and the tables are asked for the very ids and keys that matter."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import date

from pyspark.sql import Row
from pyspark.sql import functions as F

from leanops.ledger.account import SHOWN, Finding, Findings
from leanops.ledger.book import Book, Tally
from leanops.ledger.rows import PLACES, publish_day, standing
from leanops.names import Layer
from leanops.standardized.transform import RECORD_KEY, VERSION


def tally_few(book: Book) -> Tally:
    """Where each row stands, in at most three queries."""
    tally, wrong, unwritten = Tally(), defaultdict[date, list[Finding]](list), []
    rows = standing(book.came_in(), book.kept(), book.refused()).collect()
    for row in rows:
        places = tuple(row[each] for each in PLACES)
        tally.add(row.day, 1, *places)
        if places == (1, 0, 0) and book.layer is Layer.STANDARDIZED:
            unwritten.append(row)
        elif places not in ((1, 1, 0), (1, 0, 1)):
            wrong[row.day].append(Finding(row.landing_seq, row.message_id, book.problem(*places)))

    copies = _copies(book, [row.message_id for row in unwritten])
    mine = {each.landing_seq: each for each in copies}
    firsts = {each.message_id: each.landing_seq for each in sorted(copies, key=lambda row: -row.landing_seq)}
    keys = {row.key for row in rows if row.key} | {mine[row.landing_seq][RECORD_KEY] for row in unwritten}
    versions = _versions(book, sorted(keys))
    for row in unwritten:
        me = mine[row.landing_seq]
        if firsts[me.message_id] < me.landing_seq:
            tally.duplicates[row.day] += 1
        elif not me.error_kind and any(_is_later(each, me) for each in versions[me[RECORD_KEY]]):
            tally.superseded[row.day] += 1
        else:
            wrong[row.day].append(Finding(row.landing_seq, row.message_id, book.problem(1, 0, 0)))
    for day, found in wrong.items():
        tally.findings[day] = Findings(len(found), sorted(found, key=_place)[:SHOWN])
    for shared in versions.values():
        for row in shared if len(shared) > 1 else ():
            tally.add_shared(row)
    return tally


def _copies(book: Book, ids: Sequence[str]) -> list[Row]:
    """All messages with these ids, and their records' keys."""
    if not ids:
        return []
    return book.read_keys(book.landed().where(F.col("message_id").isin(list(ids)))).collect()


def _versions(book: Book, keys: Sequence[str]) -> defaultdict[str, list[Row]]:
    """The rows of the layer that are of these records."""
    found: defaultdict[str, list[Row]] = defaultdict(list)
    if keys:
        rows = book.table(book.layer).where(F.col("idempotency_key").isin(list(keys)))
        for row in rows.select("idempotency_key", "landing_seq", *VERSION, publish_day()).collect():
            found[row.idempotency_key].append(row)
    return found


def _is_later(row: Row, than: Row) -> bool:
    return row.message_id != than.message_id and _version(row) > _version(than)


def _version(row: Row) -> tuple[object, ...]:
    return tuple(row[each] for each in VERSION)


def _place(finding: Finding) -> tuple[bool, int, str]:
    return finding.landing_seq is None, finding.landing_seq or 0, finding.message_id
