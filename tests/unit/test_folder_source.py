"""The landing folder as a source: every line is handed out, and stands on the disk until it is done with."""

import os
import tempfile
import traceback
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leanops.errors import DiskFull, HomeNotWritable, LandingFileUnreadable, TopicNameInvalid
from leanops.ingestion.messages import QueueMessage
from leanops_resources.sources import folder as folder_module
from leanops_resources.sources.folder import FolderSource, LandingFolder

from .conftest import NoRoomBeyond

MUCH = 10**9
NOBODY = 65534
MEMORY = Path("/proc/self/mem")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "landing" / "orders"
    path.mkdir(parents=True)
    return path


@pytest.fixture
def source(folder: Path) -> FolderSource:
    return FolderSource(folder, "orders")


def again(folder: Path) -> FolderSource:
    """The source of the next drain, or of one after a crash."""
    return FolderSource(folder, "orders")


def drop(folder: Path, name: str, content: bytes) -> Path:
    """A file that is complete when it has its name."""
    (folder / ".being written").write_bytes(content)
    return (folder / ".being written").rename(folder / name)


def receive(source: FolderSource, most: int = MUCH, most_bytes: int = MUCH) -> Sequence[QueueMessage]:
    return source.receive(most, most_bytes)


def bodies(messages: Sequence[QueueMessage]) -> list[str]:
    return [message.body.decode() for message in messages]


def everything(source: FolderSource, most: int = MUCH) -> list[QueueMessage]:
    """All that is received until nothing is left, each batch deleted before the next."""
    messages: list[QueueMessage] = []
    while batch := source.receive(most, MUCH):
        messages += batch
        assert source.delete(batch) == 0
    return messages


