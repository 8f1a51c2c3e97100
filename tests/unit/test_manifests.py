"""Manifests that are arranged by topic: other manifests, the same files, whoever commits meanwhile."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given, settings
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import And, EqualTo, In
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table

from leanops import manifests, shared_tables
from leanops.home import Home
from leanops.manifests import arrange
from leanops.shared_tables import replace_own
from leanops.standardized.table import ensure_parse_errors_table
from leanops_resources.catalog import LocalCatalog

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
def catalog(home: Home) -> Catalog:
    return LocalCatalog(home).load()


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few manifests are many, and short ones are long."""
    monkeypatch.setattr(manifests, "LOOSE", 3)
    monkeypatch.setattr(manifests, "_LEAST", 4)
    monkeypatch.setattr(shared_tables, "_COMMITS", 10**9)


def errors(catalog: Catalog) -> Table:
    return ensure_parse_errors_table(catalog)


def rows(table: Table, topic: str, *ids: str, day: int = 0) -> pa.Table:
    row = {"topic_name": topic, "publish_time": NOON + timedelta(days=day)}
    return pa.Table.from_pylist([{**row, "message_id": each} for each in ids], schema_to_pyarrow(table.schema()))


def add(catalog: Catalog, topic: str, *ids: str, day: int = 0) -> None:
    table = errors(catalog)
    replace_own(table, rows(table, topic, *ids, day=day), None)


def held(catalog: Catalog) -> list[tuple[str, str]]:
    found = errors(catalog).scan().to_arrow().to_pylist()
    return sorted((row["topic_name"], row["message_id"]) for row in found)


def ranges(table: Table) -> list[tuple[str, str, int]]:
    """The topics that each manifest stands for, and how many files it has."""
    head = table.current_snapshot()
    assert head
    found = []
    for each in head.manifests(table.io):
        topics = sorted(str(entry.data_file.partition[0]) for entry in each.fetch_manifest_entry(table.io))
        found.append((topics[0], topics[-1], len(topics)))
    return sorted(found)


def test_files_are_sorted_into_ranges_of_topics_that_do_not_overlap(catalog: Catalog, soon: None) -> None:
    for number in range(12):
        add(catalog, f"topic_{number * 5 % 12:02}", f"m{number}", day=number % 2)
    before = held(catalog)
    assert arrange(errors(catalog))
    assert held(catalog) == before
    assert ranges(errors(catalog)) == [
        ("topic_00", "topic_03", 4),
        ("topic_04", "topic_07", 4),
        ("topic_08", "topic_11", 4),
    ]
    assert not arrange(errors(catalog))


def test_what_is_added_later_goes_into_the_ranges_it_belongs_to_and_the_others_stay(
    catalog: Catalog, soon: None
) -> None:
    for number in range(12):
        add(catalog, f"topic_{number:02}", "first")
    assert arrange(errors(catalog))
    untouched = {each.manifest_path for each in _of_range(errors(catalog), "topic_08")}
    for number in range(4):
        add(catalog, f"topic_{number:02}", "second")
    before = held(catalog)
    assert arrange(errors(catalog))
    assert held(catalog) == before
    assert {each.manifest_path for each in _of_range(errors(catalog), "topic_08")} == untouched
    assert ranges(errors(catalog))[:2] == [("topic_00", "topic_01", 4), ("topic_02", "topic_03", 4)]


def test_ranges_that_have_lost_their_files_are_put_together(
    catalog: Catalog, soon: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifests, "_LEAST", 8)
    for number in range(32):
        add(catalog, f"topic_{number:02}", "m")
    assert arrange(errors(catalog))
    gone = {f"topic_{number:02}" for number in range(32) if number % 8}
    errors(catalog).delete(In(term="topic_name", literals=gone))
    add(catalog, "topic_00", "later")
    assert [files for *_, files in ranges(errors(catalog))] == [1, 1, 1, 1, 1]
    assert arrange(errors(catalog))
    assert ranges(errors(catalog)) == [("topic_00", "topic_24", 5)]


