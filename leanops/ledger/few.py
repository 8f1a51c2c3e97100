"""The tally of a few rows: they are brought here, and the tables are asked for the very ids and keys that matter."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from datetime import date
from typing import Any

import pyarrow.compute as pc
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, EqualTo, IsNull

from leanops.few_rows import few_rows, rows_called
from leanops.inventory import NO_DAY, row_count
from leanops.ledger.account import SHOWN, Finding, Findings
from leanops.ledger.book import Book, Tally
from leanops.names import ERRORS, SOURCE, Layer, table
from leanops.standardized.payload_reader import read_records
from leanops.standardized.table import key_plan
from leanops.standardized.transform import VERSION

Row = dict[str, Any]
Same = tuple[int | None, str, date]
"""A row is the same row if it has the same number, message and publish day."""

_NAMED = ("landing_seq", "message_id", "publish_time")
_VERSIONS = (*_NAMED, "idempotency_key", "ingestion_ts")
_WRITTEN, _REFUSED, _UNWRITTEN = (1, 1, 0), (1, 0, 1), (1, 0, 0)


def tally_few(book: Book) -> Tally:
    """Where each row stands."""
    tally, wrong, unwritten = Tally(), defaultdict[date, list[Finding]](list), list[Same]()
    came_in, kept, refused = _came_in(book), _kept(book), _refused(book)
    counts = [Counter(map(_same, rows)) for rows in (came_in, kept, refused)]
    for same in {**counts[0], **counts[1], **counts[2]}:
        seq, message_id, day = same
        places = counts[0][same], counts[1][same], counts[2][same]
        tally.add(day, 1, *places)
        if places == _UNWRITTEN and book.layer is Layer.STANDARDIZED:
            unwritten.append(same)
        elif places not in (_WRITTEN, _REFUSED):
            wrong[day].append(Finding(seq, message_id, book.problem(*places)))

    copies = list(_copies(book, {message_id for _, message_id, _ in unwritten}))
    mine = {each["landing_seq"]: each for each in copies}
    firsts = {each["message_id"]: each["landing_seq"] for each in sorted(copies, key=lambda row: -row["landing_seq"])}
    keys = {row["idempotency_key"] for row in kept} | {mine[seq]["key"] for seq, _, _ in unwritten}
    versions = _versions(book, keys, kept)
    for seq, message_id, day in unwritten:
        me = mine[seq]
        if firsts[message_id] < me["landing_seq"]:
            tally.duplicates[day] += 1
        elif me["is_readable"] and any(_is_later(each, me) for each in versions[me["key"]]):
            tally.superseded[day] += 1
        else:
            wrong[day].append(Finding(seq, message_id, book.problem(*_UNWRITTEN)))
    for day, found in wrong.items():
        tally.findings[day] = Findings(len(found), sorted(found, key=_place)[:SHOWN])
    for shared in versions.values():
        for row in shared if len(shared) > 1 else ():
            tally.add_shared(row)
    return tally


def _came_in(book: Book) -> list[Row]:
    source = book.catalog.load_table(table(SOURCE[book.layer], book.topic))
    at = int(book.read) if book.layer is Layer.CURATED else None
    rows: list[Row] = few_rows(source, _NAMED, book.part.filter, at).to_pylist()
    return rows


def _kept(book: Book) -> list[Row]:
    """What stands in the layer, whatever number it claims to have."""
    held = book.catalog.load_table(table(book.layer, book.topic))
    rows: list[Row] = few_rows(held, _VERSIONS, _whatever_number(book)).to_pylist()
    return rows


def _whatever_number(book: Book) -> BooleanExpression:
    return AlwaysTrue() if book.part.is_whole else book.part.open_filter


def _refused(book: Book) -> list[Row]:
    part = book.part.filter if book.is_in_doubt else _whatever_number(book)
    own = And(EqualTo(term="topic_name", value=book.topic), part)
    held = book.catalog.load_table(table(ERRORS[book.layer], book.topic))
    where = And(own, IsNull(term="closed")) if book.layer is Layer.CURATED else own
    rows: list[Row] = few_rows(held, _NAMED, where).to_pylist()
    return rows


def _copies(book: Book, ids: Collection[str]) -> Iterator[Row]:
    """All messages with these ids, their records' keys, and whether they can be read."""
    raw = book.catalog.load_table(table(Layer.RAW, book.topic))
    columns = ("landing_seq", *VERSION, "idempotency_key", "json_payload")
    found = rows_called(book.sessions, raw, "message_id", ids, columns)
    rows = found.filter(pc.less_equal(found["landing_seq"], book.upto))
    read, keys = read_records(rows, key_plan(book.contract))
    for row, key, error in zip(rows.to_pylist(), keys, read.field("error_kind").to_pylist(), strict=True):
        yield {**row, "key": key, "is_readable": error is None}


def _versions(book: Book, keys: Collection[str], kept: list[Row]) -> defaultdict[str, list[Row]]:
    """The rows of the layer that are of these records. The table is not asked where all of it was looked at."""
    found: defaultdict[str, list[Row]] = defaultdict(list)
    held = book.catalog.load_table(table(book.layer, book.topic))
    if row_count(held) > len(kept):
        kept = rows_called(book.sessions, held, "idempotency_key", keys, _VERSIONS).to_pylist()
    for row in kept:
        found[row["idempotency_key"]].append({**row, "day": _same(row)[2]})
    return found


def _same(row: Row) -> Same:
    """Somebody may have taken its publish time away."""
    return row["landing_seq"], row["message_id"], row["publish_time"].date() if row["publish_time"] else NO_DAY


def _is_later(row: Row, than: Row) -> bool:
    return row["message_id"] != than["message_id"] and _version(row) > _version(than)


def _version(row: Row) -> tuple[Any, ...]:
    return tuple(row[each] for each in VERSION)


def _place(finding: Finding) -> tuple[bool, int, str]:
    return finding.landing_seq is None, finding.landing_seq or 0, finding.message_id
