"""The ledger of one topic, for tests that look at one, and of many at once, which takes hardly longer."""

from collections.abc import Mapping

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
    return accounts_of_topics(spark, catalog, {topic: contract})[topic]


def accounts_of_topics(
    spark: SparkSession, catalog: Catalog, contracts: Mapping[str, Contract]
) -> dict[str, list[Account]]:
    """What the ledger says of both layers of several topics, drawn up at once."""
    tables = {topic: TopicTables(catalog, topic) for topic in contracts}
    requests = [LedgerRequest(tables[topic], contracts[topic], layer) for topic in contracts for layer in SOURCE]
    drawn = draw_up(Jobs(lambda: spark), catalog, requests)
    return {
        topic: [account for layer in SOURCE for account in built_or_raised(drawn[topic, layer])] for topic in contracts
    }
