"""Which snapshots of a table go, and which of its partitions are worth to be written anew."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from leanops.home import Home
from leanops.maintenance import MANY_FILES, SNAPSHOTS, YOUNG, expirable, is_worth_compacting
from leanops.raw.files import ARROW_SCHEMA
from leanops.raw.table import LAST_SEQ, ensure_raw_table
from leanops_resources.catalog import LocalCatalog

LATER = timedelta(minutes=1)
Commit = Callable[..., int]


@pytest.fixture
def catalog(home: Home) -> Catalog:
    return LocalCatalog(home).load()


@pytest.fixture
def table(catalog: Catalog) -> Table:
    return ensure_raw_table(catalog, "orders")


@pytest.fixture
def commit(table: Table) -> Commit:
    """Commit a file of one row; the id of its snapshot. Unless it is told to, the commit says nothing of a build."""

    def make(day: int = 1, says: bool = False, branch: str | None = None) -> int:
        row = {"message_id": "a", "publish_time": datetime(2026, 1, day, tzinfo=UTC), "landing_seq": 1}
        rows = pa.Table.from_pylist([row], ARROW_SCHEMA)
        table.append(rows, {LAST_SEQ: "1"} if says else {}, **({"branch": branch} if branch else {}))
        return max(table.metadata.snapshots, key=lambda each: each.sequence_number or 0).snapshot_id

    return make


def gone(table: Table, read: int | None = None, after: timedelta = YOUNG + LATER) -> list[int]:
    return expirable(table, read, datetime.now(UTC) + after)


def test_all_but_the_last_twenty_snapshots_go(table: Table, commit: Commit) -> None:
    assert gone(table) == []
    ids = [commit() for _ in range(SNAPSHOTS + 3)]
    assert gone(table) == ids[:3]


def test_what_somebody_may_still_read_stays(table: Table, commit: Commit) -> None:
    for _ in range(SNAPSHOTS + 3):
        commit()
    assert gone(table, after=YOUNG - LATER) == []


def test_what_the_next_layer_has_read_stays_with_all_that_came_after_it(table: Table, commit: Commit) -> None:
    ids = [commit() for _ in range(SNAPSHOTS + 9)]
    assert gone(table, read=ids[4]) == ids[:4]
    assert gone(table, read=ids[-1]) == ids[:9]
    assert gone(table, read=12345) == ids[:9]


def test_the_last_build_stays_however_much_others_have_committed_since(table: Table, commit: Commit) -> None:
    earlier, last = commit(says=True), commit(says=True)
    others = [commit() for _ in range(SNAPSHOTS + 2)]
    assert gone(table) == [earlier, *others[:2]]
    assert last not in gone(table)


def test_what_a_build_that_was_cut_off_began_at_stays(table: Table, commit: Commit) -> None:
    first, second = commit(), commit()
    table.manage_snapshots().create_branch(first, "build_0_x").commit()
    for _ in range(SNAPSHOTS):
        commit()
    assert gone(table) == [second]


def test_what_was_never_published_goes(table: Table, commit: Commit) -> None:
    base = commit()
    table.manage_snapshots().create_branch(base, "build_0_x").commit()
    draft = commit(branch="build_0_x")
    table.manage_snapshots().remove_branch("build_0_x").commit()
    assert gone(table) == [draft]


def test_only_many_small_files_of_one_partition_are_worth_to_be_written_anew(table: Table, commit: Commit) -> None:
    for day in (1, 2):
        for _ in range(MANY_FILES - 1):
            commit(day)
    assert not is_worth_compacting(table)
    commit(2)
    assert is_worth_compacting(table)
