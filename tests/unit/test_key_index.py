"""A key index says yes of all that is in it, from whatever files it was put together; a damaged one says so."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table

from leanops.home import Home
from leanops.key_index.entries import Entries, PackedEntries, hashes_of
from leanops.key_index.file import NOTHING, IndexUpdate, KeyFile, KeyIndex, KeyIndexUnreadable, Kind
from leanops.raw.table import ensure_raw_table
from leanops_resources.catalog import LocalCatalog

IO = PyArrowFileIO()
BEGINNING = datetime(2025, 1, 1, tzinfo=UTC)


def rows(keys: Sequence[str], first: int = 1, seqs: Sequence[int] | None = None) -> pa.Table:
    numbers = seqs or range(first, first + len(keys))
    return pa.table(
        {
            "message_id": pa.array(keys, pa.string()),
            "idempotency_key": pa.array([f"key of {key}" for key in keys], pa.string()),
            "landing_seq": pa.array(numbers, pa.int64()),
            "publish_time": pa.array(
                [BEGINNING + timedelta(days=seq % 5) for seq in numbers], pa.timestamp("us", "UTC")
            ),
        }
    )


def entries_of(landed: pa.Table) -> dict[Kind, list[Entries]]:
    return {kind: [Entries.of(landed, kind)] for kind in Kind}


def found(index: KeyIndex, kind: Kind, values: Sequence[str]) -> set[int]:
    return {*index.having(kind, hashes_of(pa.chunked_array([pa.array(values, pa.string())]))).seqs.tolist()}


@pytest.fixture
def table(home: Home) -> Table:
    return ensure_raw_table(LocalCatalog(home).load(), "orders")


@given(st.lists(st.lists(st.text(max_size=20), max_size=30), max_size=6), st.integers(1, 60))
@settings(max_examples=60, deadline=None)
def test_whatever_builds_have_added_is_found_and_says_where_it_is(
    tmp_path_factory: pytest.TempPathFactory, landings: list[list[str]], most_young: int
) -> None:
    metadata = _Metadata(str(tmp_path_factory.mktemp("table")))
    last, upto, expected = None, 0, dict[str, set[int]]()
    for landing in landings:
        landed = rows(landing, upto + 1)
        for place, key in enumerate(landing):
            expected.setdefault(key, set()).add(upto + 1 + place)
        upto += len(landing)
        file = IndexUpdate(last, upto, most_young=most_young).write(IO, metadata, entries_of(landed))  # type: ignore[arg-type]
        assert file
        last = file.statistics_of(1)
    index = KeyIndex.read(IO, last.statistics_path).whole(IO) if last else NOTHING
    for key, seqs in expected.items():
        assert found(index, Kind.ID, [key]) >= seqs
        assert found(index, Kind.KEY, [f"key of {key}"]) >= seqs


class _Metadata:
    """What an index asks of a table's metadata: where it is."""

    properties: dict[str, str] = {}  # noqa: RUF012

    def __init__(self, location: str) -> None:
        self.location = location


def written(table: Table, keys: Sequence[str], upto: int) -> KeyFile:
    file = IndexUpdate(None, upto).write(table.io, table.metadata, entries_of(rows(keys)))
    assert file
    return file


def test_any_bit_that_is_changed_in_a_file_is_noticed_or_changes_nothing(table: Table) -> None:
    keys = [f"m{number}" for number in range(40)]
    file = written(table, keys, 40)
    place = Path(file.path.removeprefix("file://"))
    content = place.read_bytes()
    for at in range(len(content)):
        place.write_bytes(content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :])
        try:
            index = KeyIndex.read(table.io, file.path)
        except KeyIndexUnreadable:
            continue
        assert found(index, Kind.ID, keys) == {*range(1, 41)}, f"byte {at}"
        assert (index.upto, index.base) == (40, None), f"byte {at}"


