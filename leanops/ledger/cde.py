"""How often each Critical Data Element is missing, by day, from the open errors."""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection
from datetime import date

from pyiceberg.catalog import Catalog
from pyiceberg.expressions import And, EqualTo, IsNull
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from leanops.curated.errors import open_errors
from leanops.few_rows import few_rows
from leanops.ledger.account import Account
from leanops.ledger.rows import publish_day
from leanops.names import Layer, table
from leanops.slices import SMALL, Slice


def cde_violations(
    sessions: Callable[[], SparkSession], catalog: Catalog, accounts: Collection[Account]
) -> dict[date, Counter[str]]:
    """The rows of each day without an element that is critical, by column."""
    found: defaultdict[date, Counter[str]] = defaultdict(Counter)
    errors = {account.day: account.fates["open_errors"] for account in accounts if account.fates["open_errors"]}
    if not errors:
        return found
    topic, part = next(iter(accounts)).topic, Slice.of_days(errors)
    if sum(errors.values()) <= SMALL:
        is_open = And(EqualTo(term="topic_name", value=topic), IsNull(term="closed"))
        held = catalog.load_table(table(Layer.ERRORS, topic))
        for row in few_rows(held, ("publish_time", "broken_rules"), And(is_open, part.open_filter)).to_pylist():
            columns = (rule["column"] for rule in row["broken_rules"] if rule["rule"] == "cde")
            found[row["publish_time"].date()].update(columns)
        return found
    rules = open_errors(sessions(), topic).where(F.expr(part.on_days))
    missing = rules.select(publish_day(), F.inline("broken_rules")).where("rule = 'cde'")
    for row in missing.groupBy("day", "column").count().collect():
        found[row.day][row.column] = row["count"]
    return found
