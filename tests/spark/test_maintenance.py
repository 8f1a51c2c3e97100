"""Maintenance between any two builds: other files, other snapshots, the same rows, and the same builds after it."""

import os
import time
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import EqualTo
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from leanops import maintenance
from leanops.home import Home
from leanops.key_index.entries import hashes_of
from leanops.key_index.file import KeyIndex, KeyIndexUnreadable, Kind
from leanops.key_index.table import index_of
from leanops.key_index.upkeep import maintain_index
from leanops.maintenance import LOST, maintain_nightly, maintain_weekly, read_by_next
from leanops.names import SOURCE, Layer, table
from leanops.pending import pending
from leanops.shared_tables import append_rows
from leanops.standardized.table import ensure_parse_errors_table
from leanops_resources.catalog import LocalCatalog
from tests.accounting import all_accounts_of
from tests.building import curate, standardize
from tests.records import CONTRACT, FIRST, SECOND, THIRD, Records, build_all, message

LAYERS = (Layer.RAW, *SOURCE)


@pytest.fixture(scope="module")
def topic(shared_home: Home, shared_spark: SparkSession) -> Callable[[str], Records]:
    catalog = LocalCatalog(shared_home).load()
    return lambda name: Records(name, shared_home, catalog, shared_spark)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Maintenance has something to do as soon as anything has happened."""
    monkeypatch.setattr(maintenance, "SNAPSHOTS", 1)
    monkeypatch.setattr(maintenance, "YOUNG", timedelta(0))
    monkeypatch.setattr(maintenance, "MANY_MANIFESTS", 1)
    monkeypatch.setattr(maintenance, "MANY_FILES", 2)


def maintain(records: Records, *layers: Layer, weekly: bool = False) -> dict[str, int]:
    """Maintain the topic's tables; all that was done to them."""
    done: dict[str, int] = {}
    for layer in layers or LAYERS:
        held = records.catalog.load_table(table(layer, records.name))
        counts = maintain_nightly(lambda: records.spark, held, read_by_next(records.catalog, records.name, layer))
        if weekly:
            counts += maintain_weekly(lambda: records.spark, held.refresh())
        done |= {name: done.get(name, 0) + count for name, count in counts.items()}
    return done


def standardized(records: Records) -> Table:
    return records.catalog.load_table(table(Layer.STANDARDIZED, records.name))


def files(records: Records, layer: Layer) -> list[Path]:
    place = Path(records.catalog.load_table(table(layer, records.name)).location().removeprefix("file://"))
    return [path for path in place.rglob("*") if path.is_file() and not path.name.startswith(".")]


def let_files_grow_old(records: Records) -> None:
    then = time.time() - LOST.total_seconds() - 60
    for layer in LAYERS:
        for path in files(records, layer):
            os.utime(path, (then, then))


def closes(records: Records) -> bool:
    accounts = all_accounts_of(records.spark, records.catalog, records.name, CONTRACT)
    return bool(accounts) and all(each.is_clean for each in accounts)


def test_between_any_two_builds_it_changes_no_row_and_no_later_build(
    topic: Callable[[str], Records], at_once: None
) -> None:
    calm, kept_up = topic("calm"), topic("kept_up")
    had_deleted_positions, done = False, dict[str, int]()
    for messages in (FIRST, SECOND, THIRD):
        for records in (calm, kept_up):
            records.land(messages)
        build_all([calm, kept_up])
        had_deleted_positions |= maintenance._has_deleted_positions(standardized(kept_up))
        let_files_grow_old(kept_up)
        done |= maintain(kept_up, weekly=True)
    assert done.keys() >= {"files_compacted", "manifests_rewritten", "snapshots_expired", "files_removed"}
    assert had_deleted_positions
    assert _without_names(kept_up.tables()) == _without_names(calm.tables())
    assert closes(kept_up)
    assert pending(kept_up.catalog, kept_up.name, CONTRACT) is None
    for layer in LAYERS:
        assert len(kept_up.catalog.load_table(table(layer, kept_up.name)).metadata.snapshots) <= 3


@pytest.fixture(scope="module")
def many_files(topic: Callable[[str], Records]) -> tuple[Records, Records]:
    """Two topics with so many builds of one day that its files are to be compacted; the first has another day, too."""
    first, second = topics = topic("compacted"), topic("other_days")
    first.land(FIRST[2:])
    for number in range(maintenance.MANY_FILES):
        for each in topics:
            each.land([message(f"a{number}", 1, key=f"a{number}", amount=1)])
        build_all(topics)
    return first, second


def test_small_files_of_a_day_become_one_and_other_days_stay_as_they_are(many_files: tuple[Records, Records]) -> None:
    records, _ = many_files
    before = records.tables()
    assert maintain(records)["files_compacted"] == 3 * maintenance.MANY_FILES
    for layer in LAYERS:
        held = records.catalog.load_table(table(layer, records.name))
        by_day = {task.file.partition[0]: task.file.file_path for task in held.scan().plan_files()}
        assert len(by_day) == len(list(held.scan().plan_files())) == 2
    assert records.tables() == before
    assert closes(records)
    assert maintain(records) == {}


def test_a_build_after_a_compaction_tells_of_the_days_that_it_changed_itself(
    many_files: tuple[Records, Records],
) -> None:
    _, records = many_files
    assert maintain(records)["files_compacted"]
    records.land([message("b", 2, key="b", amount=1)])
    assert (found := pending(records.catalog, records.name, CONTRACT))
    assert found.days == {date(2026, 1, 2)}
    for build in (standardize, curate):
        built = build(records.spark, records.catalog, records.name, CONTRACT)
        assert built.days == {date(2026, 1, 2)}


