"""`ops_db.topic_registry`: every topic that is known, when it was first and last heard of, and its state.

The table is a picture of the metadata at one moment. It is drawn anew each time and replaces the one before.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import IntegerType, LongType, NestedField, StringType, TimestamptzType

from leanops.contracts.manifest import Manifest
from leanops.inventory import row_count
from leanops.names import OPS_DB, Layer, table
from leanops.raw.table import landings
from leanops.tables import ensure_table

REGISTRY = (OPS_DB, "topic_registry")
REGISTRY_SCHEMA = Schema(
    NestedField(1, "topic", StringType(), required=True),
    NestedField(2, "state", StringType(), doc="READY, BUFFERING (no contract), PAUSED or ERROR"),
    NestedField(3, "contract_version", IntegerType()),
    NestedField(4, "raw_rows", LongType()),
    NestedField(5, "first_seen", TimestamptzType(), doc="When its first message landed"),
    NestedField(6, "last_seen", TimestamptzType(), doc="When its last message landed"),
    NestedField(7, "updated", TimestamptzType()),
)


@dataclass(frozen=True)
class TopicState:
    """A topic as the registry has it."""

    topic: str
    state: str
    contract_version: int | None
    raw_rows: int
    first_seen: datetime | None
    last_seen: datetime | None


def topic_states(catalog: Catalog, manifest: Manifest, closed_gates: Mapping[str, str]) -> Iterator[TopicState]:
    """The state of every topic. `closed_gates` has the status of each topic that is held back."""
    first_seen = _first_seen(catalog)
    landed = {name for _, name in catalog.list_tables(table(Layer.RAW, "")[0])}
    for topic in manifest.topics:
        name = table(Layer.RAW, topic.name)
        raw = catalog.load_table(name) if name[1] in landed else None
        moments = landings(raw)
        usual = "ERROR" if topic.contract_problem else "READY" if topic.contract else "BUFFERING"
        yield TopicState(
            topic=topic.name,
            state=closed_gates.get(topic.name, usual),
            contract_version=topic.contract.version if topic.contract else None,
            raw_rows=row_count(raw) if raw else 0,
            first_seen=first_seen.get(topic.name) or min(moments, default=None),
            last_seen=max(moments, default=None),
        )


def save_registry(catalog: Catalog, states: list[TopicState]) -> None:
    """Replace the registry by `states`, in one commit."""
    updated = datetime.now(UTC)
    rows = [{**asdict(state), "updated": updated} for state in states]
    _registry(catalog).overwrite(pa.Table.from_pylist(rows, schema_to_pyarrow(REGISTRY_SCHEMA)))


def _registry(catalog: Catalog) -> Table:
    return ensure_table(catalog, REGISTRY, REGISTRY_SCHEMA, UNPARTITIONED_PARTITION_SPEC)


def _first_seen(catalog: Catalog) -> dict[str, datetime]:
    """What the registry remembers: the snapshot of a topic's first message expires some day."""
    remembered = _registry(catalog).scan(selected_fields=("topic", "first_seen")).to_arrow().to_pylist()
    return {row["topic"]: row["first_seen"] for row in remembered if row["first_seen"]}
