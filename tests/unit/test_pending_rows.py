"""Rows that a layer has not built yet are counted in the data, by day, with when the first of them landed."""

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from leanops.home import Home
from leanops.ledger.pending import PendingRows, pending_rows
from leanops.names import Layer
from leanops.ops.reconciliation_log import RECONCILIATION_LOG, RECONCILIATION_SCHEMA, ledger_row, log_ledgers
from leanops.raw.files import ARROW_SCHEMA
from leanops.raw.landing import land_file
from leanops.raw.table import ensure_raw_table
from leanops.tables import ensure_table
from leanops_resources.catalog import LocalCatalog

FIRST, SECOND = date(2025, 3, 1), date(2025, 3, 2)


@pytest.fixture
def catalog(home: Home) -> Catalog:
    return LocalCatalog(home).load()


def land(home: Home, catalog: Catalog, rows: Sequence[tuple[str, date, int]]) -> Table:
    """Messages with their publish days and the seconds at which they landed."""
    file = home.path / "messages.ndjson"
    lines = (
        {"message_id": id_, "publish_time": f"{day}T08:00:00Z", "ingestion_ts": second, "payload": {}}
        for id_, day, second in rows
    )
    file.write_text("\n".join(map(json.dumps, lines)))
    land_file(catalog, "orders", file, date(2025, 1, 1))
    return ensure_raw_table(catalog, "orders")


def test_rows_above_a_number_are_pending_by_day(home: Home, catalog: Catalog) -> None:
    land(home, catalog, [("a", FIRST, 100), ("b", FIRST, 90), ("c", SECOND, 110)])
    raw = land(home, catalog, [("d", SECOND, 200), ("e", SECOND, 190)])
    assert pending_rows(raw, 0) == {FIRST: PendingRows(2, 90), SECOND: PendingRows(3, 110)}
    assert pending_rows(raw, 1) == {FIRST: PendingRows(1, 90), SECOND: PendingRows(3, 110)}
    assert pending_rows(raw, 3) == {SECOND: PendingRows(2, 190)}
    assert pending_rows(raw, 4) == {SECOND: PendingRows(1, 190)}
    assert pending_rows(raw, 5) == {}
    assert pending_rows(raw, 3)[SECOND].since == datetime(1970, 1, 1, 0, 3, 10, tzinfo=UTC)


def test_files_that_hold_nothing_else_are_not_read(
    home: Home, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = land(home, catalog, [(f"m{number}", FIRST, number) for number in range(1, 11)])
    read = list[int]()
    whole = ArrowScan.to_record_batches

    def watch(scan: ArrowScan, tasks: list[object]) -> Iterator[pa.RecordBatch]:
        read.append(len(tasks))
        return whole(scan, tasks)  # type: ignore[arg-type]

    monkeypatch.setattr(ArrowScan, "to_record_batches", watch)
    assert pending_rows(raw, 0)[FIRST].rows == 10
    assert read == []
    assert pending_rows(raw, 9)[FIRST] == PendingRows(1, 10)
    assert read == [1]


def test_rows_that_were_deleted_are_not_pending_and_those_without_a_number_are(home: Home, catalog: Catalog) -> None:
    raw = land(home, catalog, [("a", FIRST, 100), ("b", FIRST, 90)])
    raw.delete("message_id == 'b'")
    others = {"message_id": "c", "publish_time": datetime(2025, 3, 2, tzinfo=UTC), "ingestion_ts": 7}
    raw.append(pa.Table.from_pylist([others], ARROW_SCHEMA))
    assert pending_rows(raw, 0) == {FIRST: PendingRows(1, 100), SECOND: PendingRows(1, 7)}
    assert pending_rows(raw, 2) == {SECOND: PendingRows(1, 7)}


def test_a_log_of_an_older_home_takes_pending_rows(catalog: Catalog) -> None:
    before = Schema(*(field for field in RECONCILIATION_SCHEMA.fields if not field.name.startswith("pending")))
    log = ensure_table(catalog, RECONCILIATION_LOG, before, PartitionSpec())
    assert "pending" not in log.schema().column_names
    since = datetime(2026, 1, 15, 8, tzinfo=UTC)
    numbers = {"pending": 3, "pending_since": since.isoformat()}
    log_ledgers(catalog, [ledger_row("orders", Layer.STANDARDIZED, FIRST, "run", numbers)])
    log_ledgers(catalog, [ledger_row("orders", Layer.CURATED, FIRST, "run", {"pending": 0})])
    rows = catalog.load_table(RECONCILIATION_LOG).scan().to_arrow().sort_by("layer").to_pylist()
    assert [(row["pending"], row["pending_since"]) for row in rows] == [(0, None), (3, since)]
