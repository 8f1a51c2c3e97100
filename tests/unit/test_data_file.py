"""A data file is read by Iceberg's rules: columns by their ids, deleted positions left out."""

from collections.abc import Sequence
from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io import load_file_io
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import FileScanTask
from pyiceberg.typedef import Record

from leanops.batch.data_file import POSITION, read_data_file
from leanops.errors import TableUnreadable
from leanops.slices import Slice

IO = load_file_io({})


def written(file: Path, columns: dict[str, tuple[int, pa.Array]], rows_per_group: int = 2) -> FileScanTask:
    """A file whose columns have ids."""
    fields = [pa.field(name, each.type, metadata={"PARQUET:field_id": str(i)}) for name, (i, each) in columns.items()]
    rows = pa.table([each for _, each in columns.values()], schema=pa.schema(fields))
    pq.write_table(rows, file, row_group_size=rows_per_group)
    return FileScanTask(described(file, DataFileContent.DATA))


def described(file: Path, content: DataFileContent) -> DataFile:
    return DataFile.from_args(
        content=content,
        file_path=str(file),
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=1,
        file_size_in_bytes=file.stat().st_size,
    )


def with_deleted(task: FileScanTask, file: Path, places: Sequence[tuple[str, int]]) -> FileScanTask:
    paths, positions = zip(*places, strict=True)
    pq.write_table(pa.table({"file_path": paths, "pos": pa.array(positions, pa.int64())}), file)
    return FileScanTask(task.file, {described(file, DataFileContent.POSITION_DELETES)})


def rows_of(task: FileScanTask, columns: dict[int, str]) -> list[dict[str, object]]:
    return [row for part in read_data_file(IO, task, columns) for row in part.drop_columns([POSITION]).to_pylist()]


def positions_of(task: FileScanTask, seqs: list[int] | None = None) -> list[int]:
    return [place for part in read_data_file(IO, task, {1: "a"}, seqs) for place in part[POSITION].to_pylist()]


def test_a_column_is_found_by_its_id_whatever_it_was_called(tmp_path: Path) -> None:
    task = written(tmp_path / "a.parquet", {"old": (7, pa.array(["x", "y", "z"])), "new": (8, pa.array([1, 2, 3]))})
    assert rows_of(task, {7: "new"}) == [{"new": "x"}, {"new": "y"}, {"new": "z"}]


def test_a_column_that_came_later_is_null(tmp_path: Path) -> None:
    task = written(tmp_path / "a.parquet", {"a": (1, pa.array(["x", "y", "z"]))})
    assert rows_of(task, {1: "a", 2: "b"}) == [{"a": each, "b": None} for each in "xyz"]


def test_a_file_that_has_none_of_the_columns_still_has_its_rows(tmp_path: Path) -> None:
    task = written(tmp_path / "a.parquet", {"a": (1, pa.array(["x", "y", "z"]))})
    assert rows_of(task, {2: "b"}) == [{"b": None}] * 3


def test_deleted_positions_are_left_out_of_the_file_that_they_are_of(tmp_path: Path) -> None:
    task = written(tmp_path / "a.parquet", {"a": (1, pa.array(range(7)))})
    here, elsewhere = task.file.file_path, str(tmp_path / "b.parquet")
    deleted = with_deleted(task, tmp_path / "d.parquet", [(here, 0), (here, 3), (here, 6), (elsewhere, 1)])
    assert [row["a"] for row in rows_of(deleted, {1: "a"})] == [1, 2, 4, 5]


def test_deletes_by_equality_are_refused(tmp_path: Path) -> None:
    task = written(tmp_path / "a.parquet", {"a": (1, pa.array([1]))})
    refused = FileScanTask(task.file, {described(tmp_path / "a.parquet", DataFileContent.EQUALITY_DELETES)})
    with pytest.raises(TableUnreadable, match="deletes by equality"):
        rows_of(refused, {1: "a"})


MOMENTS = [datetime(2026, 1, day, 12, tzinfo=UTC) for day in (1, 2, 3)]
PART = Slice(20, 30, frozenset({date(2026, 1, 2)}))


@pytest.mark.parametrize(
    ("which", "expected"),
    [
        (PART.holds, [11, 21]),
        (PART.holds_or_later, [11, 21, 31]),
        (PART.holds_days_of, [11]),
        (PART.is_beside, [10]),
    ],
)
def test_the_rows_of_a_part_are_told_apart(which: object, expected: list[int]) -> None:
    rows = pa.table({"landing_seq": [10, 11, 21, 31], "publish_time": [MOMENTS[0], MOMENTS[1], MOMENTS[2], MOMENTS[2]]})
    assert rows.filter(which(rows))["landing_seq"].to_pylist() == expected  # type: ignore[operator]


def test_of_rows_that_are_wanted_by_their_numbers_only_such_parts_are_read_as_may_have_them(tmp_path: Path) -> None:
    numbered = {"a": (1, pa.array([*"uvwxyz"])), "landing_seq": (2, pa.array([1, 2, 5, 6, 9, 12]))}
    task = written(tmp_path / "a.parquet", numbered)
    assert positions_of(task) == [0, 1, 2, 3, 4, 5]
    assert positions_of(task, [6]) == [2, 3]
    assert positions_of(task, [2, 10]) == [0, 1, 4, 5]
    assert positions_of(task, [3]) == []
    bare = written(tmp_path / "b.parquet", {"a": (1, pa.array([*"xyz"]))})
    assert positions_of(bare, [3]) == [0, 1, 2], "a file that says nothing of numbers may have any"


def test_rows_without_a_number_are_in_no_part(tmp_path: Path) -> None:
    task = written(tmp_path / "a.parquet", {"publish_time": (1, pa.array(MOMENTS))}, rows_per_group=5)
    (rows,) = read_data_file(IO, task, {1: "publish_time", 2: "landing_seq"})
    assert not rows.filter(PART.holds(rows)).num_rows
    assert not rows.filter(PART.is_beside(rows)).num_rows
    assert rows.filter(PART.holds_or_later(rows)).num_rows == 1
