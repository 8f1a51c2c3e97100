"""A tick of a fleet whose tables hold 90 days, against the same tick of a fleet that begins with none.

The history is made quickly: one topic of 90 days is landed and built by the platform itself, once, and maintained as
every night. Its data files are then committed to the tables of all topics, which hold the same rows, each with
metadata, checkpoints, a key index and errors of its own. So 2,100 tables of 90 days take a minute to be made, and
hardly any disk; the operating system has their files in memory, as it has those of the new fleet.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from benchmarks.calls import CallsOfTick, calls_per_topic
from benchmarks.engine import Platform, say
from benchmarks.engine_data import SHRINK, History, append_raw, contract_of, land_history, sized
from benchmarks.fleet import shares_of
from benchmarks.fleet_home import SIZES, Fleet, Ticked
from benchmarks.footprint import Footprint
from benchmarks.report import Section
from leanops.batch.isolation import Jobs
from leanops.batch.topics import TopicTables, built_or_raised
from leanops.commits import checkpoint_of, current_id
from leanops.curated.table import CURATED_PARTITIONS
from leanops.key_index.file import KeyFile, KeyIndex
from leanops.key_index.table import attach_index, index_of
from leanops.key_index.upkeep import maintain_index
from leanops.ledger.draw_up import LedgerRequest, draw_up
from leanops.maintenance import maintain_nightly
from leanops.names import ERRORS, SOURCE, Layer, spark_table, table
from leanops.raw.table import RAW_PARTITIONS
from leanops.snapshots import PREFIX
from leanops.standardized.table import STANDARDIZED_PARTITIONS
from leanops.tables import create_table
from leanops_resources.catalog import LocalCatalog

TOPICS = 700 // SHRINK
DAYS = 90
MESSAGES = sized(180_000)
SMALL_TOPICS = 60 // SHRINK
TEMPLATE = "template"
LAYERS = (Layer.RAW, Layer.STANDARDIZED, Layer.CURATED)
_PARTITIONS = {
    Layer.RAW: RAW_PARTITIONS,
    Layer.STANDARDIZED: STANDARDIZED_PARTITIONS,
    Layer.CURATED: CURATED_PARTITIONS,
}


@dataclass(frozen=True)
class Measured:
    """A tick of all topics, and what the one after it asked for, of some small topics."""

    ticked: Ticked
    shares: tuple[object, ...]
    """What Dagster, Spark and Python took of the core-seconds, and how many there were."""
    written: int
    """By how much Dagster's files have grown."""
    calls: CallsOfTick


def measure(folder: Path) -> tuple[Section, Section]:
    """The tick of a new fleet, and of one that has grown old, with the same messages."""
    with _fleet(folder / "new") as new:
        of_new = _measure(new)
    with _fleet(folder / "aged") as aged:
        sizes = _grow_old(aged)
        of_aged = _measure(aged)
    fleets = {"no tables": of_new, f"{DAYS} days": of_aged}
    index_share = sizes["index"] / sum(sizes[layer.value] for layer in LAYERS)
    rows = [
        (
            name,
            f"{each.ticked.looked:.1f}",
            f"{each.ticked.whole:.0f}",
            f"{each.ticked.whole / of_new.ticked.whole:.2f}",
            *each.shares,
            f"{each.written / 2**20:,.0f}",
        )
        for name, each in fleets.items()
    ]
    ticks = Section(
        "A tick of an aged fleet",
        (
            *("tables hold", "the sensor's look, s", "tick, s", "ratio"),
            *("in Dagster", "in Spark", "in Python", "core-seconds", "Dagster's files, MB more"),
        ),
        rows,
        f"{TOPICS} topics, of every 70 of which 1 has 4,000 messages, 9 have 400 and 60 have 40: 4 % correct records "
        f"of random earlier days, and 2 % are copies of messages of random earlier days. {DAYS} days are {MESSAGES:,} "
        f"messages of a topic, {sizes['raw'] / 2**20:.0f} MB of RAW, {sizes['standardized'] / 2**20:.0f} MB of "
        f"Standardized and {sizes['curated'] / 2**20:.0f} MB of Curated, a file a day, as the nightly maintenance "
        f"leaves them; the key index has {sizes['index'] / 2**20:.1f} MB, {100 * index_share:.1f} % of the tables "
        "(target: 3 %). One topic's history was built by the platform, and its files committed to the tables of all "
        "others. The target is a ratio of 1.2. Afterwards the ledgers of a topic of each size closed, every row of 90 "
        "days looked at.",
    )
    calls = {name: calls_per_topic(each.calls) for name, each in fleets.items()}
    names = [*calls["no tables"]]
    total = {name: sum(each.values()) for name, each in calls.items()}
    asked = Section(
        "What a small topic's tick asks of catalog and files, by the age of its tables",
        ("tables hold", *names, "all", "ratio"),
        [
            (
                name if name != "no tables" else "one tick",
                *(f"{each[call]:.1f}" for call in names),
                f"{total[name]:.1f}",
                f"{total[name] / total['no tables']:.2f}",
            )
            for name, each in calls.items()
        ],
        f"The tick after it, of {SMALL_TOPICS} topics with 40 messages each: calls of PyIceberg's catalog and file "
        "system in all Python processes, over the number of topics. The target is a ratio of 1.5.",
    )
    return ticks, asked


