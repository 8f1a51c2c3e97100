"""How often each Critical Data Element is missing, by day, from the open errors."""

from collections import defaultdict
from collections.abc import Collection
from datetime import date

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from leanops.curated.errors import open_errors
from leanops.ledger.account import Account
from leanops.ledger.rows import publish_day
from leanops.slices import Slice


def cde_violations(spark: SparkSession, accounts: Collection[Account]) -> dict[date, dict[str, int]]:
    """The rows of each day without an element that is critical, by column. Spark is asked only if there are errors."""
    found: dict[date, dict[str, int]] = defaultdict(dict)
    days = [account.day for account in accounts if account.fates["open_errors"]]
    if not days:
        return found
    topic = next(iter(accounts)).topic
    rules = open_errors(spark, topic).where(F.expr(Slice.of_days(days).on_days))
    missing = rules.select(publish_day(), F.inline("broken_rules")).where("rule = 'cde'")
    for row in missing.groupBy("day", "column").count().collect():
        found[row.day][row.column] = row["count"]
    return found
