"""Which files may hold rows of some numbers, by what their metadata says."""

import numpy as np
import pytest
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import FileScanTask
from pyiceberg.typedef import Record

from leanops.table_files import NO_DAY, PackedFiles, TableFile, has_between


def file_of(name: str, first: int | None, last: int | None, *, may_lack_seq: bool = False) -> TableFile:
    file = DataFile.from_args(
        content=DataFileContent.DATA, file_path=name, file_format=FileFormat.PARQUET, partition=Record(0)
    )
    return TableFile(FileScanTask(file), NO_DAY, first, last, may_lack_seq, None, None)


OLD, NEW, UNKNOWN = file_of("old", 1, 10), file_of("new", 11, 20), file_of("unknown", None, None, may_lack_seq=True)
FILES = (OLD, NEW, UNKNOWN)


@pytest.mark.parametrize(
    ("seqs", "first", "last", "expected"),
    [
        ([], 1, 10, False),
        ([0, 11], 1, 10, False),
        ([0, 10, 11], 1, 10, True),
        ([1], 1, 10, True),
        (range(2, 5), 1, 10, True),
        (range(11, 2**61), 1, 10, False),
        (range(-(2**61), 2), 1, 10, True),
    ],
)
def test_numbers_in_order_are_searched_for_one_between_two(
    seqs: list[int] | range, first: int, last: int, expected: bool
) -> None:
    assert has_between(seqs, first, last) is expected


@pytest.mark.parametrize(
    ("seqs", "names"),
    [([5], ["old", "unknown"]), ([10, 11], ["old", "new", "unknown"]), ([99], ["unknown"]), ([], [])],
)
def test_a_file_that_says_nothing_of_numbers_may_hold_any(seqs: list[int], names: list[str]) -> None:
    assert [each.file.file_path for each in FILES if each.may_hold_any(seqs)] == names
    packed = PackedFiles.of(FILES)
    assert [task.file.file_path for task, _ in packed.having(np.array(seqs, np.int64))] == names


def test_files_beyond_a_number_are_those_that_may_hold_later_rows_or_rows_without_one() -> None:
    packed = PackedFiles.of(FILES)
    assert [task.file.file_path for task in packed.beyond(10)] == ["new", "unknown"]
    assert [task.file.file_path for task in packed.beyond(None)] == ["old", "new", "unknown"]
    assert [task.file.file_path for task, _ in packed.having(np.array([5, 15]), upto=10)] == ["old"]