def _fleet(folder: Path) -> Fleet:
    fleet = Fleet(folder, TOPICS, write_contracts=_write_contracts)
    # All rows of 700 topics and 90 days would take longer than all that is measured; and none came from a queue.
    fleet.is_proven = False
    return fleet


def _write_contracts(folder: Path, count: int) -> None:
    for number in range(count):
        contract = contract_of(f"topic_{number:04}")
        file = folder / contract.table_name / "active" / "schema.json"
        file.parent.mkdir(parents=True)
        file.write_text(contract.model_dump_json(exclude_none=True))


def _measure(fleet: Fleet) -> Measured:
    """A tick of all topics, and one of some small ones."""
    _land(fleet, {size: fleet.names(size) for size in SIZES}, tick=0)
    say("the tick of all topics")
    size_before = fleet.history_bytes
    with Footprint(fleet.home.path) as footprint:
        ticked = fleet.tick()
    shares, written = shares_of(ticked, footprint), fleet.history_bytes - size_before
    say(f"  {ticked.whole:.0f} s")
    small = fleet.names("small")[:SMALL_TOPICS]
    _land(fleet, {"small": small}, tick=1)
    again = fleet.tick()
    _prove(fleet, [fleet.names(size)[0] for size in SIZES])
    return Measured(ticked, shares, written, CallsOfTick(len(small), Counter(), again.calls))


def _prove(fleet: Fleet, topics: Sequence[str]) -> None:
    """See that the ledgers of topics close, every row looked at."""
    with Platform.at_home(fleet.home) as platform:
        spark, catalog = platform.session(), platform.catalog
        requests = [
            LedgerRequest(TopicTables(catalog, topic), contract_of(topic), layer)
            for topic in topics
            for layer in SOURCE
        ]
        for outcome in draw_up(Jobs(lambda: spark), catalog, requests).values():
            assert all(account.closes and account.is_clean for account in built_or_raised(outcome))


def _land(fleet: Fleet, topics: Mapping[str, Sequence[str]], tick: int) -> None:
    catalog = LocalCatalog(fleet.home.prepare()).load()
    for size, names in topics.items():
        for name in names:
            append_raw(catalog, name, History(name, MESSAGES, DAYS).tick(tick, SIZES[size][1]))


def _grow_old(fleet: Fleet) -> dict[str, int]:
    """Give all topics tables of 90 days; how large those of one are, and its key index."""
    history = History(TEMPLATE, MESSAGES, DAYS)
    with Platform.at_home(fleet.home) as platform:
        spark, catalog = platform.session(), platform.catalog
        say(f"building {history.messages:,} messages of {DAYS} days, once")
        land_history(catalog, history)
        platform.standardize(spark, history)
        platform.curate(spark, history)
        template = {layer: catalog.load_table(table(layer, TEMPLATE)) for layer in LAYERS}
        maintain_index(lambda: spark, TEMPLATE, template[Layer.RAW], template[Layer.STANDARDIZED])
        for each in template.values():
            maintain_nightly(lambda: spark, each.refresh())
        say(f"committing its files to the tables of {TOPICS} topics")
        for name in fleet.names():
            _copy(catalog, template, name)
        _copy_errors(spark, fleet.names())
        index = index_of(template[Layer.STANDARDIZED])
        assert index
        sizes = {layer.value: sum(file.file_size_in_bytes for file in _data_files(template[layer])) for layer in LAYERS}
        for each in template.values():
            catalog.drop_table(each.name())
        return {**sizes, "index": index.file_size_in_bytes}


def _copy(catalog: Catalog, template: Mapping[Layer, Table], topic: str) -> None:
    """Make the tables of a topic with the files of another."""
    snapshots: dict[Layer, int | None] = {}
    for layer, source in template.items():
        copy = create_table(catalog, table(layer, topic), source.schema(), _PARTITIONS[layer], source.properties)
        checkpoint = checkpoint_of(source)
        if layer in SOURCE:
            checkpoint[f"{SOURCE[layer]}-snapshot"] = str(snapshots[SOURCE[layer]])
        with copy.transaction() as transaction:
            said = {f"{PREFIX}{name}": value for name, value in checkpoint.items()}
            with transaction.update_snapshot(snapshot_properties=said).fast_append() as change:
                for file in _data_files(source):
                    change.append_data_file(file)
            if layer is Layer.STANDARDIZED:
                attach_index(transaction, change.snapshot_id, _copy_index(source, copy))
        snapshots[layer] = current_id(copy)


def _data_files(source: Table) -> Iterator[DataFile]:
    snapshot = source.current_snapshot()
    assert snapshot
    for manifest in snapshot.manifests(source.io):
        yield from (entry.data_file for entry in manifest.fetch_manifest_entry(source.io))


def _copy_index(source: Table, copy: Table) -> KeyFile:
    index = index_of(source)
    assert index
    return KeyIndex.read(source.io, index.statistics_path).write(copy.io, copy.metadata)


def _copy_errors(spark: SparkSession, topics: Sequence[str]) -> None:
    """Give each topic the errors of the one that was built."""
    spark.createDataFrame(pa.table({"topic": topics})).createOrReplaceTempView("topics")
    for layer in ERRORS.values():
        name = spark_table(layer, "")
        columns = spark.read.table(name).columns
        own = ", ".join("topics.topic" if column == "topic_name" else f"errors.{column}" for column in columns)
        spark.sql(
            f"INSERT INTO {name} SELECT {own} FROM {name} errors CROSS JOIN topics "
            f"WHERE errors.topic_name = '{TEMPLATE}'"
        )