def test_a_layer_that_lags_behind_finds_all_that_it_has_not_taken_in(
    topic: Callable[[str], Records], at_once: None
) -> None:
    records = topic("lagging")
    records.land(FIRST)
    records.build()
    for messages in (SECOND, THIRD):
        records.land(messages)
        records.standardize()
    assert maintain(records, Layer.STANDARDIZED).get("snapshots_expired", 0) == 0
    built = curate(records.spark, records.catalog, records.name, CONTRACT)
    assert built.part
    assert built.part.after == len(FIRST)
    assert closes(records)
    assert maintain(records, Layer.STANDARDIZED)["snapshots_expired"] > 0


def test_files_that_nothing_refers_to_go_when_nobody_can_be_at_work_on_them(topic: Callable[[str], Records]) -> None:
    records = topic("lost")
    records.land(FIRST)
    records.build()
    let_files_grow_old(records)
    place = files(records, Layer.CURATED)[0].parent
    old, young = place / "old.parquet", place / "young.parquet"
    for path in (old, young):
        path.write_bytes(b"what a build that was killed has left")
    then = time.time() - LOST.total_seconds() - 60
    os.utime(old, (then, then))
    before = set(files(records, Layer.CURATED))
    done = maintain(records, Layer.CURATED, weekly=True)
    assert done == {"lost_files_removed": 1}
    assert set(files(records, Layer.CURATED)) == before - {old}
    assert closes(records)


def test_the_key_index_outlives_compaction_expiry_and_the_removal_of_lost_files(
    topic: Callable[[str], Records], at_once: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leanops.key_index.file.MOST_YOUNG", 3)
    records = topic("indexed")
    for messages in (FIRST, SECOND, THIRD):
        records.land(messages)
        records.build()
        let_files_grow_old(records)
        done = maintain(records, weekly=True)
    assert done.keys() >= {"files_compacted", "snapshots_expired"}
    assert indexed_ids(records) == indexed_keys(records) == landed(records)


@pytest.mark.parametrize("damage", [Path.unlink, lambda file: file.write_bytes(file.read_bytes()[:-20])])
def test_a_key_index_that_is_missing_or_damaged_is_made_anew_from_the_tables(
    topic: Callable[[str], Records], damage: Callable[[Path], object]
) -> None:
    records = topic(f"index_{'missing' if damage is Path.unlink else 'damaged'}")
    records.land(FIRST)
    records.build()
    before = indexed_ids(records)
    damage(Path(index_file(records).removeprefix("file://")))
    with pytest.raises(KeyIndexUnreadable):
        indexed_ids(records)

    def is_made() -> bool:
        raw = records.catalog.load_table(table(Layer.RAW, records.name))
        return maintain_index(lambda: records.spark, records.name, raw, standardized(records))

    assert is_made()
    assert indexed_ids(records) == before == landed(records)
    assert not is_made()


def index_file(records: Records) -> str:
    found = index_of(standardized(records))
    assert found
    return found.statistics_path


def indexed_ids(records: Records) -> set[int]:
    """The numbers of the messages whose ids are found in the topic's key index."""
    return found_in_index(records, Kind.ID, Layer.RAW)


def indexed_keys(records: Records) -> set[int]:
    """Those of the rows whose keys are found in it; and of all messages that have no row."""
    held = records.catalog.load_table(table(Layer.STANDARDIZED, records.name)).scan().to_arrow()
    without_row = landed(records) - {*held["landing_seq"].to_pylist()}
    return found_in_index(records, Kind.KEY, Layer.STANDARDIZED) | without_row


def found_in_index(records: Records, kind: Kind, layer: Layer) -> set[int]:
    io = standardized(records).io
    index = KeyIndex.read(io, index_file(records)).whole(io)
    values = records.catalog.load_table(table(layer, records.name)).scan().to_arrow()[kind]
    return {*index.having(kind, hashes_of(values)).seqs.tolist()}


def landed(records: Records) -> set[int]:
    return {*records.catalog.load_table(table(Layer.RAW, records.name)).scan().to_arrow()["landing_seq"].to_pylist()}


def test_rows_that_are_added_to_a_shared_table_during_a_compaction_are_neither_lost_nor_doubled(
    topic: Callable[[str], Records], at_once: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    records, errors = topic("unused"), ensure_parse_errors_table(topic("unused").catalog).name()

    def shared() -> Table:
        return records.catalog.load_table(errors)

    def rows(*ids: str) -> pa.Table:
        row = {"topic_name": "adds", "publish_time": datetime(2026, 1, 1, tzinfo=UTC)}
        return pa.Table.from_pylist([{**row, "message_id": each} for each in ids], schema_to_pyarrow(shared().schema()))

    append_rows(shared(), rows("a", "b"))
    append_rows(shared(), rows("c"))
    real, compacted = SqlCatalog.commit_table, list[int]()

    def commit_after_a_compaction(self: SqlCatalog, *change: Any) -> Any:
        if not compacted:
            with monkeypatch.context() as undisturbed:
                undisturbed.setattr(SqlCatalog, "commit_table", real)
                done = maintain_nightly(lambda: records.spark, shared(), is_shared=True)
            compacted.append(done["files_compacted"])
        return real(self, *change)

    monkeypatch.setattr(SqlCatalog, "commit_table", commit_after_a_compaction)
    append_rows(shared(), rows("new"))
    assert compacted[0] >= 2
    own = EqualTo(term="topic_name", value="adds")
    left = sorted(row["message_id"] for row in shared().scan(own).to_arrow().to_pylist())
    assert left == ["a", "b", "c", "new"]


def _without_names(tables: dict[Layer, list[dict[str, Any]]]) -> dict[Layer, list[dict[str, Any]]]:
    return {
        layer: [{name: value for name, value in row.items() if name != "topic_name"} for row in rows]
        for layer, rows in tables.items()
    }
