"""The bodies of dead letters in a bucket, on a server that speaks S3."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from moto.core import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends

from leanops.errors import ArchiveUnavailable, DeadLetterMissing
from leanops.ingestion.faults import Fault, classify
from leanops_resources import s3
from leanops_resources.dlq_archive import DlqArchive, dlq_archive
from tests.aws_faults import an_answer_that_breaks_off, no_server
from tests.cases.archives import ArchiveSuite, MakeOld, letter

BUCKET, PREFIX = "letters", "shop a/dlq-archivé"
LOCATION = f"s3://{BUCKET}/{PREFIX}"


def service() -> Any:
    """The server's own view of its buckets."""
    return s3_backends[DEFAULT_ACCOUNT_ID]["aws"]


@pytest.fixture
def archive(aws: Any) -> DlqArchive:
    service().create_bucket(BUCKET, "us-east-1")
    return dlq_archive(LOCATION)


@pytest.fixture
def make_old() -> MakeOld:
    def age(place: str, days: int) -> None:
        key = service().get_object(BUCKET, place.removeprefix(f"s3://{BUCKET}/"))
        key.last_modified = datetime.now(UTC).replace(tzinfo=None) - timedelta(days=days)

    return age


@pytest.fixture
def own_client(aws: Any) -> Iterator[None]:
    """The client is made by this test, and used by no other."""
    s3.client.cache_clear()
    yield
    s3.client.cache_clear()


class TestS3Archive(ArchiveSuite):
    """A bucket is an archive like any."""


@pytest.mark.parametrize("location", [f"s3://{BUCKET}", f"s3://{BUCKET}/", f"s3://{BUCKET}//a/b/"])
def test_where_a_body_is_can_be_told_to_any_client_of_s3(location: str, archive: DlqArchive) -> None:
    place = dlq_archive(location).put(letter(b"x"))
    assert service().get_object(BUCKET, place.removeprefix(f"s3://{BUCKET}/")).value == b"x"
    assert place.startswith(location.rstrip("/").replace("//a", "/a"))


@pytest.mark.parametrize("place", ["s3://other/orders/x", f"s3://{BUCKET}/secret", f"{LOCATION}/", "/etc/passwd", ""])
def test_nothing_outside_of_the_archive_is_read(place: str, archive: DlqArchive) -> None:
    service().put_object(BUCKET, "secret", b"secret")
    with pytest.raises(DeadLetterMissing, match="LEANOPS_DLQ_ARCHIVE"):
        archive.get(place)


def test_an_archive_removes_nothing_of_its_neighbours(archive: DlqArchive, make_old: MakeOld) -> None:
    ours, theirs = (dlq_archive(f"s3://{BUCKET}/{prefix}").put(letter(b"x")) for prefix in ("a", "ab"))
    for place in (ours, theirs):
        make_old(place, 15)
    assert dlq_archive(f"s3://{BUCKET}/a").expire(keep=()) == 1
    assert dlq_archive(f"s3://{BUCKET}/ab").get(theirs) == b"x"


def test_more_letters_than_a_page_holds_are_all_looked_at(archive: DlqArchive, make_old: MakeOld) -> None:
    for number in range(1005):
        service().put_object(BUCKET, f"{PREFIX}/orders/2025-01-01/{number}.body", b"x")
    make_old(f"{LOCATION}/orders/2025-01-01/999.body", 15)
    assert archive.expire(keep=()) == 1


def every_call(archive: DlqArchive) -> list[Callable[[], object]]:
    return [
        lambda: archive.put(letter(b"x")),
        lambda: archive.put_mended("orders", datetime.now(UTC).date(), "id", b"x"),
        lambda: archive.get(f"{LOCATION}/orders/2025-01-01/x.body"),
        lambda: archive.expire(keep=()),
    ]


def test_a_bucket_that_is_not_there_is_named_and_not_taken_for_an_empty_one(aws: Any) -> None:
    for call in every_call(dlq_archive(LOCATION)):
        with pytest.raises(ArchiveUnavailable, match="LEANOPS_DLQ_ARCHIVE") as caught:
            call()
        assert BUCKET in caught.value.problem


def test_credentials_that_are_not_known_are_told_by_name(archive: DlqArchive, aws: Any) -> None:
    aws.tell("reset-auth", "0")
    try:
        for call in every_call(archive):
            with pytest.raises(ArchiveUnavailable, match="credentials") as caught:
                call()
            assert f"{LOCATION}/ answered InvalidAccessKeyId: " in caught.value.problem
    finally:
        aws.tell("reset-auth", "inf")


@pytest.mark.usefixtures("own_client")
def test_a_bucket_that_cannot_be_reached_is_told_by_name_and_worth_another_try(
    aws: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_server(monkeypatch)
    with pytest.raises(ArchiveUnavailable, match="cannot be reached: ") as caught:
        dlq_archive(LOCATION).put(letter(b"x"))
    assert classify(caught.value) is Fault.TRANSIENT


@pytest.mark.usefixtures("own_client")
def test_a_body_that_breaks_off_on_its_way_is_not_taken_for_a_whole_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        an_answer_that_breaks_off(b'{"message_id": "m1"}', monkeypatch),
        pytest.raises(ArchiveUnavailable, match="cannot be reached"),
    ):
        dlq_archive(LOCATION).get(f"{LOCATION}/orders/2025-01-01/x.body")