def left(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


# What is received


@pytest.mark.parametrize(
    ("content", "expected", "numbers"),
    [
        (b"", [], []),
        (b"\n\n \r\n\t\n", [], []),
        (b"a\nb\n", ["a", "b"], [1, 2]),
        (b"a\nb", ["a", "b"], [1, 2]),
        (b"a\r\nb\r\n", ["a", "b"], [1, 2]),
        (b"\n\na\n\n  b  \n", ["a", "b"], [3, 5]),
        (b"{ \n}\n", ["{", "}"], [1, 2]),
        (b"a\rb\n", ["a\rb"], [1]),
        ("é\u2028\u0085漢\n".encode(), ["é\u2028\u0085漢"], [1]),
    ],
)
def test_a_line_that_has_anything_on_it_is_a_message_by_its_number(
    content: bytes, expected: list[str], numbers: list[int], folder: Path, source: FolderSource
) -> None:
    drop(folder, "a.ndjson", content)
    messages = everything(source)
    assert bodies(messages) == expected
    assert [int(message.handle.rpartition(":")[2]) for message in messages] == numbers
    assert {(message.topic, message.receives) for message in messages} <= {("orders", 1)}
    assert left(folder) == []


def test_bytes_that_are_no_text_are_handed_out_as_they_are(folder: Path, source: FolderSource) -> None:
    drop(folder, "a.ndjson", b"\xff\xfe\x00\n")
    assert [message.body for message in receive(source)] == [b"\xff\xfe\x00"]


def test_files_are_taken_in_the_order_of_their_names(folder: Path, source: FolderSource) -> None:
    for name in ("b.jsonl", "10.json", "a.ndjson", "9.ndjson"):
        drop(folder, name, f"{name} 1\n{name} 2\n".encode())
    assert bodies(receive(source)) == [
        f"{name} {line}" for name in ("10.json", "9.ndjson", "a.ndjson", "b.jsonl") for line in (1, 2)
    ]


@pytest.mark.parametrize("name", [".a.ndjson", "a.csv", "a.ndjson.gz", "a", "a.NDJSON", "ndjson", "a.ndjson~"])
def test_what_is_not_complete_or_of_another_kind_is_left_alone(name: str, folder: Path, source: FolderSource) -> None:
    drop(folder, name, b"a\n")
    (folder / "folder.ndjson").mkdir()
    (folder / "nowhere.ndjson").symlink_to(folder / "nothing")
    os.mkfifo(folder / "pipe.ndjson")
    assert receive(source) == []
    assert source.waiting() == 0
    assert left(folder) == sorted([name, "folder.ndjson", "nowhere.ndjson", "pipe.ndjson"])


def test_a_folder_that_is_not_there_is_empty(tmp_path: Path) -> None:
    nowhere = FolderSource(tmp_path / "nowhere", "nowhere")
    assert (receive(nowhere), nowhere.waiting()) == ([], 0)


def test_a_source_is_called_after_its_folder(folder: Path, source: FolderSource) -> None:
    assert (source.topic, source.name) == ("orders", "landing/orders")
    drop(folder, "a.ndjson", b"1\n2\n3\n")
    drop(folder, "b.ndjson", b"4\n")
    assert source.waiting() == 2


# No more than was asked for


@pytest.mark.parametrize(
    ("most", "most_bytes", "sizes"),
    [
        (1, MUCH, [1, 1, 1, 1, 1, 1]),
        (4, MUCH, [4, 2]),
        (6, MUCH, [6]),
        (MUCH, 1, [1, 1, 1, 1, 1, 1]),
        (MUCH, 100, [1, 1, 1, 1, 1, 1]),
        (MUCH, 101, [2, 2, 2]),
        (MUCH, 400, [4, 2]),
        (2, 101, [2, 2, 2]),
        (0, MUCH, []),
        (MUCH, 0, []),
    ],
)
def test_a_batch_is_no_larger_than_was_asked_for_but_for_its_last_message(
    most: int, most_bytes: int, sizes: list[int], folder: Path, source: FolderSource
) -> None:
    for name in ("a.ndjson", "b.ndjson"):
        drop(folder, name, 3 * (b"x" * 100 + b"\n"))
    found = []
    while batch := source.receive(most, most_bytes):
        found.append(len(batch))
    assert found == sizes


def test_many_small_files_are_one_batch_and_hold_no_file_open(folder: Path, source: FolderSource) -> None:
    for number in range(300):
        drop(folder, f"{number:03}.ndjson", b"a line\n")
    process = psutil.Process()
    before = process.num_fds()
    messages = receive(source)
    assert len(messages) == 300
    assert process.num_fds() == before
    source.delete(messages)
    assert left(folder) == []


def test_of_a_large_file_only_what_was_asked_for_is_in_memory(folder: Path, source: FolderSource) -> None:
    drop(folder, "a.ndjson", b"x" * 19 + b"\n" + 2_000_000 * (b"y" * 9 + b"\n"))
    tracemalloc.start()
    try:
        messages = source.receive(1000, MUCH)
        source.delete(messages)
        assert bodies(source.receive(1, MUCH)) == ["y" * 9]
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


def test_a_line_without_end_is_handed_out_in_pieces(
    folder: Path, source: FolderSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_module, "LONGEST_LINE", 100)
    drop(folder, "a.ndjson", b"y" * 99 + b"\n" + b"x" * 240 + b"\nlast\n")
    messages = receive(source)
    assert bodies(messages) == ["y" * 99, "x" * 100, "x" * 100, "x" * 40, "last"]
    assert len({message.handle for message in messages}) == 5
    source.give_back(messages)
    assert bodies(receive(again(folder))) == bodies(messages), "a line is longer with its handle"


# How far a file has come


def test_a_file_goes_when_its_last_message_is_done_with(folder: Path, source: FolderSource) -> None:
    drop(folder, "a.ndjson", b"1\n2\n3\n")
    drop(folder, "b.ndjson", b"4\n")
    messages = receive(source)
    source.delete([messages[2], messages[0]])
    assert left(folder) == ["a.ndjson", "b.ndjson"]
    source.delete([messages[1]])
    assert left(folder) == ["b.ndjson"]
    source.delete(messages)
    assert left(folder) == []


def test_a_message_that_is_deleted_twice_does_not_count_for_another(folder: Path, source: FolderSource) -> None:
    drop(folder, "a.ndjson", b"1\n2\n")
    messages = receive(source)
    source.delete([messages[0], messages[0]])
    source.delete([messages[0]])
    assert left(folder) == ["a.ndjson"]
    assert bodies(receive(again(folder))) == ["1", "2"]


@pytest.mark.parametrize("most", [1, 2, 3, 4, 5])
def test_after_a_crash_only_what_was_not_deleted_comes_again(most: int, folder: Path) -> None:
    drop(folder, "a.ndjson", b"1\n\n2\n3\n4")
    drop(folder, "b.ndjson", b"5\n6\n7\n")
    done: list[str] = []
    handles = set()
    for _ in range(20):
        source = again(folder)
        if not (batch := source.receive(most, MUCH)):
            break
        source.delete(batch)
        done += bodies(batch)
        handles |= {message.handle for message in batch}
        # In hand when it crashed:
        source.receive(most, MUCH)
    assert done == ["1", "2", "3", "4", "5", "6", "7"]
    assert len(handles) == 7
    assert left(folder) == []


def test_a_handle_is_the_same_each_time_that_a_message_is_delivered(folder: Path, source: FolderSource) -> None:
    drop(folder, "a.ndjson", b"1\n2\n3\n")
    first = receive(source)
    assert receive(again(folder)) == first
    source = again(folder)
    source.delete(source.receive(1, MUCH))
    assert receive(again(folder)) == first[1:]


def test_a_handle_is_of_one_drop(folder: Path, source: FolderSource) -> None:
    handles = set()
    for _ in range(3):
        path = drop(folder, "a.ndjson", b"the same\n")
        os.utime(path, (1_700_000_000, 1_700_000_000))
        (message,) = everything(source)
        handles.add(message.handle)
    assert len(handles) == 3


def test_a_file_that_was_begun_is_read_to_its_end_before_others(folder: Path, source: FolderSource) -> None:
    drop(folder, "m.ndjson", b"1\n2\n3\n4\n5\n")
    source.delete(source.receive(1, MUCH))
    drop(folder, "a.ndjson", b"later\n")
    assert bodies(source.receive(1, MUCH)) == ["2"]
    drop(folder, "b.ndjson", b"latest\n")
    assert bodies(receive(source)) == ["3", "4", "5", "later", "latest"]
    assert bodies(receive(again(folder))) == ["2", "3", "4", "5", "later", "latest"]


@pytest.mark.parametrize("note", [b"", b"nonsense", b"{}", b'{"name": 5}', b"\xff"])
def test_a_note_that_cannot_be_read_is_none(note: bytes, folder: Path) -> None:
    drop(folder, "a.ndjson", b"1\n2\n3\n")
    source = again(folder)
    source.delete(source.receive(1, MUCH))
    (folder / ".leanops.committed").write_bytes(note)
    assert bodies(everything(again(folder))) == ["1", "2", "3"]


def test_a_file_with_the_longest_name_can_be_read_in_parts_and_given_back(folder: Path, source: FolderSource) -> None:
    drop(folder, "é" * 124 + ".ndjson", b"1\n2\n3\n")
    first = source.receive(1, MUCH)
    source.give_back(first)
    source.delete(source.receive(1, MUCH))
    assert bodies(everything(again(folder))) == ["3", "1"], "what was given back comes last"
    assert left(folder) == []


@pytest.mark.parametrize("name", [b"\xff\xfe.ndjson", b"a\tb\nc.ndjson", b" .ndjson", "é\u2028.ndjson".encode()])
def test_a_name_that_is_no_text_makes_a_handle_that_is(name: bytes, folder: Path, source: FolderSource) -> None:
    drop(folder, os.fsdecode(name), b"1\n2\n3\n")
    source.delete(source.receive(1, MUCH))
    messages = receive(source)
    for message in messages:
        assert message.handle.isprintable()
        assert message.handle.encode().decode() == message.handle
    source.give_back(messages)
    assert receive(again(folder)) == [message._replace(receives=2) for message in messages]


# Given back


def test_what_is_given_back_comes_again_by_its_handle_and_knows_how_often_it_came(folder: Path) -> None:
    drop(folder, "a.ndjson", b"good\n \xff poison \nalso good\n")
    for receives in range(1, 8):
        source = again(folder)
        messages = receive(source)
        (poison,) = (message for message in messages if b"poison" in message.body)
        assert (poison.body, poison.receives) == (b"\xff poison", receives)
        assert poison.handle.startswith("a.ndjson@")
        assert poison.handle.endswith(":2")
        source.give_back([poison])
        source.delete([message for message in messages if message != poison])
        assert receive(source) == [], "it comes again with the next drain, and not at once"
        assert source.waiting() == 1
        assert len(left(folder)) == 1
    assert len(everything(again(folder))) == 1
    assert left(folder) == []


def test_what_comes_back_of_different_files_and_parts_is_kept_apart(folder: Path) -> None:
    for name in ("a.ndjson", "b.ndjson"):
        drop(folder, name, b"".join(f"{name[0]}{line}\n".encode() for line in range(5)))
    source = again(folder)
    first = source.receive(7, MUCH)
    source.give_back([first[0], first[3], first[5]])
    source.delete([first[1], first[2], first[4], first[6]])
    second = receive(source)
    assert bodies(second) == ["b2", "b3", "b4"]
    source.give_back([second[0], second[2]])
    source.delete([second[1]])
    # A file of the same name, of which the same line comes back while the other still waits.
    drop(folder, "a.ndjson", b"new a0\n")
    source.give_back(receive(source))
    found = everything(again(folder))
    assert Counter(bodies(found)) == Counter(["a0", "a3", "b0", "b2", "b4", "new a0"])
    assert {message.receives for message in found} == {2}
    assert left(folder) == []


def test_what_is_not_in_hand_is_not_given_back(folder: Path, source: FolderSource) -> None:
    drop(folder, "a.ndjson", b"1\n2\n")
    messages = receive(source)
    source.give_back([])
    source.delete(messages[:1])
    source.give_back([*messages, QueueMessage("orders", "of another", b"3")])
    source.give_back(messages)
    source.delete(messages)
    assert bodies(everything(again(folder))) == ["2"]
    assert left(folder) == []


def test_whoever_dies_while_giving_back_hands_nothing_out_twice_at_once(folder: Path, source: FolderSource) -> None:
    drop(folder, "a.ndjson", b"1\n2\n3\n")
    messages = receive(source)
    source.give_back([messages[1]])
    # Died here: 1 and 3 were not deleted, so that the file still has all three.
    source = again(folder)
    found = receive(source)
    assert bodies(found) == ["1", "2", "3"]
    source.delete([message for message in found if message.body != b"2"])
    assert bodies(receive(again(folder))) == ["1", "2", "3"], "nobody has deleted 2 yet"
    source.delete(found)
    assert left(folder) == []


@pytest.mark.parametrize(
    "line", [b"no such line", b"1\thandle", b"0\thandle\tbody", b"x\thandle\tbody", b"1234567890\thandle\tbody"]
)
def test_a_line_that_nobody_has_given_back_is_a_message_as_it_is(line: bytes, folder: Path) -> None:
    drop(folder, "a.again", line)
    (message,) = everything(again(folder))
    assert (message.body, message.receives) == (line, 1)
    assert message.handle.endswith(":1")


# Files that change


def test_what_is_added_to_a_file_while_it_is_read_is_received_too(folder: Path, source: FolderSource) -> None:
    path = drop(folder, "a.ndjson", b"1\n2\n")
    first = receive(source)
    with path.open("ab") as stream:
        stream.write(b"3\n4\n")
    source.delete(first)
    assert bodies(source.receive(1, MUCH)) == ["3"]
    assert bodies(receive(again(folder))) == ["3", "4"]
    assert bodies(receive(source)) == ["4"]


@pytest.mark.parametrize("content", [b"x\n", b"x\ny\n", b"longer 1\nlonger 2\nlonger 3\n", b""])
@pytest.mark.parametrize("most", [1, 2])
def test_a_file_that_takes_the_place_of_another_is_read_from_its_beginning(
    content: bytes, most: int, folder: Path, source: FolderSource
) -> None:
    drop(folder, "a.ndjson", b"1\n2\n")
    first = source.receive(most, MUCH)
    drop(folder, "a.ndjson", content)
    source.delete(first)
    assert bodies(everything(source, most)) == content.decode().split("\n")[:-1]
    assert left(folder) == []


@pytest.mark.parametrize("content", [b"x\n", b"x\ny\n", b"longer 1\nlonger 2\nlonger 3\n"])
@pytest.mark.parametrize("most", [1, 2])
def test_a_file_that_is_written_anew_in_its_place_is_read_from_its_beginning(
    content: bytes, most: int, folder: Path, source: FolderSource
) -> None:
    path = drop(folder, "a.ndjson", b"1\n2\n")
    first = source.receive(most, MUCH)
    before = path.stat()
    # The clock of a file system ticks a few hundred times a second.
    while path.stat().st_ctime_ns == before.st_ctime_ns:
        path.write_bytes(content)
    assert path.stat().st_ino == before.st_ino
    source.delete(first)
    assert bodies(everything(source, most)) == content.decode().split("\n")[:-1]
    assert left(folder) == []


def test_a_file_that_takes_the_place_of_a_begun_one_after_a_crash_is_read_from_its_beginning(folder: Path) -> None:
    drop(folder, "a.ndjson", b"1\n2\n3\n")
    source = again(folder)
    source.delete(source.receive(2, MUCH))
    drop(folder, "a.ndjson", b"4\n5\n6\n")
    assert bodies(everything(again(folder))) == ["4", "5", "6"]
    assert left(folder) == []


@pytest.mark.parametrize("most", [1, 2])
def test_a_file_that_somebody_removes_is_gone(most: int, folder: Path, source: FolderSource) -> None:
    path = drop(folder, "a.ndjson", b"1\n2\n3\n")
    drop(folder, "b.ndjson", b"4\n")
    source.delete(source.receive(1, MUCH))
    in_hand = source.receive(most, MUCH)
    path.unlink()
    assert bodies(receive(source)) == ["4"]
    source.delete(in_hand)
    assert left(folder) == ["b.ndjson"]
    assert bodies(everything(again(folder))) == ["4"]


# Faults


@pytest.fixture
def as_nobody() -> Callable[[Callable[[Path], None]], None]:
    """Call something with an open folder of its own as somebody who may not do everything, as root may."""

    def run(call: Callable[[Path], None]) -> None:
        with tempfile.TemporaryDirectory() as name:
            Path(name).chmod(0o777)
            if not (child := os.fork()):
                try:
                    if os.geteuid() == 0:
                        os.setgid(NOBODY)
                        os.setuid(NOBODY)
                    call(Path(name))
                except BaseException:  # noqa: BLE001 - whatever it was, its trace is what the test has to show
                    traceback.print_exc()
                    os._exit(1)
                os._exit(0)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

    return run


def test_a_file_that_may_not_be_read_is_told_of_when_all_others_have_been(
    as_nobody: Callable[[Callable[[Path], None]], None],
) -> None:
    def check(folder: Path) -> None:
        drop(folder, "a.ndjson", b"secret\n").chmod(0)
        drop(folder, "b.ndjson", b"1\n2\n")
        source = again(folder)
        messages = receive(source)
        assert bodies(messages) == ["1", "2"]
        source.delete(messages)
        with pytest.raises(LandingFileUnreadable, match=r"a\.ndjson cannot be read: Permission denied"):
            receive(source)
        (folder / "a.ndjson").chmod(0o600)
        assert bodies(everything(source)) == ["secret"]

    as_nobody(check)


def test_nothing_is_received_from_a_folder_from_which_nothing_could_be_removed(
    as_nobody: Callable[[Callable[[Path], None]], None],
) -> None:
    def check(folder: Path) -> None:
        topic = folder / "orders"
        topic.mkdir()
        drop(topic, "a.ndjson", b"1\n")
        topic.chmod(0o500)
        with pytest.raises(HomeNotWritable, match=r"orders cannot be written, so what is received .* never be removed"):
            receive(again(topic))
        topic.chmod(0o700)
        assert bodies(everything(again(topic))) == ["1"]

    as_nobody(check)


def test_a_folder_that_may_not_be_read_is_told_of_and_holds_up_no_other(
    as_nobody: Callable[[Callable[[Path], None]], None],
) -> None:
    def check(folder: Path) -> None:
        for topic in ("orders", "payments", "users"):
            (folder / topic).mkdir()
            drop(folder / topic, "a.ndjson", b"1\n")
        (folder / "payments").chmod(0)
        landing = LandingFolder(folder)
        try:
            assert landing.topics() == ["orders", "payments", "users"]
            assert landing.strays() == ["payments"]
            with pytest.raises(LandingFileUnreadable, match="payments cannot be read: Permission denied"):
                landing.of("payments").receive(1, 1)
        finally:
            (folder / "payments").chmod(0o700)

    as_nobody(check)


@pytest.mark.skipif(not MEMORY.exists(), reason="There is no such file on this system.")
def test_a_file_in_a_broken_place_of_the_disk_holds_up_no_other(folder: Path, source: FolderSource) -> None:
    # What is at the beginning of a process's memory cannot be read.
    (folder / "a.ndjson").symlink_to(MEMORY)
    drop(folder, "b.ndjson", b"1\n")
    assert bodies(receive(source)) == ["1"]
    with pytest.raises(LandingFileUnreadable, match=r"a\.ndjson cannot be read: Input/output error"):
        receive(source)


def test_a_full_disk_while_giving_back_loses_nothing(
    folder: Path, source: FolderSource, no_room_beyond: NoRoomBeyond
) -> None:
    drop(folder, "a.ndjson", b"x" * 50_000 + b"\n2\n")
    messages = receive(source)
    with no_room_beyond(10_000), pytest.raises(DiskFull, match="There is no room left"):
        source.give_back(messages)
    assert left(folder) == ["a.ndjson"]
    assert receive(again(folder)) == messages


def test_a_full_disk_while_a_place_is_noted_loses_nothing(
    folder: Path, source: FolderSource, no_room_beyond: NoRoomBeyond
) -> None:
    drop(folder, "a.ndjson", b"1\n2\n")
    messages = source.receive(1, MUCH)
    with no_room_beyond(0), pytest.raises(DiskFull, match="There is no room left"):
        source.delete(messages)
    assert bodies(receive(source)) == ["2"], "nothing is handed out twice by one source"
    assert bodies(everything(again(folder))) == ["1", "2"]
    assert left(folder) == []


# However files are dropped, and whenever it crashes


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["drop", "drop", "receive", "receive", "delete", "delete", "give back", "crash"]),
        st.integers(0, 6),
    ),
    max_size=25,
)


