"""Draw up the accounts of a topic's layers: every row, one by one, from the layer before to where it stands now."""

from collections.abc import Callable, Iterator, Mapping
from datetime import date

from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession

from leanops.commits import checkpoint_of, is_in_doubt
from leanops.contracts.model import Contract
from leanops.errors import LedgerImpossible
from leanops.few_rows import is_local
from leanops.inventory import table_days
from leanops.ledger.account import Account
from leanops.ledger.book import REFUSED, Book, Tally
from leanops.ledger.few import tally_few
from leanops.ledger.many import tally_many
from leanops.ledger.pending import PendingRows, built_upto, pending_rows
from leanops.names import SOURCE, Layer, table
from leanops.slices import SMALL, Slice, sized
from leanops.tables import find_table

LOCAL_ROWS = 10 * SMALL
"""Up to so many rows of tables that can be brought here are counted sooner than Spark has planned its first query."""


def draw_up(
    sessions: Callable[[], SparkSession],
    catalog: Catalog,
    topic: str,
    contract: Contract,
    layer: Layer,
    part: Slice | None = None,
) -> list[Account]:
    """A layer's account of each publish day, over all its rows or over those of a part, and what is pending.

    Before its first build by what the contract says, all that the layer before holds is pending, and nothing else is
    said. Nobody may build the topic meanwhile: a build writes errors before it publishes its rows.
    """
    held, source = (find_table(catalog, table(each, topic)) for each in (layer, SOURCE[layer]))
    if source is None:
        return []
    upto, is_of_days = built_upto(held, layer, contract), bool(part and part.days and not part.rows_landed)
    waiting = pending_rows(source, upto)
    if part and is_of_days:
        waiting = {day: rows for day, rows in waiting.items() if day in part.days}
    if held is None or not upto:
        return list(not_built(topic, layer, upto, waiting))
    read = checkpoint_of(held)[f"{SOURCE[layer]}-snapshot"]
    part = Slice(0, upto) if part is None else part.capped(upto)
    if layer is Layer.CURATED and source.snapshot_by_id(int(read)) is None:
        raise LedgerImpossible(
            f"Snapshot {read} of {'.'.join(source.name())}, from which Curated was built, has expired.",
            "Rebuild a day of the topic: Curated is then built from a snapshot that is there.",
        )
    rows = part.rows_landed + sum(day.rows for day in table_days(source, part.days).values())
    book = Book(sessions, catalog, topic, contract, layer, part, upto, read, is_in_doubt(held))
    if rows <= SMALL or (rows <= LOCAL_ROWS and is_local(source) and is_local(held)):
        return list(_accounts(book, tally_few(book), waiting))
    with sized(sessions(), rows):
        return list(_accounts(book, tally_many(book), waiting))


def not_built(topic: str, layer: Layer, upto: int, waiting: Mapping[date, PendingRows]) -> Iterator[Account]:
    """The accounts of days of which nothing is known but that rows are pending."""
    fates = {layer.value: 0, REFUSED[layer]: 0}
    if layer is Layer.STANDARDIZED:
        fates |= {"duplicates": 0, "superseded": 0}
    for day, rows in sorted(waiting.items()):
        yield Account(topic, layer, day, False, upto, 0, fates, pending=rows)


def _accounts(book: Book, tally: Tally, waiting: Mapping[date, PendingRows]) -> Iterator[Account]:
    is_of_days = book.part.days and not book.part.rows_landed
    for day in sorted(book.part.days if is_of_days else {*tally.came_in, *tally.shared, *waiting}):
        fates = {book.layer.value: tally.kept[day], REFUSED[book.layer]: tally.refused[day]}
        if book.layer is Layer.STANDARDIZED:
            fates |= {"duplicates": tally.duplicates[day], "superseded": tally.superseded[day]}
        yield Account(
            topic=book.topic,
            layer=book.layer,
            day=day,
            is_of_new_rows=not book.part.is_whole and not book.part.days,
            upto=book.upto,
            came_in=tally.came_in[day],
            fates=fates,
            findings=tally.findings[day],
            shared=tally.shared[day],
            pending=waiting.get(day, PendingRows()),
        )
