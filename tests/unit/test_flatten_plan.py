"""Which payload field becomes which column."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leanops.names import SYSTEM_COLUMNS
from leanops.standardized.flatten_plan import (
    MAX_NAME_LENGTH,
    FlattenPlan,
    Path,
    column_from_comment,
    column_name,
)

NAMES = [
    "a",
    "A",
    "a_b",
    "b",
    "",
    "a.b",
    "a b",
    "message_id",
    "größe",
    "GRÖSSE",
    "名前",
    "x" * 200,
    "x" * 200 + "y",
    "0",
]
PATHS = st.lists(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map(tuple), max_size=40)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        (("event", "userId"), "event_userid"),
        (("event", "metadata", "ipAddress"), "event_metadata_ipaddress"),
        (("sessionId",), "sessionid"),
        (("_metadata", "idempotencyKeyResource"), "_metadata_idempotencykeyresource"),
        (("a.b",), "a_b"),
        (("a b`c",), "a_b_c"),
        (("größe",), "grou00dfe"),
        (("名",), "u540d"),
        (("",), "empty"),
        (("0k",), "_0k"),
        (("message_id",), "payload_message_id"),
        (("_file",), "payload__file"),
    ],
)
def test_a_field_is_named_by_its_path(path: Path, name: str) -> None:
    assert column_name(path) == name


def test_fields_that_would_share_a_column_each_get_their_own() -> None:
    plan = FlattenPlan().extended([("a", "b"), ("a_b",), ("A", "B"), ("a.b",)])
    first, *others = [column.name for column in plan.columns]
    assert first == "a_b"
    assert len(set(others)) == 3
    assert all(name.startswith("a_b__") for name in others)


@given(PATHS, st.integers(0, 40))
def test_a_plan_does_not_depend_on_how_its_paths_were_cut(paths: list[Path], cut: int) -> None:
    assert FlattenPlan(cap=30).extended(paths) == FlattenPlan(cap=30).extended(paths[:cut]).extended(paths[cut:])


@given(PATHS)
def test_no_two_columns_share_a_name_and_none_is_unsafe(paths: list[Path]) -> None:
    names = [column.name for column in FlattenPlan().extended(paths).columns]
    assert len(set(names)) == len(names)
    assert not set(names) & set(SYSTEM_COLUMNS)
    assert all(len(name) <= MAX_NAME_LENGTH and name.isascii() and name == name.lower() for name in names)


@given(PATHS)
def test_a_column_s_comment_is_the_way_back_to_its_field(paths: list[Path]) -> None:
    for column in FlattenPlan().extended(paths).columns:
        assert column_from_comment(column.name, column.comment) == column


def test_a_plan_that_is_full_takes_no_more() -> None:
    plan = FlattenPlan(cap=2).extended([("a",), ("b",), ("c",)])
    assert [column.path for column in plan.columns] == [("a",), ("b",)]
    assert plan.is_full
