import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import UTC, date, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import parquet_file_to_data_file
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Summary

from leanops.errors import DiskFull, EnvelopesInvalid, LandingConflict, LandingFileUnreadable
from leanops.home import Home
from leanops.inventory import TableDay, row_count, table_day
from leanops.raw import landing
from leanops.raw.files import RawFiles
from leanops.raw.landing import Landed, land_file
from leanops.raw.table import ensure_raw_table, landings, last_landing_seq
from leanops.table_files import _kept, table_files
from leanops_resources.catalog import LocalCatalog

from .conftest import PROCESSES, InProcesses, NoRoomBeyond, Together

FIRST_DAY = date(2025, 1, 1)
DAY = date(2025, 3, 1)


def envelope(message_id: str, payload: str = "{}", day: date = DAY, **fields: object) -> bytes:
    fields = {"message_id": message_id, "publish_time": f"{day}T12:00:00Z", **fields}
    return f'{json.dumps(fields)[:-1]}, "payload": {payload}}}'.encode()


DATA_FILE_FIELDS = (
    *("content", "file_format", "partition", "record_count", "column_sizes", "value_counts", "null_value_counts"),
    *("nan_value_counts", "lower_bounds", "upper_bounds", "split_offsets", "sort_order_id"),
)
GOOD = [envelope("m1"), envelope("m2"), envelope("m3")]


@pytest.fixture
def catalog(home: Home) -> Catalog:
    return LocalCatalog(home).load()


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def written(lines: Iterable[bytes], name: str = "envelopes.ndjson") -> Path:
        path = tmp_path / name
        path.write_bytes(b"".join(line + b"\n" for line in lines))
        return path

    return written


@pytest.fixture
def land(catalog: Catalog, home: Home) -> Callable[..., Landed]:
    def landed(file: Path, topic: str = "orders", **options: Any) -> Landed:
        return land_file(catalog, topic, file, FIRST_DAY, **options)

    return landed


Land = Callable[..., Landed]
Write = Callable[..., Path]


def raw(catalog: Catalog, topic: str = "orders") -> Table:
    return catalog.load_table(("iceberg_raw_db", f"{topic}_staging"))


def rows(catalog: Catalog, topic: str = "orders") -> list[dict[str, Any]]:
    """What RAW holds, in the order of landing."""
    return sorted(raw(catalog, topic).scan().to_arrow().to_pylist(), key=lambda row: row["landing_seq"])


def land_elsewhere(home: Home, file: Path) -> Landed:
    """A landing as another process does it, from the very start."""
    return land_file(LocalCatalog(home).load(), "orders", file, FIRST_DAY)


def test_a_message_lands_as_it_was_sent(catalog: Catalog, land: Land, write: Write) -> None:
    before = int(datetime.now(UTC).timestamp())
    landed = land(
        write(
            [
                envelope("m1", '{"a": 1}', ingestion_ts=1740830400, idempotency_key="k1"),
                envelope("m2", '"text"', publish_time="2025-03-02T00:30:00+01:00"),
            ]
        )
    )
    assert (landed.topic, landed.rows, landed.rows_by_day, landed.skipped) == ("orders", 2, {DAY: 2}, [])
    first, second = rows(catalog)
    assert first == {
        "message_id": "m1",
        "topic_name": "orders",
        "json_payload": '{"a": 1}',
        "ingestion_ts": 1740830400,
        "publish_time": datetime(2025, 3, 1, 12, tzinfo=UTC),
        "idempotency_key": "k1",
        "landing_seq": 1,
    }
    assert (second["json_payload"], second["idempotency_key"]) == ("text", None)
    assert second["publish_time"] == datetime(2025, 3, 1, 23, 30, tzinfo=UTC)
    assert before <= second["ingestion_ts"] <= datetime.now(UTC).timestamp()


