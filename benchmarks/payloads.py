"""What reading payloads strictly and exactly costs, against Spark's own `from_json`, which does neither."""

import time
from collections.abc import Callable
from datetime import date
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from benchmarks.landing import write_messages
from benchmarks.report import Section
from leanops.home import Home
from leanops.names import Layer, spark_table
from leanops.raw.landing import land_file
from leanops.settings import Settings
from leanops.standardized.flatten_plan import FlattenPlan
from leanops.standardized.transform import new_fields, read_payloads
from leanops_resources.catalog import LocalCatalog
from leanops_resources.spark.server import stop
from leanops_resources.spark.session import attach

MESSAGES = 300_000
ROUNDS = 3
FLAT = (
    "_metadata struct<idempotencyKeyResource: string, correlationId: string>, event struct<timestamp: string, "
    "userId: string, eventType: string, metadata: struct<ipAddress: string, deviceId: string, userAgent: string>>, "
    "amount string, currency string, quantity string, gift string, items string, note string, sessionId string"
)


def measure(folder: Path) -> Section:
    """Read the payloads of a RAW table both ways, in turns, and keep the best of each."""
    home = Home(folder / "home").prepare()
    catalog = LocalCatalog(home)
    write_messages(folder / "messages.ndjson", MESSAGES)
    land_file(catalog.load(), "orders", folder / "messages.ndjson", date(2025, 1, 1))
    spark = attach(Settings(home=home.path), catalog)
    try:
        raw = spark.read.table(spark_table(Layer.RAW, "orders")).withColumn("topic", F.lit("orders"))
        sample = read_payloads(raw.limit(1000), {"orders": FlattenPlan()})
        plan = FlattenPlan().extended(new_fields(sample))
        ways: dict[str, Callable[[], DataFrame]] = {
            "`from_json` into STRING fields (lax, changes numbers)": lambda: raw.select(
                "message_id", F.from_json("json_payload", FLAT).alias("read")
            ),
            "`read_payloads` (strict, exact, finds new fields)": lambda: read_payloads(raw, {"orders": plan}),
        }
        best = dict.fromkeys(ways, float("inf"))
        for _ in range(ROUNDS):
            for name, way in ways.items():
                begun = time.perf_counter()
                way().write.format("noop").mode("overwrite").save()
                best[name] = min(best[name], time.perf_counter() - begun)
    finally:
        spark.stop()
        stop(home)
    bare = next(iter(best.values()))
    return Section(
        "Reading payloads",
        ("what", "seconds", "ratio"),
        [(name, f"{seconds:.2f}", f"{seconds / bare:.2f}") for name, seconds in best.items()],
        f"{MESSAGES:,} payloads of about 350 bytes and 14 fields, from RAW to nowhere; best of {ROUNDS} rounds, in "
        "turns.",
    )
