"""Rows that others append to RAW get their numbers, and nothing else of them changes."""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from leanops.contracts.reading import read_contract
from leanops.errors import DiskFull, LandingConflict
from leanops.home import Home
from leanops.inventory import row_count, rows_by_day
from leanops.pending import pending
from leanops.raw import numbering
from leanops.raw.files import ARROW_SCHEMA, RawFiles
from leanops.raw.landing import append_raw
from leanops.raw.numbering import number_rows
from leanops.raw.table import ensure_raw_table, landings, last_landing_seq
from leanops_resources.catalog import LocalCatalog

from .conftest import NoRoomBeyond, Together

UNNUMBERED = ARROW_SCHEMA.remove(ARROW_SCHEMA.get_field_index("landing_seq"))
CONTRACT = Path(__file__).parents[2] / "schemas" / "orders" / "active" / "schema.json"


@pytest.fixture
def catalog(home: Home) -> Catalog:
    return LocalCatalog(home).load()


@pytest.fixture
def raw(catalog: Catalog) -> Table:
    return ensure_raw_table(catalog, "orders")


def unnumbered(ids: Sequence[str], day: int = 1, payload: str = "{}") -> pa.Table:
    rows = [
        {
            "message_id": each,
            "topic_name": "orders",
            "json_payload": payload,
            "ingestion_ts": 1740830400 + place,
            "publish_time": datetime(2025, 3, day, 12, 30, 0, 123456, tzinfo=UTC),
            "idempotency_key": None if place % 2 else f"key of {each}",
        }
        for place, each in enumerate(ids)
    ]
    return pa.Table.from_pylist(rows, UNNUMBERED)


def others_append(table: Table, ids: Sequence[str], day: int = 1, payload: str = "{}") -> None:
    """Append as a Firehose does: PyIceberg's own files, without numbers and without a word about them."""
    table.refresh()
    table.append(unnumbered(ids, day, payload))


def we_append(table: Table, ids: Sequence[str], day: int = 1) -> None:
    table.refresh()
    assert append_raw(table, [unnumbered(ids, day)], {})


def elsewhere(home: Home) -> Table:
    """The table as another process has it."""
    return ensure_raw_table(LocalCatalog(home).load(), "orders")


def numbers(table: Table) -> dict[str, int | None]:
    table.refresh()
    rows = table.scan(selected_fields=("message_id", "landing_seq")).to_arrow().to_pylist()
    return {row["message_id"]: row["landing_seq"] for row in rows}


def everything_but_numbers(table: Table) -> list[dict[str, Any]]:
    table.refresh()
    rows = table.scan().to_arrow().drop_columns(["landing_seq"]).to_pylist()
    return sorted(rows, key=lambda row: str(row["message_id"]))


def files(table: Table) -> list[Path]:
    table.refresh()
    return [Path(task.file.file_path.removeprefix("file://")) for task in table.scan().plan_files()]


def test_rows_are_numbered_in_the_order_of_their_commits_and_of_their_places(raw: Table) -> None:
    for ids in (["c", "a", "b"], ["z"], ["y", "x"]):
        others_append(raw, ids)
    assert number_rows(raw) == 6
    assert numbers(raw) == {"c": 1, "a": 2, "b": 3, "z": 4, "y": 5, "x": 6}
    assert last_landing_seq(raw) == 6


def test_numbers_go_on_behind_those_that_are_there_whoever_came_first(raw: Table) -> None:
    we_append(raw, ["a", "b"])
    others_append(raw, ["c", "d"])
    we_append(raw, ["e"])
    assert number_rows(raw) == 2
    assert numbers(raw) == {"a": 1, "b": 2, "c": 4, "d": 5, "e": 3}
    we_append(raw, ["f"])
    assert numbers(raw)["f"] == 6


def test_nothing_but_the_numbers_changes(raw: Table) -> None:
    we_append(raw, ["a"])
    others_append(raw, ["b", "c"], day=2, payload='{"n": 1.10, "text": "ü \\\\u0000"}')
    others_append(raw, ["d"], day=3)
    before, by_day = everything_but_numbers(raw), rows_by_day(raw)
    number_rows(raw)
    assert everything_but_numbers(raw) == before
    assert (rows_by_day(raw), row_count(raw)) == (by_day, 4)


def test_rows_of_several_days_in_several_chunks_are_numbered_without_gaps(
    raw: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numbering, "CHUNK_BYTES", 1)
    others_append(raw, ["a", "b"], day=1)
    both_days = pa.concat_tables([unnumbered(["c"], day=2), unnumbered(["d"], day=1), unnumbered(["e"], day=2)])
    raw.append(both_days)
    before = rows_by_day(raw)
    assert number_rows(raw) == 5
    assert sorted(numbers(raw).values()) == [1, 2, 3, 4, 5]  # type: ignore[type-var]
    assert rows_by_day(raw) == before == {date(2025, 3, 1): 3, date(2025, 3, 2): 2}


