"""The ledger of one topic, for tests that look at one: a batch of its own."""

from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession

from leanops.batch.isolation import Jobs
from leanops.batch.topics import TopicTables, built_or_raised
from leanops.contracts.model import Contract
from leanops.ledger.account import Account
from leanops.ledger.draw_up import LedgerRequest, draw_up
from leanops.names import SOURCE, Layer
from leanops.slices import Slice


def accounts_of(
    spark: SparkSession, catalog: Catalog, topic: str, contract: Contract, layer: Layer, part: Slice | None = None
) -> list[Account]:
    """What the ledger says of one layer."""
    request = LedgerRequest(TopicTables(catalog, topic), contract, layer, part)
    return built_or_raised(draw_up(Jobs(lambda: spark), catalog, [request])[topic, layer])


def all_accounts_of(spark: SparkSession, catalog: Catalog, topic: str, contract: Contract) -> list[Account]:
    """What the ledger says of both layers, drawn up at once."""
    tables = TopicTables(catalog, topic)
    drawn = draw_up(Jobs(lambda: spark), catalog, [LedgerRequest(tables, contract, layer) for layer in SOURCE])
    return [account for layer in SOURCE for account in built_or_raised(drawn[topic, layer])]
