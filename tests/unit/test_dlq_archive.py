"""The bodies of dead letters in a folder."""

import os
import stat
import time
from pathlib import Path

import pytest

from leanops.errors import DeadLetterMissing, DiskFull, HomeNotWritable, TopicNameInvalid
from leanops_resources.dlq_archive import DlqArchive, FolderArchive, dlq_archive
from tests.cases.archives import ArchiveSuite, MakeOld, letter

from .conftest import NoRoomBeyond, Together


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "höme & co" / "dlq-archive"


@pytest.fixture
def archive(folder: Path) -> DlqArchive:
    return dlq_archive(folder)


@pytest.fixture
def make_old() -> MakeOld:
    def age(place: str, days: int) -> None:
        then = time.time() - days * 86_400
        os.utime(place, (then, then))

    return age


class TestFolderArchive(ArchiveSuite):
    """A folder is an archive like any."""


def test_a_body_is_for_its_owner_alone_and_so_are_the_folders_above_it(archive: DlqArchive, folder: Path) -> None:
    before = os.umask(0)
    try:
        place = Path(archive.put(letter(b"x")))
    finally:
        os.umask(before)
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (place, *place.parents[:3])}
    assert list(modes.values()) == [0o600, 0o700, 0o700, 0o700]
    assert folder in modes


def test_where_a_body_is_does_not_depend_on_the_folder_one_is_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    place = dlq_archive(Path("bodies")).put(letter(b"x"))
    assert Path(place).is_absolute()
    assert dlq_archive(tmp_path / "bodies").get(place) == b"x"


@pytest.mark.parametrize(
    "place", ["/etc/passwd", "{folder}/../secret", "{folder}", "secret", "s3://bucket/orders/x", "{folder}/link/secret"]
)
def test_nothing_outside_of_the_archive_is_read(archive: DlqArchive, folder: Path, place: str) -> None:
    archive.put(letter(b"x"))
    (folder.parent / "secret").write_bytes(b"secret")
    (folder / "link").symlink_to(folder.parent)
    with pytest.raises(DeadLetterMissing, match="LEANOPS_DLQ_ARCHIVE"):
        archive.get(place.format(folder=folder))


def test_a_topic_cannot_lead_out_of_the_archive(archive: DlqArchive) -> None:
    with pytest.raises(TopicNameInvalid):
        archive.put(letter(b"x", topic="../up"))


def test_a_full_disk_is_told_by_name_and_leaves_no_part_of_a_body(
    archive: DlqArchive, folder: Path, no_room_beyond: NoRoomBeyond
) -> None:
    with no_room_beyond(1000), pytest.raises(DiskFull):
        archive.put(letter(b"x" * 5000))
    assert [path for path in folder.rglob("*") if path.is_file()] == []


def test_a_folder_that_cannot_be_one_is_told_by_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(HomeNotWritable):
        FolderArchive(tmp_path / "file").put(letter(b"x"))


def test_a_letter_that_is_put_by_many_at_once_is_whole_whenever_it_is_read(
    archive: DlqArchive, together: Together
) -> None:
    dead = letter(b"x" * 100_000)
    place = archive.put(dead)

    def put() -> bool:
        return all(archive.put(dead) == place for _ in range(20))

    def read() -> bool:
        return all(archive.get(place) == dead.message.body for _ in range(100))

    assert all(together([put, put, read, read]))


def test_what_a_killed_process_left_behind_goes_with_the_rest(
    archive: DlqArchive, folder: Path, make_old: MakeOld
) -> None:
    place = Path(archive.put(letter(b"x")))
    draft = place.with_name(f".{place.name}.draft")
    draft.write_bytes(b"half")
    for each in (place, draft):
        make_old(str(each), 15)
    assert archive.expire(keep=[str(place)]) == 1
    assert list(folder.rglob("*.*")) == [place]
    assert archive.expire(keep=()) == 1
    assert list((folder / "orders").iterdir()) == []


def test_an_archive_that_nobody_has_used_has_nothing_to_remove(archive: DlqArchive) -> None:
    assert archive.expire(keep=()) == 0
