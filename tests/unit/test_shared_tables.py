"""Tables that all topics commit to."""

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import DayTransform, IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from leanops.home import Home
from leanops.inventory import table_day
from leanops.names import DAY_FIELD, OPS_DB, Layer, table
from leanops.shared_tables import append_rows
from leanops.standardized.table import PARSE_ERRORS_SCHEMA, ensure_parse_errors_table
from leanops.tables import ERRORS_OF_TOPICS, ensure_table
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


def test_a_commit_is_tried_until_no_other_topic_is_faster(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    append_rows(shared(catalog), rows("a", 0))
    real, faster = SqlCatalog.commit_table, iter(range(1, 13))

    def commit_after_another(self: SqlCatalog, *change: Any) -> Any:
        if number := next(faster, None):
            with monkeypatch.context() as undisturbed:
                undisturbed.setattr(SqlCatalog, "commit_table", real)
                shared(catalog).append(rows("other", number))
        return real(self, *change)

    monkeypatch.setattr(SqlCatalog, "commit_table", commit_after_another)
    append_rows(shared(catalog), rows("a", 1))
    assert held(catalog) == [("a", 0), ("a", 1)] + [("other", number) for number in range(1, 13)]


def test_a_table_of_errors_that_was_partitioned_by_topic_is_partitioned_by_day_from_now_on(catalog: Catalog) -> None:
    of_old = PartitionSpec(
        PartitionField(2, 1000, IdentityTransform(), "topic_name"),
        PartitionField(3, 1001, DayTransform(), DAY_FIELD),
    )
    made = ensure_table(catalog, table(Layer.PARSE_ERRORS, ""), PARSE_ERRORS_SCHEMA, of_old)
    moment = datetime(2026, 1, 1, tzinfo=UTC)

    def row(topic: str) -> pa.Table:
        return pa.Table.from_pylist(
            [{"message_id": "m", "topic_name": topic, "publish_time": moment}], schema_to_pyarrow(made.schema())
        )

    append_rows(made, row("a"))
    for topic in ("b", "c"):
        append_rows(ensure_parse_errors_table(catalog), row(topic))
    migrated = catalog.load_table(table(Layer.PARSE_ERRORS, ""))
    assert [each.name for each in migrated.spec().fields] == [DAY_FIELD]
    assert [each.source_id for each in migrated.sort_order().fields] == [2]
    assert migrated.properties.items() >= ERRORS_OF_TOPICS.items()
    assert sorted(migrated.scan().to_arrow()["topic_name"].to_pylist()) == ["a", "b", "c"]
    assert table_day(migrated, moment.date()).rows == 3