@given(STEPS)
@settings(max_examples=50)
def test_whatever_happens_every_message_is_delivered_until_it_is_deleted(steps: list[tuple[str, int]]) -> None:
    dropped, deleted, in_hand = 0, set[int](), list[QueueMessage]()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = again(folder)
        for step, number in steps:
            if step == "drop":
                names = (f"{letter}.ndjson" for letter in "cabdefghijklmnopqrstuvwxyz")
                free = next(each for each in names if not (folder / each).exists())
                drop(folder, free, "".join(f"{dropped + line}\n" for line in range(number)).encode())
                dropped += number
            elif step == "receive":
                batch = source.receive(number, MUCH)
                assert len(batch) <= number
                assert not {message.handle for message in batch} & {message.handle for message in in_hand}
                in_hand += batch
            elif step == "crash":
                source, in_hand = again(folder), []
            else:
                some, in_hand = in_hand[: 2 * number], in_hand[2 * number :]
                if step == "delete":
                    source.delete(some)
                    deleted |= {int(message.body) for message in some}
                else:
                    source.give_back(some)
        rest = {int(message.body) for message in everything(again(folder))}
        assert deleted | rest == set(range(dropped))
        assert left(folder) == []


# All topics


@pytest.fixture
def landing(tmp_path: Path) -> Iterator[LandingFolder]:
    (tmp_path / "landing").mkdir()
    return LandingFolder(tmp_path / "landing")


