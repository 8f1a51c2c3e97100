"""Where a rebuild branches off: what is committed there and to the live tables never gets in each other's way."""

from typing import cast

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from leanops.batch.topics import TopicTables
from leanops.home import Home
from leanops.names import Layer, table
from leanops.rebuild import TopicBranch
from leanops.standardized.table import ensure_standardized_table
from leanops_resources.catalog import LocalCatalog
from tests.records import CONTRACT

TOPIC = "orders"
NO_SPARK = cast("SparkSession", None)


@pytest.fixture
def live(home: Home) -> Catalog:
    return LocalCatalog(home).load()


def standardized(catalog: Catalog) -> Table:
    return catalog.load_table(table(Layer.STANDARDIZED, TOPIC))


def commit(catalog: Catalog, times: int) -> None:
    for number in range(times):
        with standardized(catalog).transaction() as change:
            change.set_properties(number=str(number))


def test_neither_removes_metadata_that_the_other_is_read_from(home: Home, live: Catalog) -> None:
    kept = int(
        ensure_standardized_table(TopicTables(live, TOPIC), CONTRACT).properties["write.metadata.previous-versions-max"]
    )
    commit(live, 2)
    with LocalCatalog(home).branch() as branch:
        TopicBranch.off(live, branch.load(), NO_SPARK, TOPIC)
        commit(live, kept + 5)
        commit(branch.load(), kept + 5)
        assert standardized(branch.load()).properties["number"] == str(kept + 4)
    assert standardized(live).properties["number"] == str(kept + 4)
    places = [entry.metadata_file for entry in standardized(live).metadata.metadata_log]
    assert len(places) == kept
    assert all(standardized(live).io.new_input(place).exists() for place in places)
