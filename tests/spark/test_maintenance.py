"""Maintenance between any two builds: other files, other snapshots, the same rows, and the same builds after it."""

import os
import time
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import And, EqualTo, In
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from leanops import maintenance, manifests, shared_tables
from leanops.curated.build import build_curated
from leanops.errors import BuildOvertaken
from leanops.home import Home
from leanops.ledger.draw_up import draw_up
from leanops.maintenance import LOST, maintain_nightly, maintain_weekly, read_by_next
from leanops.names import SOURCE, Layer, spark_table, table
from leanops.pending import pending
from leanops.shared_tables import replace_own
from leanops.standardized.build import build_standardized
from leanops.standardized.table import ensure_parse_errors_table
from leanops_resources.catalog import LocalCatalog
from tests.large import take_for_large
from tests.records import CONTRACT, FIRST, SECOND, THIRD, Records, message

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
    monkeypatch.setattr(manifests, "LOOSE", 1)
    monkeypatch.setattr(manifests, "_LEAST", 3)
    monkeypatch.setattr(shared_tables, "_COMMITS", 10**9)


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


def has_bloom_filter(file: str, column: str) -> bool:
    group = pq.read_metadata(file.removeprefix("file://").removeprefix("file:")).row_group(0)
    found = [group.column(number) for number in range(group.num_columns)]
    return any(each.path_in_schema == column and each.bloom_filter_length for each in found)


def let_files_grow_old(records: Records) -> None:
    then = time.time() - LOST.total_seconds() - 60
    for layer in LAYERS:
        for path in files(records, layer):
            os.utime(path, (then, then))


def closes(records: Records) -> bool:
    accounts = [
        each
        for layer in SOURCE
        for each in draw_up(lambda: records.spark, records.catalog, records.name, CONTRACT, layer)
    ]
    return bool(accounts) and all(each.is_clean for each in accounts)


