"""The same messages by Lean-Ops: from the files to RAW, to Standardized, and to Curated."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import pyarrow as pa

from benchmarks.engine import Platform, seconds_of
from benchmarks.engine_data import History
from benchmarks.peers.messages import DAYS, MESSAGES, WARM_MESSAGES, Files
from leanops.names import Layer, table
from leanops.raw.landing import land_file

_FIRST_DAY = date(2025, 1, 1)


@dataclass(frozen=True)
class Load:
    """The seconds that one file took."""

    landing: float
    standardized: float
    curated: float


@dataclass(frozen=True)
class Ours:
    """Of each round the loads; and of the last one, what its Standardized holds and what its parse errors hold."""

    rounds: Sequence[Sequence[Load]]
    rows: pa.Table
    parse_errors: int


def measure_ours(folder: Path, files: Files, rounds: int) -> Ours:
    """Load a small topic for warmth, then both halves into a new topic in each round."""
    with Platform.in_folder(folder) as platform:
        spark = platform.session()

        def load(topic: History, file: Path) -> Load:
            landing = seconds_of(land_file, platform.catalog, topic.topic, file, _FIRST_DAY)
            standardized = seconds_of(platform.standardize, spark, topic)
            return Load(landing, standardized, seconds_of(platform.curate, spark, topic))

        for file in files.warm:
            load(History("warm", WARM_MESSAGES, DAYS), file)
        topics = [History(f"orders_{number}", MESSAGES, DAYS) for number in range(rounds)]
        loads = [[load(topic, file) for file in files.halves] for topic in topics]
        last = topics[-1].topic
        rows = platform.catalog.load_table(table(Layer.STANDARDIZED, last)).scan().to_arrow()
        errors = platform.catalog.load_table(table(Layer.PARSE_ERRORS, last)).scan(f"topic_name = '{last}'").count()
    return Ours(loads, rows, errors)
