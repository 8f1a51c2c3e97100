"""Maintenance of a table: few and large files, few manifests, the snapshots that are of use, no file that is of none.

| every | what | where |
|---|---|---|
| night | `rewrite_data_files`, to files of up to 256 MB | `MANY_FILES` of a partition are small, or delete rows |
| night | `rewrite_manifests` | more than `MANY_MANIFESTS` |
| night | `expire_snapshots` | any of them is of no use (`expirable`) |
| night | the key index is written anew (`key_index/upkeep.py`) | it is missing, damaged, or in two files |
| week | `rewrite_position_delete_files` | any row is deleted by its position |
| week | `remove_orphan_files` | everywhere: files that no snapshot refers to, once they are 72 hours old |

Whether a table needs any of it is told by its metadata. What it needs is done by Iceberg's own procedures, in Spark:
none of them changes a row.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta

from pyiceberg.catalog import Catalog
from pyiceberg.manifest import ManifestContent
from pyiceberg.table import Table
from pyiceberg.table.snapshots import ancestors_of
from pyspark.sql import Row, SparkSession

from leanops.commits import checkpoint_of, last_build
from leanops.inventory import row_count
from leanops.key_index.table import index_files
from leanops.names import CATALOG, NEXT, Layer
from leanops.names import table as table_name
from leanops.slices import sized
from leanops.tables import SNAPSHOTS, find_table

YOUNG = timedelta(hours=6)
"""Whoever reads a table may be at it for so long."""

LOST = timedelta(hours=72)
"""A file that nothing refers to for so long is nobody's who still works on it."""

MANY_FILES = 5
MANY_MANIFESTS = 20
_NEVER = datetime(1970, 1, 1, tzinfo=UTC)
_SMALL_FILE = 192 * 2**20
"""Three quarters of what a file should have: what Iceberg itself takes for small."""

Sessions = Callable[[], SparkSession]


def maintain_nightly(
    sessions: Sessions, table: Table, read: int | None = None, is_shared: bool = False
) -> Counter[str]:
    """Do what a table needs every night; how much that was. `read` is the snapshot that the next layer stands for.

    Of a table that others commit to meanwhile, what they have changed is left for another night.
    """
    done: Counter[str] = Counter()
    if is_worth_compacting(table):
        options = {
            "min-input-files": str(MANY_FILES),
            "delete-file-threshold": str(MANY_FILES),
            "remove-dangling-deletes": "true",
            "partial-progress.enabled": str(is_shared).lower(),
        }
        [said] = _call(sessions, "rewrite_data_files", table, row_count(table), options=_map(options))
        done["files_compacted"] = said["rewritten_data_files_count"]
        table.refresh()
    current = table.current_snapshot()
    if current and len(current.manifests(table.io)) > MANY_MANIFESTS:
        [said] = _call(sessions, "rewrite_manifests", table, use_caching="false")
        done["manifests_rewritten"] = said["rewritten_manifests_count"]
        table.refresh()
    if ids := expirable(table, read, datetime.now(UTC)):
        # Without a moment, Iceberg would choose further ones by itself.
        listed = f"array({', '.join(map(str, ids))})"
        [said] = _call(sessions, "expire_snapshots", table, older_than=_moment(_NEVER), snapshot_ids=listed)
        done["snapshots_expired"] = len(ids)
        done["files_removed"] = sum(count or 0 for count in said.asDict().values())
    return +done


def maintain_weekly(sessions: Sessions, table: Table) -> Counter[str]:
    """Do what a table needs every week; how much that was."""
    done: Counter[str] = Counter()
    if _has_deleted_positions(table):
        [said] = _call(sessions, "rewrite_position_delete_files", table, row_count(table))
        done["delete_files_rewritten"] = said["rewritten_delete_files_count"]
    before = _moment(datetime.now(UTC) - LOST)
    done["lost_files_removed"] = len(_call(sessions, "remove_orphan_files", table, older_than=before))
    return +done


def expirable(table: Table, read: int | None, now: datetime) -> list[int]:
    """The snapshots of a table that go: all but the last ones, the young ones, and those that something rests on.

    That is what a branch begins at, the last one that says what the table stands for, those that the key index goes
    with, and the one that the next layer has `read`, with all that came after it: what it has not taken in yet is told
    by these.
    """
    lineage = list(ancestors_of(table.current_snapshot(), table.metadata))
    ids = [each.snapshot_id for each in lineage]
    kept = {*ids[:SNAPSHOTS], *(ref.snapshot_id for ref in table.refs().values())}
    kept.update(each.snapshot_id for each in index_files(table.metadata))
    if read in ids:
        kept.update(ids[: ids.index(read) + 1])
    if build := last_build(table):
        kept.add(build.snapshot_id)
    before = (now - YOUNG).timestamp() * 1000
    snapshots = table.metadata.snapshots
    return [each.snapshot_id for each in snapshots if each.snapshot_id not in kept and each.timestamp_ms < before]


def read_by_next(catalog: Catalog, topic: str, layer: Layer) -> int | None:
    """The snapshot of a topic's layer that the layer after it stands for."""
    after = NEXT.get(layer)
    said = checkpoint_of(find_table(catalog, table_name(after, topic))) if after else {}
    read = said.get(f"{layer}-snapshot")
    return int(read) if read else None


def is_worth_compacting(table: Table) -> bool:
    """Whether there is a partition of many small files, or a file of which rows were deleted many times."""
    tasks = list(table.scan().plan_files())
    small = Counter(str(task.file.partition) for task in tasks if task.file.file_size_in_bytes < _SMALL_FILE)
    return any(count >= MANY_FILES for count in (*small.values(), *(len(task.delete_files) for task in tasks)))


def _has_deleted_positions(table: Table) -> bool:
    current = table.current_snapshot()
    return current is not None and any(
        manifest.content is ManifestContent.DELETES for manifest in current.manifests(table.io)
    )


def _map(options: Mapping[str, str]) -> str:
    texts = ", ".join(f"'{text}'" for pair in options.items() for text in pair)
    return f"map({texts})"


def _moment(moment: datetime) -> str:
    return f"TIMESTAMP '{moment:%Y-%m-%d %H:%M:%S}'"


def _call(sessions: Sessions, procedure: str, table: Table, rows: int = 0, **arguments: str) -> list[Row]:
    """What a procedure of Iceberg says that it has done to a table, of which it reads so many rows."""
    said = {"table": f"'{'.'.join((CATALOG, *table.name()))}'", **arguments}
    text = ", ".join(f"{name} => {value}" for name, value in said.items())
    spark = sessions()
    sized(spark, rows)
    return spark.sql(f"CALL {CATALOG}.system.{procedure}({text})").collect()
