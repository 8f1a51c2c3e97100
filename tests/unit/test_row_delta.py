"""Deleted positions that PyIceberg commits: the canary for what it has no public way for."""

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile, ManifestContent
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation

from leanops import row_delta as module
from leanops.data_files import DayFiles, write_deleted_positions
from leanops.home import Home
from leanops.inventory import row_count
from leanops.raw.table import ensure_raw_table
from leanops.row_delta import row_delta
from leanops_resources.catalog import LocalCatalog

DAYS = [datetime(2025, 1, day, 12, tzinfo=UTC) for day in (1, 2)]


@pytest.fixture
def table(home: Home) -> Table:
    made = ensure_raw_table(LocalCatalog(home).load(), "orders")
    commit(made, written(made, ["a", "b", "c"], DAYS[0]) + written(made, ["d", "e"], DAYS[1]))
    return made


def written(table: Table, names: list[str], moment: datetime) -> list[DataFile]:
    schema = schema_to_pyarrow(table.schema())
    rows = pa.table({"message_id": names, "publish_time": pa.array([moment] * len(names), pa.timestamp("us", "UTC"))})
    columns = [
        rows[each.name] if each.name in rows.column_names else pa.nulls(len(names), each.type) for each in schema
    ]
    return list(DayFiles(table.io, table.metadata, schema, ()).write(pa.table(columns, schema=schema)))


def commit(table: Table, added: list[DataFile], dropped: list[DataFile] | None = None) -> int:
    with table.transaction() as transaction:
        return row_delta(transaction, {"leanops.x": "y"}, added, dropped or [])


def file_of(table: Table, day: int) -> DataFile:
    return next(task.file for task in table.scan().plan_files() if task.file.partition[0] == 20088 + day)


def deleted(table: Table, day: int, *positions: int) -> DataFile:
    rows = pa.table({"position": [*positions], "publish_time": pa.array([DAYS[day - 1]] * len(positions))})
    return write_deleted_positions(table.io, table.metadata, file_of(table, day).file_path, rows)


def names(table: Table) -> list[str]:
    return sorted(table.scan().to_arrow()["message_id"].to_pylist())


def test_rows_are_gone_for_pyiceberg_with_the_commit_that_deletes_their_positions(table: Table) -> None:
    snapshot_id = commit(table, [*written(table, ["f"], DAYS[1]), deleted(table, 1, 2, 0), deleted(table, 2, 1)])
    assert names(table) == ["b", "d", "f"]
    assert row_count(table) == 3
    snapshot = table.current_snapshot()
    assert snapshot
    assert snapshot.snapshot_id == snapshot_id
    assert snapshot.summary
    assert snapshot.summary["total-position-deletes"] == "3"
    assert snapshot.summary.operation is Operation.OVERWRITE
    assert snapshot.summary["leanops.x"] == "y"


def test_a_delete_is_about_one_file_and_nobody_opens_it_for_another(table: Table) -> None:
    commit(table, written(table, ["g"], DAYS[0]))
    commit(table, [deleted(table, 1, 0)])
    with_deletes = [task.file.file_path for task in table.scan().plan_files() if task.delete_files]
    assert len(with_deletes) == 1


def test_files_can_be_dropped_with_the_same_commit(table: Table) -> None:
    commit(table, [*written(table, ["f"], DAYS[0]), deleted(table, 2, 0)], [file_of(table, 1)])
    assert names(table) == ["e", "f"]


def test_manifests_of_deletes_are_put_together_when_they_are_many(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MANY_MANIFESTS", 2)
    counts = []
    for position in range(3):
        commit(table, [deleted(table, 1, position)])
        snapshot = table.current_snapshot()
        assert snapshot
        manifests = snapshot.manifests(table.io)
        counts.append(sum(each.content is ManifestContent.DELETES for each in manifests))
    assert counts == [1, 2, 1]
    assert names(table) == ["d", "e"]


def test_a_delete_is_small(table: Table) -> None:
    file = deleted(table, 1, 0, 1)
    assert Path(file.file_path.removeprefix("file://")).stat().st_size == file.file_size_in_bytes < 2_000
