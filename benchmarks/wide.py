"""What the columns of a contract cost: the same builds under contracts of 20 to 2,000 columns."""

import json
from datetime import date
from pathlib import Path
from typing import NamedTuple

from benchmarks.engine import Platform, both_layers, say
from benchmarks.engine_data import sized
from benchmarks.report import Section
from leanops.contracts.model import Contract
from leanops.raw.landing import land_file

WIDTHS = ((100, 20), (100, 60), (100, 300), (100, 2_000), (sized(20_000), 20), (sized(20_000), 300))
"""Messages and columns. 20,000 messages are built in Spark, a hundred beside it."""

_VALUES = {"INT": 12, "STRING": "text", "DECIMAL(18,2)": 129.90, "TIMESTAMP": "2026-01-14T08:00:00Z"}
"""The columns' types, in turns, and what every message has in them."""


class Wide(NamedTuple):
    """A topic with a contract of many columns."""

    topic: str
    contract: Contract


def measure(folder: Path) -> Section:
    """Build both layers of a topic for each width, into new tables, on a warm server."""
    with Platform.in_folder(folder) as platform:
        spark = platform.session()
        took: dict[tuple[int, int], tuple[float, float]] = {}
        for messages, columns in (WIDTHS[0], *WIDTHS):  # the first of all is for warmth
            topic = f"wide_{columns}_{messages}_{len(took)}"
            wide = _contract(topic, columns)
            _land(platform, folder / "messages.ndjson", wide, messages)
            say(f"{messages:,} messages of {columns:,} columns")
            took[messages, columns] = both_layers(platform, spark, Wide(topic, wide))
    narrow = {messages: sum(seconds) for (messages, columns), seconds in took.items() if columns == WIDTHS[0][1]}
    return Section(
        "Contracts of many columns",
        ("messages", "columns", "Standardized, seconds", "Curated, seconds", "both, ratio to 20 columns"),
        [
            (
                f"{messages:,}",
                f"{columns:,}",
                *(f"{each:.2f}" for each in seconds),
                f"{sum(seconds) / narrow[messages]:.1f}",
            )
            for (messages, columns), seconds in took.items()
        ],
        "Every message has a value that fits in every column; four types in turns. Into new tables, on a "
        "warm server, each once; the first of many messages also starts Spark's Python workers.",
    )


def _contract(topic: str, columns: int) -> Contract:
    types = list(_VALUES)
    payload = [{"name": f"c{i}", "type": types[i % len(types)], "cde": i == 0} for i in range(columns)]
    return Contract.model_validate({"table_name": topic, "envelope_columns": [], "payload_columns": payload})


def _land(platform: Platform, file: Path, wide: Contract, messages: int) -> None:
    payload = {column.name: _VALUES[str(column.type)] for column in wide.payload_columns}
    line = json.dumps({"message_id": "m-%", "publish_time": "2026-01-14T08:00:00Z", "payload": payload}) + "\n"
    with file.open("w") as lines:
        lines.writelines(line.replace("m-%", f"m-{number}", 1) for number in range(messages))
    land_file(platform.catalog, wide.table_name, file, date(2025, 1, 1))