@pytest.mark.parametrize(
    "payload",
    [
        '{"a": 123456789012345678901234567890, "b": 0.1234567890123456789012345, "c": 1.10, "d": 1e9999}',
        '{  "z" :1,\t"a": [ 1,2 ] , "a": null }',
        '{"é": "漢 🦊 \\u00e9 \\ud83e\\udd8a \u2028", "n": "\\u0000"}',
        '{"long": "' + "x" * 200_000 + '"}',
    ],
    ids=["numbers", "order and spaces", "characters", "length"],
)
def test_a_payloads_text_is_read_back_to_the_letter(payload: str, catalog: Catalog, land: Land, write: Write) -> None:
    land(write([envelope("m1", payload), envelope("m2", json.dumps(payload))]))
    assert [row["json_payload"] for row in rows(catalog)] == [payload, payload]


def test_a_landing_is_one_snapshot_and_a_day_a_partition(catalog: Catalog, land: Land, write: Write) -> None:
    days = [date(2025, 3, 2), date(2025, 3, 1), date(2025, 1, 1), date(2025, 3, 1)]
    landed = land(write(envelope(f"m{number}", day=day) for number, day in enumerate(days)))
    assert landed.rows_by_day == {date(2025, 1, 1): 1, date(2025, 3, 1): 2, date(2025, 3, 2): 1}
    assert list(landed.rows_by_day) == sorted(landed.rows_by_day)
    (snapshot,) = raw(catalog).snapshots()
    assert snapshot.snapshot_id == landed.snapshot_id
    assert snapshot.summary is not None
    assert snapshot.summary.operation.value == "append"
    assert snapshot.summary["leanops.landed-from"] == "envelopes.ndjson"
    assert raw(catalog).inspect.partitions().num_rows == 3


def test_what_a_commit_says_of_a_file_is_what_pyiceberg_reads_from_it(
    catalog: Catalog, land: Land, write: Write
) -> None:
    lines = [envelope(f"m{number}", json.dumps({"text": "é" * number})) for number in range(300)]
    land(write([*lines, envelope("other", day=date(2025, 3, 2), idempotency_key="k")]))
    table = raw(catalog)
    files = [task.file for task in table.scan().plan_files()]
    assert len(files) == 2
    for file in files:
        read = parquet_file_to_data_file(table.io, table.metadata, file.file_path)
        for name in (*DATA_FILE_FIELDS, "file_size_in_bytes"):
            assert getattr(file, name) == getattr(read, name), name


def test_each_landing_appends_and_none_touches_the_rows_before(catalog: Catalog, land: Land, write: Write) -> None:
    snapshots = [land(write(GOOD)).snapshot_id for _ in range(3)]
    assert [snapshot.snapshot_id for snapshot in raw(catalog).snapshots()] == snapshots
    assert [row["message_id"] for row in rows(catalog)] == ["m1", "m2", "m3"] * 3


def test_the_order_of_landing_never_ties_and_goes_on_rising(catalog: Catalog, land: Land, write: Write) -> None:
    for number in range(3):
        land(write(envelope(f"{number}-{line}", day=date(2025, 3, 9 - number)) for line in range(5)))
    landed = rows(catalog)
    assert len({row["landing_seq"] for row in landed}) == 15
    assert [row["message_id"] for row in landed] == [f"{number}-{line}" for number in range(3) for line in range(5)]