def test_topics_are_those_that_have_something_waiting(tmp_path: Path, landing: LandingFolder) -> None:
    places = {
        "payments": "a.ndjson",
        "orders": "a.json",
        "hidden": ".a.ndjson",
        "others": "a.csv",
        "Unsafe": "a.ndjson",
        "dlq_errors": "a.ndjson",
        "un-safe": "a.ndjson",
        ".git": "a.json",
    }
    for topic, name in places.items():
        (tmp_path / "landing" / topic).mkdir()
        drop(tmp_path / "landing" / topic, name, b"1\n")
    (tmp_path / "landing" / "empty").mkdir()
    drop(tmp_path / "landing", "a_file", b"1\n")
    drop(tmp_path / "landing", "b.ndjson", b"1\n")
    drop(tmp_path / "landing", ".hidden", b"1\n")
    assert landing.topics() == ["orders", "payments"]
    assert landing.strays() == sorted(["Unsafe", "a_file", "b.ndjson", "dlq_errors", "others/a.csv", "un-safe"])
    source = landing.of("orders")
    assert [message.topic for message in source.receive(MUCH, MUCH)] == ["orders"]


def test_a_topic_with_nothing_but_what_was_given_back_has_something_waiting(
    tmp_path: Path, landing: LandingFolder
) -> None:
    (tmp_path / "landing" / "orders").mkdir()
    drop(tmp_path / "landing" / "orders", "a.ndjson", b"1\n")
    source = landing.of("orders")
    source.give_back(source.receive(MUCH, MUCH))
    assert (landing.topics(), landing.strays(), source.waiting()) == (["orders"], [], 1)


def test_a_landing_folder_that_is_not_there_has_no_topics(tmp_path: Path) -> None:
    nowhere = LandingFolder(tmp_path / "nowhere")
    assert (nowhere.topics(), nowhere.strays()) == ([], [])


@pytest.mark.parametrize("topic", ["..", ".", "", "../secrets", "/etc", "Orders", "a/b", "errors", "a\n"])
def test_a_name_that_no_topic_can_have_has_no_source(topic: str, landing: LandingFolder) -> None:
    with pytest.raises(TopicNameInvalid):
        landing.of(topic)
