"""What every archive of dead letters does: a folder, and a bucket."""

from collections.abc import Callable
from datetime import UTC, date, datetime

import pytest

from leanops.errors import DeadLetterMissing
from leanops.ingestion.messages import QueueMessage
from leanops.ingestion.processor import DeadLetter, process
from leanops_resources.dlq_archive import DlqArchive

TODAY = datetime(2025, 3, 1, 12, tzinfo=UTC)
DAY = TODAY.date()
BODIES = {
    "text": b'{"message_id": "m1"}',
    "nothing": b"",
    "no UTF-8": b"\xff\xfe\x00\r\n",
    "256 KB": b"\x00" * 262_144,
}
MakeOld = Callable[[str, int], None]
"""Let what is at a place have been put there so many days ago."""


def letter(body: bytes, topic: str = "orders", handle: str = "h1") -> DeadLetter:
    """The dead letter that a message becomes."""
    [found] = process([QueueMessage(topic, handle, body)], date(2025, 1, 1), TODAY).dead_letters
    return found


class ArchiveSuite:
    """Every implementation passes this suite: fixtures `archive` and `make_old` are all that a new one needs."""

    @pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
    def test_a_body_comes_back_as_it_was_put(self, archive: DlqArchive, body: bytes) -> None:
        assert archive.get(archive.put(letter(body))) == body

    def test_a_body_stands_under_its_topic_its_day_and_its_id(self, archive: DlqArchive) -> None:
        dead = letter(b'{"publish_time": "2025-02-03T23:00:00Z"}')
        assert archive.put(dead).endswith(f"/orders/2025-02-03/{dead.dead_letter_id}.body")

    def test_the_same_letter_again_stands_once(self, archive: DlqArchive) -> None:
        places = {archive.put(letter(b"x")) for _ in range(3)}
        assert len(places) == 1
        assert [name for name, _ in archive._names()] == [f"orders/{DAY}/{letter(b'x').dead_letter_id}.body"]

    def test_many_letters_are_put_at_once_and_each_is_found_by_its_id(self, archive: DlqArchive) -> None:
        letters = [letter(f"body {number}".encode()) for number in range(50)]
        places = archive.put_many(letters)
        assert {each: archive.get(place) for each, place in places.items()} == {
            each.dead_letter_id: each.message.body for each in letters
        }
        assert archive.put_many([]) == {}

    def test_letters_with_one_body_are_kept_apart(self, archive: DlqArchive) -> None:
        letters = [letter(b"x"), letter(b"x", handle="h2"), letter(b"x", topic="payments")]
        assert len({archive.put(each) for each in letters}) == 3

    def test_a_mended_body_stands_beside_the_one_that_came(self, archive: DlqArchive) -> None:
        dead = letter(b"came")
        own = archive.put(dead)
        places = [archive.put_mended("orders", dead.day, dead.dead_letter_id, body) for body in (b"1st", b"2nd", b"")]
        assert [archive.get(place) for place in (own, *places)] == [b"came", b"1st", b"2nd", b""]
        assert len({place.rpartition("/")[0] for place in (own, *places)}) == 1

    def test_a_body_that_is_gone_is_told_by_name(self, archive: DlqArchive) -> None:
        place = archive.put(letter(b"x"))
        archive._remove(f"orders/{DAY}/{letter(b'x').dead_letter_id}.body")
        with pytest.raises(DeadLetterMissing, match="14 days") as caught:
            archive.get(place)
        assert place in caught.value.problem

    def test_after_the_retention_a_body_goes_and_not_before(self, archive: DlqArchive, make_old: MakeOld) -> None:
        old, young = (archive.put(letter(body)) for body in (b"old", b"young"))
        make_old(old, 15)
        make_old(young, 13)
        assert archive.expire(keep=()) == 1
        assert archive.get(young) == b"young"
        with pytest.raises(DeadLetterMissing):
            archive.get(old)
        assert archive.expire(keep=()) == 0

    def test_a_body_of_a_day_long_past_is_kept_from_when_it_came(self, archive: DlqArchive) -> None:
        place = archive.put(letter(b'{"publish_time": "2025-01-01T00:00:00Z"}'))
        assert archive.expire(keep=()) == 0
        assert archive.get(place)

    def test_an_open_letter_keeps_its_bodies(self, archive: DlqArchive, make_old: MakeOld) -> None:
        kept, gone = letter(b"open"), letter(b"closed")
        places = {each: archive.put(each) for each in (kept, gone)}
        mended = {each: archive.put_mended("orders", each.day, each.dead_letter_id, b"x") for each in (kept, gone)}
        for place in (*places.values(), *mended.values()):
            make_old(place, 100)
        assert archive.expire(keep=[places[kept], "s3://elsewhere/x", "/elsewhere/x"]) == 2
        assert (archive.get(places[kept]), archive.get(mended[kept])) == (b"open", b"x")
        for place in (places[gone], mended[gone]):
            with pytest.raises(DeadLetterMissing):
                archive.get(place)
