"""What it costs to prove that nothing was lost, against what it costs to build; and to ask for one message's story."""

import statistics
from pathlib import Path

from benchmarks.engine import LARGE_TABLE, MESSAGES, TABLE_DAYS, Platform, both_layers, say, seconds_of
from benchmarks.engine_data import History, append_raw, land_history, sized
from benchmarks.report import Section
from leanops.batch.isolation import Jobs
from leanops.batch.topics import TopicTables
from leanops.contracts.manifest import Topic
from leanops.ledger.draw_up import LedgerRequest, draw_up
from leanops.ledger.trace import trace
from leanops.names import Layer

TRACES = 5
LAYERS = (Layer.STANDARDIZED, Layer.CURATED)


def measure_ledger(folder: Path) -> Section:
    """Build a day from scratch, then draw up its ledger."""
    # So large that it goes the same way.
    warm, history = History("warm", sized(300_000), days=1), History("orders", MESSAGES, days=1)
    rows: list[tuple[str, ...]] = []
    with Platform.in_folder(folder) as platform:
        spark = platform.session()
        for each in (warm, history):
            land_history(platform.catalog, each)
            built = both_layers(platform, spark, each)
            tables, jobs = TopicTables(platform.catalog, each.topic), Jobs(lambda: spark)
            requests = [LedgerRequest(tables, each.contract, layer) for layer in LAYERS]
            drawn = [seconds_of(draw_up, jobs, platform.catalog, [request]) for request in requests]
            say(f"{each.topic}: built in {built}, ledger in {drawn}")
        for layer, took, ledger in zip(LAYERS, built, drawn, strict=True):
            rows.append((layer.value, f"{took:.1f}", f"{ledger:.1f}", f"{ledger / took:.2f}"))
        rows.append(("both", f"{sum(built):.1f}", f"{sum(drawn):.1f}", f"{sum(drawn) / sum(built):.2f}"))
    return Section(
        "The ledger of a day",
        ("layer", "building the day, s", "its ledger, s", "ratio"),
        rows,
        f"{MESSAGES:,} messages of one publish day, built from scratch, then every row of it looked at again: where it "
        f"stands, how often, and why if nowhere. Once each, after a topic of {warm.messages:,} for warmth. The target "
        "is a ratio of 0.25.",
    )


def measure_trace(folder: Path) -> Section:
    """Ask a large topic for the story of a message that was corrected."""
    history = History("orders", LARGE_TABLE, TABLE_DAYS)
    topic = Topic(name=history.topic, contract=history.contract)
    with Platform.in_folder(folder) as platform:
        spark = platform.session()
        say(f"building {history.messages:,} messages: {seconds_of(land_history, platform.catalog, history):.0f} s")
        both_layers(platform, spark, history)
        append_raw(platform.catalog, history.topic, history.tick(0, 100))
        both_layers(platform, spark, history)
        found = spark.read.table("iceberg_standardized_db.orders").where("landing_seq % 997 = 0").limit(TRACES + 1)
        names = [(row.message_id, row.idempotency_key) for row in found.collect()]

        def told(name: str) -> None:
            assert list(trace(spark, platform.catalog, [topic], name))

        of_messages = [seconds_of(told, message_id) for message_id, _ in names][1:]
        of_records = [seconds_of(told, key) for _, key in names][1:]
    return Section(
        "The story of a message",
        ("asked for", "median, s", "longest, s", "target, s"),
        [
            ("message_id", f"{statistics.median(of_messages):.2f}", f"{max(of_messages):.2f}", 1),
            ("idempotency_key", f"{statistics.median(of_records):.2f}", f"{max(of_records):.2f}", 1),
        ],
        f"In a topic of {history.messages:,} messages of {TABLE_DAYS} days, on a warm server, in a session that is "
        f"there: {TRACES} of each after one for warmth. `leanops trace` adds the start of Python and of a session.",
    )
