"""Files of the landing folder that somebody writes while they are drained: every line comes, and comes whole."""

import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from leanops.landing_file import write_into_place
from leanops_resources.sources.file_state import is_complete
from leanops_resources.sources.folder import FolderSource, LandingFolder
from tests.writing import Writers, writing

MUCH = 10**9
LINES = 400
STILL = 0.05
DAY = 24 * 3600


@pytest.fixture
def writers() -> Iterator[Writers]:
    with writing() as begin:
        yield begin


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "landing" / "orders"
    path.mkdir(parents=True)
    return path


def drained(folder: Path, still: float = STILL, most: int = MUCH) -> list[str]:
    """What one drain receives and deletes."""
    source, found = FolderSource(folder, "orders", still), []
    while batch := source.receive(most, MUCH):
        found += [message.body.decode() for message in batch]
        source.delete(batch)
    return found


def until_still(path: Path, still: float = STILL) -> None:
    while not is_complete(path.stat(), still):
        time.sleep(still / 5)


def made_old(path: Path) -> None:
    """As if it had been written long ago: nobody can set a file's change time, so that it counts as put into place."""
    os.utime(path, (time.time() - DAY, time.time() - DAY))


@pytest.mark.parametrize("how", ["keeps it open", "opens anew"])
def test_half_a_file_that_is_drained_is_not_deleted_and_its_rest_comes(
    how: str, folder: Path, writers: Writers
) -> None:
    path = folder / "a.ndjson"
    first, second = ["".join(f"{n}~" for n in part) for part in (range(200), range(200, LINES))]
    writer = writers(path, [first, second], how)
    writer.write()
    until_still(path)
    assert drained(folder) == [str(n) for n in range(200)]
    assert path.exists() == (how == "keeps it open")
    writer.write()
    until_still(path)
    assert drained(folder) == [str(n) for n in range(200, LINES)]
    writer.close()
    assert drained(folder) == []
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("how", ["keeps it open", "opens anew"])
@pytest.mark.parametrize("still", [0, 0.01])
def test_whenever_it_is_drained_every_line_comes_once(how: str, still: float, folder: Path, writers: Writers) -> None:
    writer = writers(folder / "a.ndjson", [f"{n}~" for n in range(LINES)], how)
    found = []
    while writer.write():
        found += drained(folder, still, most=3)
    writer.close()
    while (folder / "a.ndjson").exists():
        found += drained(folder, still)
    assert Counter(found) == Counter(str(n) for n in range(LINES))
    assert list(folder.iterdir()) == []


def test_a_line_comes_when_its_writer_has_written_all_of_it(folder: Path, writers: Writers) -> None:
    path = folder / "a.ndjson"
    writer = writers(path, ["1~2", "2~3", "3"])
    found = []
    for _ in range(3):
        writer.write()
        until_still(path)
        found.append(drained(folder))
    assert found == [["1"], ["22"], []]
    writer.close()
    assert drained(folder) == ["33"], "the last line needs no end when nobody can add to it"
    assert list(folder.iterdir()) == []


def test_a_file_that_was_renamed_while_it_is_written_comes_whole(folder: Path, writers: Writers) -> None:
    writer = writers(folder / ".a", ["1~2~", "3~", "4~"])
    writer.write()
    (folder / ".a").rename(folder / "a.ndjson")
    made_old(folder / "a.ndjson")
    assert drained(folder, still=DAY) == ["1", "2"]
    for expected in ("3", "4"):
        writer.write()
        assert drained(folder, still=DAY) == [], "it has just been written to"
        made_old(folder / "a.ndjson")
        assert drained(folder, still=DAY) == [expected]
    writer.close()
    assert drained(folder, still=DAY) == []
    assert list(folder.iterdir()) == []


def test_what_is_written_between_a_receive_and_its_delete_stays(folder: Path, writers: Writers) -> None:
    path = folder / "a.ndjson"
    writer = writers(path, ["1~", "2~", "3~"])
    writer.write()
    source = FolderSource(folder, "orders")
    first = source.receive(MUCH, MUCH)
    writer.write()
    source.delete(first)
    writer.write()
    writer.close()
    assert drained(folder, 0) == ["2", "3"]
    assert list(folder.iterdir()) == []


def test_of_two_files_that_are_being_written_each_goes_on_where_it_was(folder: Path, writers: Writers) -> None:
    both = [writers(folder / f"{name}.ndjson", [f"{name}1~", f"{name}2~"]) for name in "ab"]
    for number in (1, 2):
        for writer in both:
            writer.write()
        assert drained(folder, 0) == [f"a{number}", f"b{number}"]
    for writer in both:
        writer.close()
    assert drained(folder, 0) == []
    assert list(folder.iterdir()) == []


def test_a_file_that_its_writer_keeps_open_waits_only_when_it_has_more(folder: Path, writers: Writers) -> None:
    landing = LandingFolder(folder.parent)
    writer = writers(folder / "a.ndjson", ["1~", "2~"])
    writer.write()
    assert (landing.topics(), landing.of("orders").waiting()) == (["orders"], 1)
    drained(folder, 0)
    assert (landing.topics(), landing.of("orders").waiting()) == ([], 0), "no drain is started for nothing"
    writer.write()
    assert landing.topics() == ["orders"]
    drained(folder, 0)
    writer.close()
    assert landing.topics() == ["orders"], "it can go"


@pytest.mark.parametrize(
    ("written", "dated", "is_taken"),
    [
        ("in place", None, False),
        ("renamed", None, True),
        ("in place", -DAY, True),
        ("in place", DAY, False),  # A clock that is ahead does not make a file complete.
    ],
)
def test_a_file_is_taken_at_once_only_if_it_was_put_into_place(
    written: str, dated: float | None, is_taken: bool, folder: Path
) -> None:
    path = folder / "a.ndjson"
    if written == "renamed":
        write_into_place(path, b"1\n")
    else:
        path.write_bytes(b"1\n")
    if dated:
        os.utime(path, (time.time() + dated, time.time() + dated))
    landing = LandingFolder(folder.parent, still_seconds=60)
    assert list(landing.topics()) == (["orders"] if is_taken else [])
    assert list(landing.being_written()) == ([] if is_taken else [path])
    assert drained(folder, still=60) == (["1"] if is_taken else [])


def test_where_nobody_tells_whether_a_file_is_open_it_stays_for_a_while(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("fcntl.F_SETLEASE")
    (folder / "a.ndjson").write_bytes(b"1\n")
    assert drained(folder, 0) == ["1"]
    assert drained(folder, 0) == []
    with (folder / "a.ndjson").open("ab") as late:
        late.write(b"2\n")
    assert drained(folder, 0) == ["2"]
    made_old(folder / "a.ndjson")
    assert drained(folder, 0) == []
    assert list(folder.iterdir()) == []


def test_a_file_that_was_put_aside_by_one_who_died_comes_again(folder: Path) -> None:
    (folder / ".leanops.aside.0").write_bytes(b"1\n")
    assert drained(folder, 0) == ["1"]
    assert list(folder.iterdir()) == []


def test_a_place_that_was_noted_by_an_earlier_version_still_counts(folder: Path) -> None:
    write_into_place(folder / "a.ndjson", b"1\n2\n3\n")
    source = FolderSource(folder, "orders")
    source.delete(source.receive(1, MUCH))
    note = folder / ".leanops.committed"
    note.write_bytes(json.dumps(json.loads(note.read_bytes())[0]).encode())
    assert drained(folder, 0) == ["2", "3"]