def test_who_asks_for_one_topic_reads_its_own_manifests_only(
    catalog: Catalog, soon: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(40):
        add(catalog, f"topic_{number:02}", "m")
    assert arrange(errors(catalog))
    read = list[str]()
    real = ManifestFile.fetch_manifest_entry

    def noted(self: ManifestFile, *arguments: Any, **options: Any) -> Any:
        read.append(self.manifest_path)
        return real(self, *arguments, **options)

    monkeypatch.setattr(ManifestFile, "fetch_manifest_entry", noted)
    table = errors(catalog)
    assert len(list(table.scan(EqualTo(term="topic_name", value="topic_07")).plan_files())) == 1
    assert len(read) == 1
    read.clear()
    replace_own(table, rows(table, "topic_07", "new"), EqualTo(term="topic_name", value="topic_07"))
    assert len(set(read)) == 1


def test_what_others_add_meanwhile_is_kept(catalog: Catalog, soon: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(8):
        add(catalog, f"topic_{number}", "m")
    _commit_before(monkeypatch, lambda: add(catalog, "another", "m"), times=3)
    assert arrange(errors(catalog))
    assert held(catalog) == sorted([("another", "m")] * 3 + [(f"topic_{number}", "m") for number in range(8)])
    assert ranges(errors(catalog)) == [("another", "another", 1)] * 3 + [
        ("topic_0", "topic_3", 4),
        ("topic_4", "topic_7", 4),
    ]


def test_it_gives_way_to_who_changes_the_same_manifests_and_leaves_nothing(
    catalog: Catalog, soon: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(8):
        add(catalog, f"topic_{number}", "m")
    own = EqualTo(term="topic_name", value="topic_3")
    _commit_before(monkeypatch, lambda: replace_own(errors(catalog), rows(errors(catalog), "topic_3", "new"), own), 1)
    assert not arrange(errors(catalog))
    assert held(catalog) == [(f"topic_{number}", "new" if number == 3 else "m") for number in range(8)]
    table = errors(catalog)
    folder = Path(table.location().removeprefix("file://")) / "metadata"
    known = {
        Path(name.removeprefix("file://")).name
        for snapshot in table.metadata.snapshots
        for name in (snapshot.manifest_list, *(each.manifest_path for each in snapshot.manifests(table.io)))
    }
    assert {path.name for path in folder.glob("*.avro")} == known


@settings(max_examples=20)
@given(data=st.data())
def test_however_topics_change_their_rows_the_table_holds_what_they_have_left(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(manifests, "LOOSE", 2)
        patch.setattr(manifests, "_LEAST", 3)
        patch.setattr(shared_tables, "_COMMITS", 1)
        catalog = LocalCatalog(Home(tmp_path_factory.mktemp("changing")).prepare()).load()
        expected = set[tuple[str, str]]()
        for number in range(data.draw(st.integers(3, 15))):
            topic = data.draw(st.sampled_from("abcdefg"))
            there = sorted(message_id for each, message_id in expected if each == topic)
            gone = data.draw(st.sets(st.sampled_from(there))) if there else set[str]()
            table = errors(catalog)
            own = And(EqualTo(term="topic_name", value=topic), In(term="message_id", literals=gone)) if gone else None
            replace_own(table, rows(table, topic, f"m{number}", day=data.draw(st.integers(0, 1))), own)
            expected = expected - {(topic, each) for each in gone} | {(topic, f"m{number}")}
            assert held(catalog) == sorted(expected)
        summary = errors(catalog).current_snapshot()
        assert summary
        assert summary.summary
        assert int(str(summary.summary["total-records"])) == len(expected)


def _of_range(table: Table, topic: str) -> list[ManifestFile]:
    head = table.current_snapshot()
    assert head
    return [each for each in head.manifests(table.io) if manifests._first_topic(each) >= topic]


def _commit_before(monkeypatch: pytest.MonkeyPatch, others: Any, times: int) -> None:
    """Somebody else commits right before each of the next commits."""
    real, left = SqlCatalog.commit_table, iter(range(times))

    def commit(self: SqlCatalog, *change: Any) -> Any:
        if next(left, None) is not None:
            with monkeypatch.context() as undisturbed:
                undisturbed.setattr(SqlCatalog, "commit_table", real)
                others()
        return real(self, *change)

    monkeypatch.setattr(SqlCatalog, "commit_table", commit)
