"""How often each Critical Data Element is missing, by topic and day, from the open errors."""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection
from datetime import date

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from leanops.ledger.account import Account
from leanops.ledger.rows import publish_day
from leanops.names import Layer, spark_table
from leanops.slices import Slice


def cde_violations(
    sessions: Callable[[], SparkSession], accounts: Collection[Account]
) -> dict[tuple[str, date], Counter[str]]:
    """The rows of each topic and day without an element that is critical, by column. Spark is asked once for all."""
    found: defaultdict[tuple[str, date], Counter[str]] = defaultdict(Counter)
    wanted = {(account.topic, account.day) for account in accounts if account.fates.get("open_errors")}
    if not wanted:
        return found
    topics, days = sorted({topic for topic, _ in wanted}), {day for _, day in wanted}
    errors = sessions().read.table(spark_table(Layer.ERRORS, ""))
    of_days = errors.where(F.col("topic_name").isin(topics) & F.expr(Slice.of_days(days).on_days))
    broken = of_days.where(F.col("closed").isNull()).select("topic_name", publish_day(), F.inline("broken_rules"))
    for row in broken.where("rule = 'cde'").groupBy("topic_name", "day", "column").count().collect():
        if (row["topic_name"], row["day"]) in wanted:
            found[row["topic_name"], row["day"]][row["column"]] = row["count"]
    return found