@pytest.mark.parametrize("chunk_bytes", [1, 40, 10**9])
def test_a_file_of_several_chunks_is_still_one_snapshot(
    chunk_bytes: int, catalog: Catalog, land: Land, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(landing, "CHUNK_BYTES", chunk_bytes)
    lines = [envelope(f"m{number}", '{"a": "0123456789"}', day=date(2025, 3, 1 + number % 2)) for number in range(10)]
    landed = land(write(lines))
    assert landed.rows_by_day == {date(2025, 3, 1): 5, date(2025, 3, 2): 5}
    assert len(raw(catalog).snapshots()) == 1
    found = rows(catalog)
    assert [row["message_id"] for row in found] == [f"m{number}" for number in range(10)]
    assert len({row["landing_seq"] for row in found}) == 10


BAD = [b"", b"x", *GOOD[:1], b"{}", b'{"message_id": ""}', *GOOD[1:], b"[]", envelope("m4", day=date(2024, 12, 31))]
BAD_LINES = ["line 2", "line 4", "line 5", "line 8", "line 9"]


def test_a_file_with_bad_lines_does_not_land_and_every_one_is_told_by_its_number(
    catalog: Catalog, land: Land, write: Write
) -> None:
    file = write(BAD)
    with pytest.raises(EnvelopesInvalid) as caught:
        land(file)
    assert [problem.path for problem in caught.value.problems] == BAD_LINES
    assert str(file) in str(caught.value)
    assert "5 problems" in str(caught.value)
    assert "--skip-bad" in caught.value.hint
    assert not catalog.table_exists("iceberg_raw_db.orders_staging")


def test_the_good_lines_of_a_bad_file_land_if_that_is_asked_for(catalog: Catalog, land: Land, write: Write) -> None:
    landed = land(write(BAD), skip_bad=True)
    assert landed.rows == 3
    assert [problem.path for problem in landed.skipped] == BAD_LINES
    assert [row["message_id"] for row in rows(catalog)] == ["m1", "m2", "m3"]
    assert len(raw(catalog).snapshots()) == 1


def test_a_file_of_bad_lines_alone_lands_nothing_even_if_asked(catalog: Catalog, land: Land, write: Write) -> None:
    landed = land(write([b"x", b"y"]), skip_bad=True)
    assert (landed.rows, landed.rows_by_day, landed.snapshot_id, len(landed.skipped)) == (0, {}, None, 2)
    assert not catalog.table_exists("iceberg_raw_db.orders_staging")


def test_however_many_lines_are_bad_every_one_is_told(land: Land, write: Write) -> None:
    with pytest.raises(EnvelopesInvalid, match="1,500 problems") as caught:
        land(write([b"x"] * 1500))
    assert caught.value.problems[-1].path == "line 1500"


@pytest.mark.parametrize("content", [b"", b"\n", b"\r\n \t\n\n"])
def test_an_empty_file_lands_nothing(content: bytes, catalog: Catalog, land: Land, tmp_path: Path) -> None:
    file = tmp_path / "empty"
    file.write_bytes(content)
    landed = land(file)
    assert (landed.rows, landed.snapshot_id) == (0, None)
    assert not catalog.table_exists("iceberg_raw_db.orders_staging")


@pytest.mark.parametrize(
    "content", [b"\n".join(GOOD), b"\r\n".join(GOOD) + b"\r\n", b"\n\n" + b"\n \n".join(GOOD) + b"\n"]
)
def test_the_ends_of_lines_do_not_matter(content: bytes, catalog: Catalog, land: Land, tmp_path: Path) -> None:
    file = tmp_path / "envelopes"
    file.write_bytes(content)
    assert land(file).rows == 3


@pytest.mark.parametrize("place", ["gone", "folder", "file/below"])
def test_a_file_that_cannot_be_read_is_named_with_what_to_do(place: str, land: Land, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(LandingFileUnreadable) as caught:
        land(tmp_path / place)
    assert str(tmp_path / place) in caught.value.problem
    assert caught.value.hint


def test_a_pipe_lands_whole_or_is_refused_and_is_never_swallowed(catalog: Catalog, land: Land) -> None:
    reading, writing = os.pipe()
    os.write(writing, b"\n".join(GOOD))
    os.close(writing)
    try:
        with suppress(LandingFileUnreadable):
            assert land(Path(f"/dev/fd/{reading}")).rows == 3
    finally:
        os.close(reading)


def test_a_files_name_need_not_be_text(catalog: Catalog, land: Land, write: Write) -> None:
    assert land(write(GOOD, name=os.fsdecode(b"\xff.ndjson"))).rows == 3


def test_progress_is_told_in_bytes_as_the_file_is_read(land: Land, write: Write) -> None:
    told: list[int] = []
    land(write(GOOD), advance=told.append)
    assert sum(told) == write(GOOD).stat().st_size


def test_a_landing_that_fails_half_way_lands_nothing(
    catalog: Catalog, land: Land, write: Write, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(landing, "CHUNK_BYTES", 1)
    whole, written = RawFiles.write, []

    def write_once(files: RawFiles, chunk: pa.Table) -> Iterator[DataFile]:
        if written:
            raise KeyboardInterrupt
        written.extend(whole(files, chunk))
        yield from written

    monkeypatch.setattr(RawFiles, "write", write_once)
    with pytest.raises(KeyboardInterrupt):
        land(write(GOOD))
    monkeypatch.setattr(RawFiles, "write", whole)
    assert len(written) == 1
    assert raw(catalog).snapshots() == []
    assert list(home.warehouse.rglob("*.parquet")) == []
    assert land(write(GOOD)).rows == 3
    assert len(rows(catalog)) == 3


def test_a_disk_that_is_full_is_named_and_nothing_half_written_stays(
    catalog: Catalog, land: Land, write: Write, home: Home, no_room_beyond: NoRoomBeyond
) -> None:
    land(write(GOOD))
    before = {path for path in home.warehouse.rglob("*") if path.is_file()}
    noise = (json.dumps({"a": os.urandom(10_000).hex()}) for _ in range(50))
    file = write(envelope(f"m{number}", payload) for number, payload in enumerate(noise))
    with no_room_beyond(100_000), pytest.raises(DiskFull) as caught:
        land(file)
    assert "Nothing was committed" in caught.value.hint
    assert len(rows(catalog)) == 3
    assert {path for path in home.warehouse.rglob("*") if path.is_file()} == before


def test_two_threads_landing_into_one_new_topic_at_once_lose_nothing(
    catalog: Catalog, home: Home, write: Write, together: Together
) -> None:
    files = [write([envelope(f"{own}-{line}") for line in range(5)], name=f"{own}") for own in range(2)]
    landed = together([lambda file=file: land_elsewhere(home, file) for file in files])
    assert [each.rows for each in landed] == [5, 5]
    found = rows(catalog)
    assert {row["message_id"] for row in found} == {f"{own}-{line}" for own in range(2) for line in range(5)}
    assert [row["landing_seq"] for row in found] == list(range(1, 11))
    assert {each.snapshot_id for each in landed} == {each.snapshot_id for each in raw(catalog).snapshots()}


def test_several_processes_landing_into_one_new_topic_at_once_lose_nothing(
    catalog: Catalog, home: Home, write: Write, in_processes: InProcesses
) -> None:
    files = [write([envelope(f"{own}-{line}") for line in range(5)], name=f"{own}") for own in range(PROCESSES)]
    landed = in_processes(land_elsewhere, [(home, file) for file in files])
    assert [each.rows for each in landed] == [5] * PROCESSES
    found = rows(catalog)
    assert {row["message_id"] for row in found} == {f"{own}-{line}" for own in range(PROCESSES) for line in range(5)}
    assert [row["landing_seq"] for row in found] == list(range(1, 5 * PROCESSES + 1))
    assert commits_in_order(catalog)
    assert {each.snapshot_id for each in landed} == {each.snapshot_id for each in raw(catalog).snapshots()}


def commits_in_order(catalog: Catalog) -> bool:
    """Whether every commit's rows have higher numbers than those of the commit before it."""
    table = raw(catalog)
    numbers = [
        [row["landing_seq"] for row in table.scan(snapshot_id=each.snapshot_id).to_arrow().to_pylist()]
        for each in sorted(table.snapshots(), key=lambda each: each.sequence_number or 0)
    ]
    return all(max(earlier) == min(set(later) - set(earlier)) - 1 for earlier, later in pairwise(numbers))


def test_who_is_overtaken_at_the_commit_lands_behind_the_faster_one(
    catalog: Catalog, home: Home, land: Land, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, other = RawFiles.write, write([envelope("fast")], name="fast")

    def overtaken(files: RawFiles, chunk: pa.Table) -> Iterator[DataFile]:
        monkeypatch.setattr(RawFiles, "write", whole)
        land_elsewhere(home, other)
        yield from whole(files, chunk)

    monkeypatch.setattr(RawFiles, "write", overtaken)
    assert land(write(GOOD)).rows == 3
    assert [row["message_id"] for row in rows(catalog)] == ["fast", "m1", "m2", "m3"]
    assert commits_in_order(catalog)
    assert len(list(home.warehouse.rglob("*.parquet"))) == 2


def test_who_is_overtaken_time_and_again_lands_nothing_and_says_so(
    catalog: Catalog, home: Home, land: Land, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, other = RawFiles.write, write([envelope("fast")], name="fast")

    def overtaken(files: RawFiles, chunk: pa.Table) -> Iterator[DataFile]:
        if chunk.num_rows == 3:
            land_elsewhere(home, other)
        yield from whole(files, chunk)

    monkeypatch.setattr(RawFiles, "write", overtaken)
    monkeypatch.setattr(landing, "ATTEMPTS", 2)
    with pytest.raises(LandingConflict):
        land(write(GOOD))
    assert [row["message_id"] for row in rows(catalog)] == ["fast", "fast"]


def test_numbering_goes_on_when_every_commit_that_said_a_number_has_expired(
    catalog: Catalog, land: Land, write: Write
) -> None:
    land(write(GOOD))
    table = raw(catalog)
    table.metadata = table.metadata.model_copy(
        update={
            "snapshots": [
                each.model_copy(update={"summary": Summary(operation=Operation.APPEND)})
                for each in table.metadata.snapshots
            ]
        }
    )
    assert last_landing_seq(table) == 3


def test_topics_have_tables_and_sequences_of_their_own(catalog: Catalog, land: Land, write: Write) -> None:
    land(write(GOOD), topic="orders")
    land(write(GOOD[:1]), topic="payments")
    assert [row["topic_name"] for row in rows(catalog, "orders")] == ["orders"] * 3
    assert [row["topic_name"] for row in rows(catalog, "payments")] == ["payments"]


# What RAW holds, from metadata alone


@pytest.mark.parametrize(
    ("day", "count"),
    [
        (date(2025, 2, 28), 0),
        (date(2025, 3, 1), 3),
        (date(2025, 3, 2), 1),
        (date(2025, 3, 3), 0),
        (date(2030, 1, 1), 0),
    ],
)
def test_the_rows_of_a_day_are_counted_edge_to_edge(
    day: date, count: int, catalog: Catalog, land: Land, write: Write
) -> None:
    times = ["2025-03-01T00:00:00Z", "2025-03-01T23:59:59.999999Z", "2025-03-02T00:30:00+01:00", "2025-03-02T00:00:00Z"]
    for time in times:  # each in a file of its own, so that no row hides behind another's
        land(write([envelope("m", publish_time=time)]))
    found = table_day(raw(catalog), day)
    current = raw(catalog).current_snapshot()
    assert current is not None
    assert (found.rows, found.data_files, found.snapshot_id) == (count, count, current.snapshot_id)
    assert (found.bytes > 0) == (count > 0)


def test_a_day_adds_up_over_landings(catalog: Catalog, land: Land, write: Write) -> None:
    for _ in range(3):
        land(write(GOOD))
    found = table_day(raw(catalog), DAY)
    assert (found.rows, found.data_files) == (9, 3)
    on_disk = [path.stat().st_size for path in Path(raw(catalog).location()[7:]).rglob("*.parquet")]
    assert found.bytes == sum(on_disk)


def test_a_topic_that_never_landed_has_empty_days(catalog: Catalog) -> None:
    assert table_day(ensure_raw_table(catalog, "orders"), DAY) == TableDay(
        rows=0, data_files=0, bytes=0, snapshot_id=None
    )


def test_a_table_tells_how_many_rows_it_holds_and_when_they_landed(catalog: Catalog, land: Land, write: Write) -> None:
    assert (row_count(ensure_raw_table(catalog, "orders")), landings(raw(catalog))) == (0, [])
    for _ in range(2):
        land(write(GOOD))
    commits = [datetime.fromtimestamp(each.timestamp_ms / 1000, UTC) for each in raw(catalog).snapshots()]
    assert (row_count(raw(catalog)), landings(raw(catalog))) == (6, commits)


def test_the_files_of_landings_are_known_without_a_manifest_being_read(
    catalog: Catalog, write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    later = date(2025, 3, 2)
    for lines in (GOOD, [envelope("m4", day=later), envelope("m5")]):
        land_file(catalog, "orders", write(lines), FIRST_DAY)
    raw = ensure_raw_table(catalog, "orders")
    with monkeypatch.context() as patched:
        patched.setattr(Table, "scan", None)
        known = table_files(raw)
    _kept.clear()
    read = table_files(raw)
    assert len(read) == 3
    by_path = [
        {each.file.file_path: (each.day, each.file.record_count, each.first_seq, each.last_seq) for each in files}
        for files in (known, read)
    ]
    assert by_path[0] == by_path[1]
