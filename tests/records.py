"""A topic of a few records, with something of everything that can happen to one, for tests on a real server."""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession

from leanops.batch.topics import TopicBuild, TopicTables
from leanops.contracts.model import Contract
from leanops.home import Home
from leanops.names import Layer, table
from leanops.raw.landing import land_file
from tests.building import build_topics, curate, standardize

CONTRACT = Contract.model_validate(
    {
        "table_name": "records",
        "envelope_columns": [{"name": "idempotency_key", "source": "key"}],
        "payload_columns": [{"name": "amount", "type": "INT", "cde": True}, {"name": "note", "type": "STRING"}],
    }
)
OF_THE_MOMENT = ("first_seen", "closed", "topic_name")


def message(message_id: str, day: int, **payload: object) -> dict[str, object]:
    return {
        "message_id": message_id,
        "publish_time": f"2026-01-{day:02}T08:00:00Z",
        "ingestion_ts": 1,
        "payload": payload,
    }


FIRST = [
    message("a1", 1, key="a", amount=1),
    message("b1", 1, key="b", amount="x"),
    message("c1", 2, key="c", amount=3),
]
SECOND = [
    message("a2", 3, key="a", amount=2, note="corrected"),
    message("b2", 3, key="b", amount=5, note="healed"),
    message("c2", 3, key="c", amount="y"),
    message("c1", 3, key="c", amount=4),
    {**message("d1", 3), "payload": "{"},
    message("e1", 2, key="e", amount="z", extra={"new": 1}),
]
THIRD = [message("c3", 1, key="c", amount=9), message("e2", 4, key="e", amount=7), {**message("d1", 4), "payload": "{"}]


@dataclass(frozen=True)
class Records:
    """A topic, and how it is landed into and built."""

    name: str
    home: Home
    catalog: Catalog
    spark: SparkSession

    def land(self, messages: Sequence[dict[str, object]]) -> None:
        file = self.home.path / "messages.ndjson"
        file.write_text("\n".join(map(json.dumps, messages)))
        land_file(self.catalog, self.name, file, date(2025, 1, 1))

    def standardize(self) -> None:
        standardize(self.spark, self.catalog, self.name, CONTRACT)

    def curate(self) -> None:
        curate(self.spark, self.catalog, self.name, CONTRACT)

    def build(self) -> None:
        self.standardize()
        self.curate()

    def tables(self) -> dict[Layer, list[dict[str, Any]]]:
        """All rows after RAW, but for the moments at which errors were seen; of these only the open ones."""
        return {
            layer: sorted(self._rows(layer), key=lambda row: row["message_id"]) for layer in Layer if layer != "raw"
        }

    def _rows(self, layer: Layer) -> Iterator[dict[str, Any]]:
        is_shared = layer in (Layer.PARSE_ERRORS, Layer.ERRORS)
        for row in self.catalog.load_table(table(layer, self.name)).scan().to_arrow().to_pylist():
            if not is_shared:
                yield row
            elif row["topic_name"] == self.name and not row.get("closed"):
                yield {name: value for name, value in row.items() if name not in OF_THE_MOMENT}


def build_all(topics: Sequence[Records], rebuild: Mapping[str, Collection[date]] | None = None) -> None:
    """Build both layers of topics as a batch, of some with days that are made anew."""
    days = rebuild or {}
    builds = [TopicBuild(TopicTables(each.catalog, each.name), CONTRACT, days.get(each.name, ())) for each in topics]
    if topics:
        build_topics(topics[0].spark, topics[0].catalog, builds)