@pytest.mark.parametrize("are_large", [False, True], ids=["small tables", "large tables"])
def test_between_any_two_builds_it_changes_no_row_and_no_later_build(
    topic: Callable[[str], Records], are_large: bool, at_once: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    calm, kept_up = topic(f"calm_{are_large}"), topic(f"kept_up_{are_large}")
    take_for_large(monkeypatch, are_large)
    had_deleted_positions = False
    for records in (calm, kept_up):
        done: dict[str, int] = {}
        for messages in (FIRST, SECOND, THIRD):
            records.land(messages)
            records.build()
            if records is kept_up:
                had_deleted_positions |= maintenance._has_deleted_positions(standardized(records))
                let_files_grow_old(records)
                done |= maintain(records, weekly=True)
    assert done.keys() >= {"files_compacted", "manifests_rewritten", "snapshots_expired", "files_removed"}
    assert had_deleted_positions == are_large
    assert _without_names(kept_up.tables()) == _without_names(calm.tables())
    assert closes(kept_up)
    assert pending(kept_up.catalog, kept_up.name, CONTRACT) is None
    for layer in LAYERS:
        assert len(kept_up.catalog.load_table(table(layer, kept_up.name)).metadata.snapshots) <= 3


def test_small_files_of_a_day_become_one_and_other_days_stay_as_they_are(topic: Callable[[str], Records]) -> None:
    records = topic("compacted")
    for number in range(maintenance.MANY_FILES):
        records.land([message(f"a{number}", 1, key=f"a{number}", amount=1), *FIRST[2:]][: 1 if number else 2])
        records.build()
    before = records.tables()
    assert maintain(records)["files_compacted"] == 3 * maintenance.MANY_FILES
    for layer in LAYERS:
        held = records.catalog.load_table(table(layer, records.name))
        by_day = {task.file.partition[0]: task.file.file_path for task in held.scan().plan_files()}
        assert len(by_day) == len(list(held.scan().plan_files())) == 2
        key = "message_id" if layer is Layer.RAW else "idempotency_key"
        assert all(has_bloom_filter(path, key) for path in by_day.values())
    assert records.tables() == before
    assert closes(records)
    assert maintain(records) == {}


def test_a_build_after_a_compaction_tells_of_the_days_that_it_changed_itself(topic: Callable[[str], Records]) -> None:
    records = topic("other_days")
    for number in range(maintenance.MANY_FILES):
        records.land([message(f"a{number}", 1, key=f"a{number}", amount=1)])
        records.build()
    assert maintain(records)["files_compacted"]
    records.land([message("b", 2, key="b", amount=1)])
    assert (found := pending(records.catalog, records.name, CONTRACT))
    assert found.days == {date(2026, 1, 2)}
    for build in (build_standardized, build_curated):
        built = build(lambda: records.spark, records.catalog, records.name, CONTRACT)
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
    built = build_curated(lambda: records.spark, records.catalog, records.name, CONTRACT)
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


@pytest.mark.parametrize("way", ["adds", "replaces some", "replaces all"])
def test_rows_that_a_topic_changes_in_a_shared_table_during_a_compaction_are_neither_lost_nor_doubled(
    topic: Callable[[str], Records], way: str, at_once: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    records, errors = topic("unused"), ensure_parse_errors_table(topic("unused").catalog).name()
    name = way.replace(" ", "_")

    def shared() -> Table:
        return records.catalog.load_table(errors)

    def rows(*ids: str) -> pa.Table:
        row = {"topic_name": name, "publish_time": datetime(2026, 1, 1, tzinfo=UTC)}
        return pa.Table.from_pylist([{**row, "message_id": each} for each in ids], schema_to_pyarrow(shared().schema()))

    replace_own(shared(), rows("a", "b"), None)
    replace_own(shared(), rows("c"), None)
    own = EqualTo(term="topic_name", value=name)
    some = And(own, In(term="message_id", literals={"a", "c"}))
    which = {"adds": None, "replaces some": some, "replaces all": own}[way]
    real, compacted = SqlCatalog.commit_table, list[int]()

    def commit_after_a_compaction(self: SqlCatalog, *change: Any) -> Any:
        if not compacted:
            with monkeypatch.context() as undisturbed:
                undisturbed.setattr(SqlCatalog, "commit_table", real)
                done = maintain_nightly(lambda: records.spark, shared(), is_shared=True)
            compacted.append(done["files_compacted"])
        return real(self, *change)

    monkeypatch.setattr(SqlCatalog, "commit_table", commit_after_a_compaction)
    try:
        replace_own(shared(), rows("new"), which)
    except BuildOvertaken:
        # A build takes what is left to do up again.
        replace_own(shared(), rows("new"), which)
    assert compacted[0] >= 2
    left = sorted(row["message_id"] for row in shared().scan(own).to_arrow().to_pylist())
    assert left == {"adds": ["a", "b", "c", "new"], "replaces some": ["b", "new"], "replaces all": ["new"]}[way]


def test_spark_reads_and_changes_a_table_whose_manifests_were_arranged(
    topic: Callable[[str], Records], at_once: None
) -> None:
    records = topic("unused")
    name = ensure_parse_errors_table(records.catalog).name()

    def held() -> list[tuple[str, str]]:
        found = records.catalog.load_table(name).scan(In(term="message_id", literals={"arranged"})).to_arrow()
        return sorted((row["topic_name"], row["message_id"]) for row in found.to_pylist())

    for number in range(8):
        shared = records.catalog.load_table(name)
        row = {"topic_name": f"topic_{number}", "publish_time": datetime(2026, 1, 1, tzinfo=UTC)}
        rows = pa.Table.from_pylist([{**row, "message_id": "arranged"}], schema_to_pyarrow(shared.schema()))
        replace_own(shared, rows, None)
    assert manifests.arrange(records.catalog.load_table(name))
    spark_name = spark_table(Layer.PARSE_ERRORS, "")
    seen = records.spark.read.table(spark_name).where("message_id = 'arranged'").select("topic_name", "message_id")
    assert sorted(map(tuple, seen.collect())) == held()
    assert len(held()) == 8
    records.spark.sql(f"DELETE FROM {spark_name} WHERE topic_name = 'topic_3' AND message_id = 'arranged'")
    maintain_nightly(lambda: records.spark, records.catalog.load_table(name), is_shared=True)
    assert [topic for topic, _ in held()] == [f"topic_{number}" for number in range(8) if number != 3]


def _without_names(tables: dict[Layer, list[dict[str, Any]]]) -> dict[Layer, list[dict[str, Any]]]:
    return {
        layer: [{name: value for name, value in row.items() if name != "topic_name"} for row in rows]
        for layer, rows in tables.items()
    }