def test_all_rows_are_numbered_by_one_commit_which_counts_as_a_landing(raw: Table) -> None:
    others_append(raw, ["a"], day=1)
    others_append(raw, ["b"], day=2)
    before = len(raw.snapshots())
    assert landings(raw) == []
    number_rows(raw)
    raw.refresh()
    assert len(raw.snapshots()) == before + 1
    assert len(landings(raw)) == 1


def test_where_all_rows_have_numbers_nothing_is_read_and_nothing_committed(
    raw: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert number_rows(raw) == 0
    we_append(raw, ["a", "b"])
    others_append(raw, ["c"])
    number_rows(raw)
    snapshots = raw.refresh().snapshots()
    monkeypatch.delattr(numbering, "ArrowScan")
    assert number_rows(raw) == 0
    assert raw.refresh().snapshots() == snapshots


def test_files_of_rows_with_numbers_stay_as_they_are(raw: Table) -> None:
    we_append(raw, ["a"])
    ours = files(raw)
    others_append(raw, ["b"])
    (theirs,) = set(files(raw)) - set(ours)
    number_rows(raw)
    assert set(ours) < set(files(raw))
    assert theirs not in files(raw)


def test_a_file_in_which_only_some_rows_have_numbers_keeps_those(raw: Table) -> None:
    we_append(raw, ["a", "b"])
    others_append(raw, ["c", "d"])
    raw.overwrite(raw.scan().to_arrow())  # as a compaction puts them into one file
    assert len(files(raw)) == 1
    assert number_rows(raw) == 2
    found = numbers(raw)
    assert (found["a"], found["b"]) == (1, 2)
    assert {found["c"], found["d"]} == {3, 4}


def test_a_build_sees_the_rows_when_they_have_numbers_and_not_before(raw: Table, catalog: Catalog) -> None:
    contract = read_contract(CONTRACT.read_bytes(), "orders", "here")
    others_append(raw, ["a"], day=2)
    assert pending(catalog, "orders", contract) is None
    number_rows(raw)
    waiting = pending(catalog, "orders", contract)
    assert waiting
    assert (waiting.days, waiting.upto) == ({date(2025, 3, 2)}, 1)


def test_who_is_overtaken_numbers_again_behind_the_faster_one(
    raw: Table, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    others_append(raw, ["a", "b"])
    overtaken_by(lambda: we_append(elsewhere(home), ["fast"]), times=1, monkeypatch=monkeypatch)
    assert number_rows(raw) == 2
    assert numbers(raw) == {"fast": 1, "a": 2, "b": 3}
    assert len(list(home.warehouse.rglob("*.parquet"))) == 3


def test_rows_that_others_append_meanwhile_are_numbered_too(
    raw: Table, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    others_append(raw, ["a"])
    overtaken_by(lambda: others_append(elsewhere(home), ["b"]), times=1, monkeypatch=monkeypatch)
    assert number_rows(raw) == 2
    assert numbers(raw) == {"a": 1, "b": 2}


def test_who_is_overtaken_time_and_again_says_so_and_leaves_nothing(
    raw: Table, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    others_append(raw, ["a"])
    monkeypatch.setattr(numbering, "ATTEMPTS", 2)
    overtaken_by(lambda: others_append(elsewhere(home), ["other"]), times=2, monkeypatch=monkeypatch)
    with pytest.raises(LandingConflict, match="orders_staging"):
        number_rows(raw)
    assert set(numbers(raw).values()) == {None}
    assert len(list(home.warehouse.rglob("*.parquet"))) == 3


def overtaken_by(commit: Callable[[], None], times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let somebody else commit while the numbered files are being written."""
    whole, commits = RawFiles.write, [commit] * times

    def write(files: RawFiles, rows: pa.Table) -> Iterator[DataFile]:
        if commits and rows["message_id"][0].as_py() != "fast":
            commits.pop()()
        yield from whole(files, rows)

    monkeypatch.setattr(RawFiles, "write", write)


def test_two_that_number_the_same_rows_at_once_number_them_once(raw: Table, home: Home, together: Together) -> None:
    for number in range(5):
        others_append(raw, [f"{number}"], day=number + 1)
    counts = together([lambda: number_rows(elsewhere(home)), lambda: number_rows(elsewhere(home))])
    assert sorted(counts) == [0, 5]
    assert sorted(numbers(raw).values()) == [1, 2, 3, 4, 5]  # type: ignore[type-var]


def test_numbering_that_is_cut_off_leaves_the_table_as_it_was(
    raw: Table, home: Home, no_room_beyond: NoRoomBeyond
) -> None:
    noise = json.dumps({"a": os.urandom(200_000).hex()})
    others_append(raw, ["a"], payload=noise)
    before = {path for path in home.warehouse.rglob("*") if path.is_file()}
    with no_room_beyond(100_000), pytest.raises(DiskFull):
        number_rows(raw)
    assert {path for path in home.warehouse.rglob("*") if path.is_file()} == before
    assert numbers(raw) == {"a": None}
    assert number_rows(raw) == 1
