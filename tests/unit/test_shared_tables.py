"""Tables that all topics commit to."""

from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import EqualTo
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField, StringType

from leanops import shared_tables
from leanops.home import Home
from leanops.names import OPS_DB
from leanops.shared_tables import SNAPSHOTS, append_rows, replace_own
from leanops.tables import ensure_table
from leanops_resources.catalog import LocalCatalog

SCHEMA = Schema(NestedField(1, "topic", StringType()), NestedField(2, "number", LongType()))


@pytest.fixture
def catalog(home: Home) -> Catalog:
    return LocalCatalog(home).load()


def shared(catalog: Catalog) -> Table:
    return ensure_table(catalog, (OPS_DB, "shared"), SCHEMA, UNPARTITIONED_PARTITION_SPEC)


def rows(topic: str, *numbers: int) -> pa.Table:
    return pa.Table.from_pylist([{"topic": topic, "number": n} for n in numbers], schema_to_pyarrow(SCHEMA))


def held(catalog: Catalog) -> list[tuple[str, int]]:
    return sorted((row["topic"], row["number"]) for row in shared(catalog).scan().to_arrow().to_pylist())


def test_only_the_latest_snapshots_are_kept_and_no_row_is_lost(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_tables, "_IN_USE", timedelta(0))
    # Whoever else commits has not seen that snapshots have gone.
    stale = shared(catalog)
    for number in range(2 * SNAPSHOTS + 5):
        append_rows(shared(catalog), rows("a", number))
    append_rows(stale, rows("b", 1))
    replace_own(shared(catalog), rows("a", 100), EqualTo(term="number", value=7))
    expected = {("a", number) for number in [*range(2 * SNAPSHOTS + 5), 100]} - {("a", 7)} | {("b", 1)}
    assert held(catalog) == sorted(expected)
    assert SNAPSHOTS <= len(shared(catalog).metadata.snapshots) <= 2 * SNAPSHOTS


def test_snapshots_that_somebody_may_have_just_read_are_kept(catalog: Catalog) -> None:
    for number in range(2 * SNAPSHOTS + 5):
        append_rows(shared(catalog), rows("a", number))
    assert len(shared(catalog).metadata.snapshots) == 2 * SNAPSHOTS + 5


@pytest.mark.parametrize("replaces", [False, True])
def test_a_commit_is_tried_until_no_other_topic_is_faster(
    catalog: Catalog, replaces: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    append_rows(shared(catalog), rows("a", 0))
    real, faster = SqlCatalog.commit_table, iter(range(1, 13))

    def commit_after_another(self: SqlCatalog, *change: Any) -> Any:
        if number := next(faster, None):
            with monkeypatch.context() as undisturbed:
                undisturbed.setattr(SqlCatalog, "commit_table", real)
                shared(catalog).append(rows("other", number))
        return real(self, *change)

    monkeypatch.setattr(SqlCatalog, "commit_table", commit_after_another)
    if replaces:
        replace_own(shared(catalog), rows("a", 1), EqualTo(term="topic", value="a"))
    else:
        append_rows(shared(catalog), rows("a", 1))
    expected = [("a", 1)] if replaces else [("a", 0), ("a", 1)]
    assert held(catalog) == expected + [("other", number) for number in range(1, 13)]


def test_two_who_forget_the_same_snapshots_do_not_disturb_each_other(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(2 * SNAPSHOTS):
        append_rows(shared(catalog), rows("a", number))
    monkeypatch.setattr(shared_tables, "_IN_USE", timedelta(0))
    first, second = shared(catalog), shared(catalog)
    append_rows(first, rows("a", -1))
    append_rows(second, rows("a", -2))
    assert held(catalog)[:2] == [("a", -2), ("a", -1)]