@pytest.mark.parametrize("content", [b"", b"PFA1", b"PFA1PFA1", b"x" * 100])
def test_a_file_that_is_no_index_is_unreadable(table: Table, content: bytes) -> None:
    file = written(table, ["m1"], 1)
    Path(file.path.removeprefix("file://")).write_bytes(content)
    with pytest.raises(KeyIndexUnreadable):
        KeyIndex.read(table.io, file.path)


def test_an_index_whose_older_part_is_gone_is_unreadable_and_is_not_gone_on_from(table: Table) -> None:
    base = written(table, ["m1"], 1)
    file = IndexUpdate(base.statistics_of(1), 2, most_young=10).write(
        table.io, table.metadata, entries_of(rows(["m2"], 2))
    )
    assert file
    assert KeyIndex.read(table.io, file.path).base == base.path
    assert found(KeyIndex.read(table.io, file.path).whole(table.io), Kind.ID, ["m1", "m2"]) == {1, 2}

    table.io.delete(base.path)
    with pytest.raises(KeyIndexUnreadable):
        KeyIndex.read(table.io, file.path).whole(table.io)
    again = IndexUpdate(replace(file, size=1).statistics_of(2), 3, most_young=0)
    assert again.write(table.io, table.metadata, entries_of(rows(["m3"], 3))) is None


@pytest.mark.parametrize("most_young", [0, 10, 1_000])
def test_keys_of_rows_that_are_gone_are_not_found_until_they_come_back(table: Table, most_young: int) -> None:
    def updated(last: KeyFile | None, more: pa.Table, gone: Sequence[int], is_anew: bool = False) -> KeyFile:
        previous = last.statistics_of(1) if last else None
        update = IndexUpdate(previous, 9, is_anew, most_young)
        file = update.write(table.io, table.metadata, entries_of(more), gone)
        assert file
        return file

    def keys_of(file: KeyFile) -> set[int]:
        return found(KeyIndex.read(table.io, file.path).whole(table.io), Kind.KEY, ["key of a", "key of b"])

    first = updated(None, rows(["a", "b"]), ())
    second = updated(first, rows(["a"], 3), [1])
    assert keys_of(second) == {2, 3}
    assert found(KeyIndex.read(table.io, second.path).whole(table.io), Kind.ID, ["a"]) == {1, 3}
    assert keys_of(updated(second, rows(["a"]), [3], is_anew=True)) == {1, 2}


def test_entries_that_come_twice_are_kept_once() -> None:
    twice = Entries.all_of([Entries.of(rows(["a", "b"]), Kind.ID), Entries.of(rows(["b", "a"], seqs=[2, 1]), Kind.ID)])
    assert np.array_equal(twice.packed().unpacked().seqs, [1, 2])


@given(
    st.lists(st.tuples(st.integers(-1, 2**40), st.integers(0, 5), st.integers(-3, 3)), unique_by=lambda each: each[0])
)
def test_entries_are_the_same_when_they_have_been_written(values: list[tuple[int, int, int]]) -> None:
    seqs, hashes, days = zip(*sorted(values), strict=True) if values else ((), (), ())
    entries = Entries(np.array(hashes, np.uint32), np.array(seqs, np.int64), np.array(days, np.int32))
    again = PackedEntries.decoded(entries.packed().encoded()).unpacked()
    assert all(np.array_equal(one, other) for one, other in zip(entries, again, strict=True))


def test_a_million_entries_take_a_little_over_four_bytes_each() -> None:
    seqs = np.arange(1_000_000, dtype=np.int64)
    hashes = np.random.default_rng(0).integers(0, 2**32, len(seqs), np.uint32)
    index = NOTHING.extended(
        {Kind.ID: [Entries(hashes, seqs, (seqs // 10_000).astype(np.int32))], Kind.KEY: []}, (), len(seqs)
    )
    assert sum(len(blob) for _, blob in index._blobs()) < 4.1 * len(seqs)
