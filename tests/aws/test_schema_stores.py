"""The suite that every store of contracts passes: a folder, and a bucket on a server that speaks S3."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from threading import Barrier, Event
from typing import Any

import boto3
import dagster as dg
import pytest
from moto.core import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends

from leanops.contracts.manifest import Topic
from leanops.contracts.reading import MAX_BYTES, read_contract
from leanops.errors import ContractsMissing, SchemaStoreUnavailable, SettingsInvalid, TopicNameInvalid
from leanops.home import Home
from leanops.names import Layer
from leanops.settings import Settings
from leanops_resources import s3
from leanops_resources.s3_schema_store import S3SchemaStore
from leanops_resources.schema_store import ERROR_FILE, LocalSchemaStore, SchemaStore, Stage, Upload, schema_store
from tests.aws.conftest import Server
from tests.aws_faults import UNREACHABLE, an_answer_that_breaks_off

SHIPPED = Path(__file__).parents[2] / "schemas"
BUCKET, PREFIX = "contracts", "shop a/schémas"
QUICKLY = 10


@dataclass(frozen=True)
class Place:
    """A store, and how others put things where it looks."""

    store: SchemaStore
    put: Callable[[str, bytes], object]
    clock_tick: float
    """How many seconds apart two files must be for the place to know which came first."""

    def uploaded(self) -> dict[tuple[str, str], bytes]:
        return {(upload.topic, upload.name): upload.content for upload in self.store.uploads()}


@pytest.fixture
def own_client(aws: Server) -> Iterator[None]:
    """The client is made by this test, and used by no other."""
    s3.client.cache_clear()
    yield
    s3.client.cache_clear()


@pytest.fixture
def bucket(aws: Server) -> Place:
    service = s3_backends[DEFAULT_ACCOUNT_ID]["aws"]
    service.create_bucket(BUCKET, "us-east-1")
    return Place(
        S3SchemaStore(BUCKET, PREFIX),
        lambda key, content: service.put_object(BUCKET, f"{PREFIX}/{key}", content),
        clock_tick=1.05,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Place:
    root = tmp_path / "schémas of a shop"
    root.mkdir()

    def put(key: str, content: bytes) -> None:
        (root / key).parent.mkdir(parents=True, exist_ok=True)
        (root / key).write_bytes(content)

    return Place(LocalSchemaStore(root), put, clock_tick=0.02)


# Every implementation passes this suite: a fixture and its name here are all that a new one needs.
@pytest.fixture(params=["folder", "bucket"])
def place(request: pytest.FixtureRequest) -> Place:
    found: Place = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def store(place: Place) -> SchemaStore:
    return place.store


def together(*calls: Callable[[], Any]) -> list[Any]:
    """What the calls come back with, all begun at the same moment."""
    start = Barrier(len(calls))

    def begin(call: Callable[[], Any]) -> Any:
        start.wait(timeout=30)
        return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        return [future.result(timeout=60) for future in [pool.submit(begin, call) for call in calls]]


# Topics


def test_a_store_without_anything_in_it_has_no_topics(store: SchemaStore) -> None:
    assert (store.topics(), store.strays(), store.uploads()) == ([], [], [])


def test_topics_are_the_places_with_a_safe_name_in_order(place: Place) -> None:
    for key in (
        "orders/active/schema.json",
        "events/pending/x.json",
        "a1/archive/v1/schema.json",
        "b/failed/error.json",
    ):
        place.put(key, b"x")
    assert place.store.topics() == ["a1", "b", "events", "orders"]
    assert place.store.strays() == []


@pytest.mark.parametrize("name", ["Orders", "a-b", "1a", "a b", "errors", "parse_errors", "dlq_errors", "a" * 65, "é"])
def test_a_place_that_cannot_be_a_topics_is_a_stray(name: str, place: Place) -> None:
    place.put(f"{name}/active/schema.json", b"x")
    place.put("orders/active/schema.json", b"x")
    assert place.store.topics() == ["orders"]
    assert place.store.strays() == [name]


@pytest.mark.parametrize("name", [".git", ".DS_Store", ".pending"])
def test_hidden_places_are_neither_topics_nor_strays_and_hold_no_uploads(name: str, place: Place) -> None:
    place.put(f"{name}/pending/schema.json", b"x")
    assert (place.store.topics(), place.store.strays(), place.store.uploads()) == ([], [], [])


def test_files_beside_the_topics_are_neither_topics_nor_strays(place: Place) -> None:
    place.put("README.md", b"x")
    place.put("orders", b"x")
    assert (place.store.topics(), place.store.strays(), place.store.uploads()) == ([], [], [])


def test_more_topics_than_a_page_of_any_listing_holds_are_all_listed(place: Place) -> None:
    names = [f"topic_{number:04}" for number in range(1200)]
    for name in names:
        place.put(f"{name}/.keep", b"")
    place.put("topic_1199/pending/schema.json", b"the last")
    assert place.store.topics() == names
    assert place.uploaded() == {("topic_1199", "schema.json"): b"the last"}


@pytest.mark.parametrize("topic", ["../orders", "..", ".", "", "/", "a/b", "Orders", "errors", ".git", "a\0"])
def test_nothing_is_read_or_written_outside_the_topics_places(topic: str, place: Place) -> None:
    place.put("a/b/active/schema.json", b"x")
    place.put(".git/active/schema.json", b"x")
    store = place.store
    for refused in (
        lambda: store.read(topic, Stage.ACTIVE),
        lambda: store.write(topic, Stage.ACTIVE, b"x"),
        lambda: store.where(topic, Stage.ACTIVE),
        lambda: store.submit(topic, b"x"),
    ):
        with pytest.raises(TopicNameInvalid):
            refused()
    assert (store.topics(), store.strays(), store.uploads()) == (["a"], [], [])


# Files


def test_a_file_is_handed_out_byte_for_byte_from_its_stage(place: Place) -> None:
    contents = {stage: f"\xff\0 not even JSON {stage}\r\n".encode("latin-1") for stage in Stage}
    for stage, content in contents.items():
        place.put(f"orders/{stage.value}/schema.json", content)
    assert {stage: place.store.read("orders", stage) for stage in Stage} == contents


def test_what_was_written_is_read_until_something_else_is(store: SchemaStore) -> None:
    for content in (b"first", b"", b"\r\n\x00\xff", "Größe".encode()):
        store.write("orders", Stage.ACTIVE, content)
        assert store.read("orders", Stage.ACTIVE) == content
    assert store.read("orders", Stage.PENDING) is None
    assert store.read("order", Stage.ACTIVE) is None


def test_the_active_files_of_all_topics_are_read_at_once(place: Place) -> None:
    active = {f"t{number}": f"contract {number}".encode() for number in range(30)} | {"empty": b""}
    for topic, content in active.items():
        place.put(f"{topic}/active/schema.json", content)
    for key in (
        "t1/active/other.json",
        "t2/pending/schema.json",
        "later/pending/schema.json",
        "No-Topic/active/schema.json",
    ):
        place.put(key, b"x")
    found = place.store.active_files({})
    assert {topic: file.content for topic, file in found.items()} == active


def test_only_active_files_that_have_changed_are_read_again(place: Place) -> None:
    for topic in ("same", "changed", "gone"):
        place.put(f"{topic}/active/schema.json", b"before")
    marks = {topic: file.mark for topic, file in place.store.active_files({}).items()}
    place.put("changed/active/schema.json", b"after")
    place.put("new/active/schema.json", b"new")
    found = place.store.active_files({**marks, "never": "there"})
    contents = {topic: file.content for topic, file in found.items()}
    assert contents == {"same": None, "changed": b"after", "gone": None, "new": b"new"}
    assert place.store.active_files({topic: file.mark for topic, file in found.items()})["changed"].content is None


def test_files_of_a_stage_stand_beside_each_other(store: SchemaStore) -> None:
    store.write("orders", Stage.FAILED, b"contract")
    store.write("orders", Stage.FAILED, b"why", ERROR_FILE)
    store.write("orders", Stage.ARCHIVE, b"v3", "v3/schema.json")
    assert store.read("orders", Stage.FAILED) == b"contract"
    assert store.read("orders", Stage.FAILED, ERROR_FILE) == b"why"
    assert store.read("orders", Stage.ARCHIVE, "v3/schema.json") == b"v3"
    assert store.read("orders", Stage.ARCHIVE) is None
    assert store.topics() == ["orders"]


def test_where_a_file_is_says_topic_stage_and_name(store: SchemaStore) -> None:
    assert store.where("orders", Stage.ACTIVE).endswith("/orders/active/schema.json")
    assert store.where("orders", Stage.ARCHIVE, "v3/schema.json").endswith("/orders/archive/v3/schema.json")


@pytest.mark.parametrize(
    ("size", "read"), [(MAX_BYTES, MAX_BYTES), (MAX_BYTES + 1, MAX_BYTES + 1), (10**7, MAX_BYTES + 1)]
)
def test_no_more_is_read_than_tells_that_it_is_too_much(size: int, read: int, place: Place) -> None:
    place.put("orders/active/schema.json", b"x" * size)
    place.put("orders/pending/schema.json", b"x" * size)
    content = place.store.read("orders", Stage.ACTIVE)
    (upload,) = place.store.uploads()
    assert (content and len(content), len(upload.content)) == (read, read)
    place.store.remove(upload)
    assert place.store.uploads() == []


def test_whoever_reads_while_others_write_finds_all_of_one_version(store: SchemaStore) -> None:
    versions = [bytes([letter]) * 100_000 for letter in b"abcdefgh"]
    store.write("orders", Stage.ACTIVE, versions[0])
    done, seen = Event(), (Event(), Event())

    def write() -> None:
        """Three rounds, and more until both readers have met two versions: they may be late to begin."""
        try:
            for number in count():
                if number >= 3 and all(each.is_set() for each in seen):
                    break
                for version in versions:
                    store.write("orders", Stage.ACTIVE, version)
        finally:
            done.set()

    def read(has_seen: Event) -> set[bytes | None]:
        found = set()
        try:
            while not done.is_set():
                found.add(store.read("orders", Stage.ACTIVE))
                if len(found) > 1:
                    has_seen.set()
        finally:
            has_seen.set()
        return found

    readers = (partial(read, each) for each in seen)
    found = set().union(*together(*readers, lambda: write() or set()))
    assert found <= set(versions)
    assert len(found) > 1
    assert store.read("orders", Stage.ACTIVE) == versions[-1]


# Uploads


def test_an_upload_is_all_that_stands_under_pending_and_no_more(place: Place) -> None:
    for key in (
        "active/schema.json",
        "pendings/x.json",
        "pending/.x.json.swp",
        "pending/.keep",
        "pending/folder/x.json",
    ):
        place.put(f"orders/{key}", b"x")
    place.put("pending/schema.json", b"x")
    assert place.uploaded() == {}
    place.put("orders/pending/schema.json", b"upload")
    assert place.uploaded() == {("orders", "schema.json"): b"upload"}


@pytest.mark.parametrize(
    "name",
    [
        "schema.json",
        "no suffix",
        "Größe & co (2).json",
        "a+b%20c.json",
        "'\"<&>.json",
        "x" * 255,
        "#?.json",
        "~",
        "a..b",
    ],
)
def test_an_upload_may_have_any_name(name: str, place: Place) -> None:
    place.put(f"orders/pending/{name}", b"upload")
    (upload,) = place.store.uploads()
    assert (upload.topic, upload.name, upload.content) == ("orders", name, b"upload")
    assert place.store.read("orders", Stage.PENDING, name) == b"upload"
    place.store.remove(upload)
    assert place.store.uploads() == []


def test_an_empty_upload_is_one_and_can_be_taken_away(place: Place) -> None:
    place.put("orders/pending/schema.json", b"")
    assert place.uploaded() == {("orders", "schema.json"): b""}
    place.store.remove(place.store.uploads()[0])
    assert place.store.uploads() == []


def test_uploads_come_in_the_order_in_which_they_were_put_there(place: Place) -> None:
    place.put("zebras/pending/z.json", b"first")
    time.sleep(place.clock_tick)
    place.put("apples/pending/schema.json", b"second")
    place.put("zebras/pending/a.json", b"second")
    assert [upload.content for upload in place.store.uploads()] == [b"first", b"second", b"second"]


def test_uploads_of_a_topic_that_are_submitted_one_after_the_other_stay_in_order(store: SchemaStore) -> None:
    contents = [str(number).encode() for number in range(5)]
    places = [store.submit("orders", content) for content in contents]
    assert places[0] == store.where("orders", Stage.PENDING)
    assert len(set(places)) == 5
    assert [upload.content for upload in store.uploads()] == contents
    assert places == [store.where(upload.topic, Stage.PENDING, upload.name) for upload in store.uploads()]


def test_what_is_submitted_says_who_did_it(store: SchemaStore) -> None:
    store.submit("orders", b"x")
    assert store.uploads()[0].by


def test_of_uploads_that_are_submitted_at_once_every_one_is_kept(store: SchemaStore) -> None:
    contents = [f"{number}".encode() * 1000 for number in range(8)]
    places = together(*(lambda content=content: store.submit("orders", content) for content in contents))
    assert len(set(places)) == 8
    assert sorted(upload.content for upload in store.uploads()) == sorted(contents)


def test_an_upload_that_is_taken_away_is_gone_and_only_that_one(store: SchemaStore) -> None:
    for content in (b"1", b"2", b"3"):
        store.submit("orders", content)
    store.submit("payments", b"1")
    second = store.uploads()[1]
    store.remove(second)
    left = sorted((upload.topic, upload.content) for upload in store.uploads())
    assert left == [("orders", b"1"), ("orders", b"3"), ("payments", b"1")]
    store.remove(second)
    store.remove(Upload("unheard_of", "schema.json", b"1"))
    assert len(store.uploads()) == 3


def test_an_upload_that_was_replaced_meanwhile_is_not_taken_away(place: Place) -> None:
    place.put("orders/pending/schema.json", b"old")
    (old,) = place.store.uploads()
    place.put("orders/pending/schema.json", b"new")
    place.store.remove(old)
    assert [(upload.topic, upload.content) for upload in place.store.uploads()] == [("orders", b"new")]


@pytest.mark.parametrize("stray", ["Orders", "a b", "errors", "é"])
def test_the_upload_of_a_stray_can_be_read_refused_and_taken_away(stray: str, place: Place) -> None:
    place.put(f"{stray}/pending/schema.json", b"upload")
    store = place.store
    (upload,) = store.uploads()
    assert (upload.topic, upload.content) == (stray, b"upload")
    assert store.read(stray, Stage.PENDING) == b"upload"
    store.write(stray, Stage.FAILED, upload.content)
    store.write(stray, Stage.FAILED, b"why", ERROR_FILE)
    store.remove(upload)
    assert store.uploads() == []
    assert store.read(stray, Stage.FAILED) == b"upload"
    assert store.read(stray, Stage.FAILED, ERROR_FILE) == b"why"
    assert store.where(stray, Stage.FAILED).endswith(f"/{stray}/failed/schema.json")


# A bucket alone


def test_where_something_is_in_a_bucket_is_told_without_asking_it() -> None:
    assert schema_store("s3://b-1/x/y/").where("orders", Stage.ACTIVE) == "s3://b-1/x/y/orders/active/schema.json"
    assert schema_store("s3://b-1").where("orders", Stage.FAILED, "e") == "s3://b-1/orders/failed/e"


@pytest.mark.parametrize(
    ("location", "topics"),
    [
        (f"s3://{BUCKET}", ["a", "ab"]),
        (f"s3://{BUCKET}/", ["a", "ab"]),
        (f"s3://{BUCKET}/a", ["b", "bc"]),
        (f"s3://{BUCKET}//a/", ["b", "bc"]),
        (f"s3://{BUCKET}/a/b", ["d"]),
    ],
)
def test_a_store_sees_its_own_prefix_and_no_other(location: str, topics: list[str], bucket: Place) -> None:
    s3 = boto3.session.Session().client("s3")
    for key in ("ab/active/schema.json", "a/bc/active/schema.json", "a/b/d/active/schema.json"):
        s3.put_object(Bucket=BUCKET, Key=key, Body=key.encode())
    store = schema_store(location)
    assert store.topics() == topics
    content = store.read(topics[-1], Stage.ACTIVE)
    assert content
    assert store.where(topics[-1], Stage.ACTIVE) == f"s3://{BUCKET}/{content.decode()}"


def test_the_markers_that_consoles_set_for_folders_make_a_place_and_no_upload(bucket: Place) -> None:
    for key in ("", "orders/", "orders/pending/", "orders/pending//"):
        bucket.put(key, b"")
    assert (bucket.store.topics(), bucket.store.strays(), bucket.store.uploads()) == (["orders"], [], [])
    assert bucket.store.read("orders", Stage.PENDING) is None


def test_an_upload_says_who_submitted_it_and_nothing_of_others(bucket: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket.put("events/pending/schema.json", b"by hand")
    for variable in ("LOGNAME", "USER"):
        monkeypatch.setenv(variable, "Jürgen O'Neil@shop 100%")
    bucket.store.submit("orders", b"x")
    assert {upload.topic: upload.by for upload in bucket.store.uploads()} == {
        "events": None,
        "orders": "Jürgen O'Neil@shop 100%",
    }


@pytest.mark.usefixtures("own_client")
def test_a_key_that_is_taken_at_the_last_moment_is_not_written_over(bucket: Place) -> None:
    store = bucket.store
    at_the_last_moment("PutObject", lambda: bucket.put("orders/pending/schema.json", b"theirs"))
    assert store.submit("orders", b"ours") != store.where("orders", Stage.PENDING)
    assert sorted(bucket.uploaded().values()) == [b"ours", b"theirs"]


@pytest.mark.usefixtures("own_client")
def test_an_upload_that_goes_at_the_last_moment_is_not_taken_for_an_empty_one(bucket: Place) -> None:
    bucket.put("orders/pending/schema.json", b"going")
    gone = s3_backends[DEFAULT_ACCOUNT_ID]["aws"].delete_object
    at_the_last_moment("GetObject", lambda: gone(BUCKET, f"{PREFIX}/orders/pending/schema.json"))
    assert bucket.store.uploads() == []


@pytest.mark.usefixtures("own_client")
def test_an_upload_that_is_replaced_at_the_last_moment_is_not_taken_away(bucket: Place) -> None:
    bucket.put("orders/pending/schema.json", b"old")
    store = bucket.store
    at_the_last_moment("DeleteObject", lambda: bucket.put("orders/pending/schema.json", b"new"))
    store.remove(store.uploads()[0])
    assert bucket.uploaded() == {("orders", "schema.json"): b"new"}


def at_the_last_moment(request: str, act: Callable[[], object]) -> None:
    """Do something when the store has made up its mind, before its request is on the way."""

    def before_it_is_sent(**_: Any) -> None:
        act()

    s3.client().meta.events.register(f"before-send.s3.{request}", before_it_is_sent)


def every_call(store: SchemaStore) -> list[Callable[[], object]]:
    return [
        store.topics,
        store.strays,
        store.uploads,
        lambda: store.read("orders", Stage.ACTIVE),
        lambda: store.write("orders", Stage.ACTIVE, b"x"),
        lambda: store.submit("orders", b"x"),
        lambda: store.remove(Upload("orders", "schema.json", b"x")),
        lambda: store.where("Orders", Stage.ACTIVE),
    ]


def test_a_bucket_that_is_not_there_is_named_and_not_taken_for_an_empty_one(aws: Server) -> None:
    for call in every_call(schema_store("s3://no-such-bucket/x")):
        with pytest.raises(ContractsMissing, match="LEANOPS_SCHEMAS") as caught:
            call()
        assert "no-such-bucket" in caught.value.problem


def test_credentials_that_are_not_known_are_told_by_name(bucket: Place, aws: Server) -> None:
    aws.tell("reset-auth", "0")
    try:
        for call in every_call(bucket.store):
            with pytest.raises(SchemaStoreUnavailable, match="credentials") as caught:
                call()
            assert f"s3://{BUCKET}/{PREFIX}/ answered InvalidAccessKeyId: " in caught.value.problem
    finally:
        aws.tell("reset-auth", "inf")


@pytest.mark.usefixtures("own_client")
@pytest.mark.parametrize("spoil", UNREACHABLE)
def test_a_bucket_that_cannot_be_reached_is_told_by_name_and_soon(
    spoil: Callable[[pytest.MonkeyPatch], None], aws: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil(monkeypatch)
    began = time.monotonic()
    with pytest.raises(SchemaStoreUnavailable, match=r"AWS_ENDPOINT_URL") as caught:
        schema_store("s3://bucket/x").topics()
    assert "cannot be reached: " in caught.value.problem
    assert time.monotonic() - began < QUICKLY


@pytest.mark.usefixtures("own_client")
def test_a_contract_that_breaks_off_on_its_way_is_not_taken_for_a_whole_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        an_answer_that_breaks_off(b'{"table_name": "orders"', monkeypatch),
        pytest.raises(SchemaStoreUnavailable, match="cannot be reached"),
    ):
        schema_store("s3://bucket/x").read("orders", Stage.ACTIVE)


# From the settings


def test_the_setting_takes_a_bucket_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEANOPS_SCHEMAS", "s3://bucket.of-1/some where/")
    assert Settings.load().schemas == "s3://bucket.of-1/some where/"


@pytest.mark.parametrize("text", ["s3://", "s3:///x", "s3:/bucket", "s3://Bucket/x", "s3://a b/x", "s3://-a/x"])
def test_a_bucket_that_cannot_be_one_is_refused_at_once(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEANOPS_SCHEMAS", text)
    with pytest.raises(SettingsInvalid, match="s3://bucket/prefix") as caught:
        Settings.load()
    assert [problem.path for problem in caught.value.problems] == ["LEANOPS_SCHEMAS"]


def test_the_topics_of_a_bucket_are_listed_like_those_of_a_folder(
    bucket: Place, home: Home, leanops: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEANOPS_SCHEMAS", f"s3://{BUCKET}/{PREFIX}")
    bucket.put("orders/active/schema.json", (SHIPPED / "orders" / "active" / "schema.json").read_bytes())
    bucket.put("payments/active/schema.json", b"{")
    bucket.put("Events/active/schema.json", b"{")
    said = leanops("topics", "--json")
    assert [line.split(",")[0] for line in said.out.splitlines()] == ['{"topic": "orders"', '{"topic": "payments"']
    assert f"s3://{BUCKET}/{PREFIX}/payments/active/schema.json has one problem" in said.err
    assert f"warning: s3://{BUCKET}/{PREFIX}/Events is no topic" in said.err


def test_an_asset_refers_to_its_contract_in_the_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    from leanops_assets.specs import asset_spec

    monkeypatch.setenv("LEANOPS_SCHEMAS", f"s3://{BUCKET}/{PREFIX}")
    contract = read_contract((SHIPPED / "orders" / "active" / "schema.json").read_bytes(), "orders", "here")
    spec = asset_spec(Layer.CURATED, Topic(name="orders", contract=contract), [], Path(__file__), Settings.load())
    (reference, _) = spec.metadata["dagster/code_references"].code_references
    assert reference == dg.UrlCodeReference(url=f"s3://{BUCKET}/{PREFIX}/orders/active/schema.json", label="contract")
