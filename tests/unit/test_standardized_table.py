"""Tables of homes that exist follow what has come since."""

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema

from leanops.batch.topics import TopicTables
from leanops.contracts.model import Contract
from leanops.home import Home
from leanops.names import OBJECTS_COLUMN, Layer, table
from leanops.standardized.flatten_plan import FlatColumn
from leanops.standardized.table import (
    STANDARDIZED_PARTITIONS,
    STANDARDIZED_SCHEMA,
    add_columns,
    ensure_standardized_table,
    flat_columns,
)
from leanops.tables import ensure_table
from leanops_resources.catalog import LocalCatalog

CONTRACT = Contract.model_validate(
    {"table_name": "t", "envelope_columns": [], "payload_columns": [{"name": "n", "type": "INT"}]}
)


@pytest.fixture
def catalog(home: Home) -> Catalog:
    return LocalCatalog(home).load()


@pytest.mark.parametrize("fields", [[], [FlatColumn((OBJECTS_COLUMN,), OBJECTS_COLUMN), FlatColumn(("n",), "n")]])
def test_a_table_of_old_gets_the_system_columns_that_came_since(fields: list[FlatColumn], catalog: Catalog) -> None:
    before = Schema(*(field for field in STANDARDIZED_SCHEMA.fields if field.name != OBJECTS_COLUMN))
    add_columns(ensure_table(catalog, table(Layer.STANDARDIZED, "t"), before, STANDARDIZED_PARTITIONS), fields)
    for _ in range(2):
        made = ensure_standardized_table(TopicTables(catalog, "t"), CONTRACT)
        assert OBJECTS_COLUMN in made.schema().column_names
        names = {column.path: column.name for column in flat_columns(made.schema())}
        assert names == ({(OBJECTS_COLUMN,): f"payload_{OBJECTS_COLUMN}", ("n",): "n"} if fields else {})
