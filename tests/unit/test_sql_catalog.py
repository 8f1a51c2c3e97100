"""The catalog that parses and copies no metadata twice."""

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from leanops.home import Home
from leanops.names import OPS_DB
from leanops.tables import ensure_table, without_retries
from leanops_resources.catalog import LocalCatalog

NAME = (OPS_DB, "one")
SCHEMA = Schema(NestedField(1, "topic", StringType()), NestedField(2, "number", LongType()))


@pytest.fixture
def catalog(home: Home) -> Catalog:
    catalog = LocalCatalog(home).load()
    ensure_table(catalog, NAME, SCHEMA, UNPARTITIONED_PARTITION_SPEC)
    return catalog


def test_what_others_have_committed_is_seen_by_whoever_loads_or_refreshes(home: Home, catalog: Catalog) -> None:
    mine, theirs = catalog.load_table(NAME), LocalCatalog(home).load().load_table(NAME)
    with theirs.transaction() as change:
        change.set_properties({"said": "so"})
    assert "said" not in mine.properties
    assert catalog.load_table(NAME).properties["said"] == "so"
    assert mine.refresh().properties["said"] == "so"


def test_what_one_holder_of_a_table_changes_for_itself_is_not_seen_by_another(catalog: Catalog) -> None:
    mine = catalog.load_table(NAME)
    without_retries(mine)
    assert "commit.retry.num-retries" in mine.properties
    assert "commit.retry.num-retries" not in catalog.load_table(NAME).properties


def test_a_transaction_knows_what_the_table_becomes_with_each_change(catalog: Catalog) -> None:
    change = catalog.load_table(NAME).transaction()
    seen = [change.table_metadata.properties.get("said")]
    for word in ("so", "so not"):
        change.set_properties({"said": word})
        seen += [change.table_metadata.properties["said"], change.table_metadata.properties["said"]]
    assert seen == [None, "so", "so", "so not", "so not"]


def test_of_two_transactions_at_once_one_fails(catalog: Catalog) -> None:
    first, second = catalog.load_table(NAME), catalog.load_table(NAME)
    with first.update_schema() as update:
        update.add_column("a", LongType())
    with pytest.raises(CommitFailedException), second.transaction() as change, change.update_schema() as update:
        update.add_column("b", LongType())
    assert catalog.load_table(NAME).schema().column_names == ["topic", "number", "a"]
