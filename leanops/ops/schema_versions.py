"""`ops_db.schema_versions`: every contract that was activated, what it changed, who submitted it, and when."""

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import AlwaysTrue, And, EqualTo
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import IntegerType, NestedField, StringType, TimestamptzType

from leanops.contracts.diff import Diff
from leanops.contracts.model import Contract
from leanops.names import OPS_DB
from leanops.tables import ensure_table

SCHEMA_VERSIONS = (OPS_DB, "schema_versions")
VERSIONS_SCHEMA = Schema(
    NestedField(1, "topic", StringType(), required=True),
    NestedField(2, "version", IntegerType(), required=True),
    NestedField(3, "impact", StringType(), doc="noted, compatible or breaking"),
    NestedField(4, "changes", StringType(), doc="What is different from the version before, a line each"),
    NestedField(5, "submitted_by", StringType()),
    NestedField(6, "activated", TimestamptzType()),
    NestedField(7, "contract", StringType(), doc="The contract itself, as JSON"),
)


def log_version(catalog: Catalog, topic: str, contract: Contract, diff: Diff, by: str | None) -> bool:
    """Log an activation, and say whether it was new: however often it is called, the same contract appears once."""
    log = _versions(catalog)
    said = contract.model_dump_json(exclude_defaults=True)
    known = log.scan(
        row_filter=And(EqualTo(term="topic", value=topic), EqualTo(term="version", value=contract.version)),
        selected_fields=("contract",),
    ).to_arrow()["contract"]
    if said in known.to_pylist():
        return False
    row = {
        "topic": topic,
        "version": contract.version,
        "impact": diff.impact.value,
        "changes": "\n".join(map(str, diff.changes)),
        "submitted_by": by,
        "activated": datetime.now(UTC),
        "contract": said,
    }
    log.append(pa.Table.from_pylist([row], schema_to_pyarrow(VERSIONS_SCHEMA)))
    return True


def versions(catalog: Catalog, topic: str | None = None) -> list[dict[str, Any]]:
    """What was activated, of one topic or of all, the first first."""
    where = EqualTo(term="topic", value=topic) if topic else AlwaysTrue()
    rows: list[dict[str, Any]] = _versions(catalog).scan(row_filter=where).to_arrow().to_pylist()
    return sorted(rows, key=lambda row: (row["topic"], row["activated"]))


def _versions(catalog: Catalog) -> Table:
    return ensure_table(catalog, SCHEMA_VERSIONS, VERSIONS_SCHEMA, UNPARTITIONED_PARTITION_SPEC)
