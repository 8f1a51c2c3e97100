"""How the platform's Iceberg tables are made: one set of properties, one way to create."""

from collections.abc import Mapping
from contextlib import suppress
from functools import partial

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, NullOrder, SortField, SortOrder
from pyiceberg.transforms import IdentityTransform

from leanops.errors import BuildOvertaken, RowsForeign

SNAPSHOTS = 20
"""How many a table keeps in any case."""

_MERGES = "commit.manifest-merge.enabled"


PROPERTIES: Mapping[str, str] = {
    "format-version": "2",
    "write.target-file-size-bytes": "268435456",
    "commit.manifest.target-size-bytes": "8388608",
    # A table that gets small commits all day is planned from a few manifests, not from one per commit.
    _MERGES: "true",
    "commit.manifest.min-count-to-merge": "20",
    "write.parquet.compression-codec": "zstd",
    # Each commit writes all metadata anew; nothing else would ever remove what was written before.
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}

SHARED: Mapping[str, str] = {
    **PROPERTIES,
    # Hundreds of topics commit within a minute: whoever is slow still finds what it was told to read.
    "write.metadata.previous-versions-max": "100",
}
"""Of tables that all topics commit to."""

ERRORS_OF_TOPICS: Mapping[str, str] = {
    **SHARED,
    # Spark writes one file a day and run, in which each topic's rows stand together.
    "write.distribution-mode": "hash",
    # An error that is closed writes a position that is deleted, and not its whole day again.
    **{f"write.{change}.mode": "merge-on-read" for change in ("delete", "update", "merge")},
    # Two runs never change errors of one topic: each of its builds holds the topic.
    **{f"write.{change}.isolation-level": "snapshot" for change in ("delete", "update", "merge")},
}
"""Of the tables of what did not make it into a layer, by publish day and sorted by topic."""

# What a look-up reads of a large file. Builds write such row groups by themselves; a compaction has to be told.
_SMALL_ROW_GROUPS = {"write.parquet.row-group-size-bytes": "4194304"}

_WITHOUT_BOUNDS_OF_TEXTS = {
    # Manifests are read whenever a table is planned, and statistics of texts that nobody sorts are most of them.
    "write.metadata.metrics.default": "none",
    **{f"write.metadata.metrics.column.{name}": "full" for name in ("publish_time", "ingestion_ts", "landing_seq")},
}

LANDED: Mapping[str, str] = {
    **PROPERTIES,
    **_WITHOUT_BOUNDS_OF_TEXTS,
    **_SMALL_ROW_GROUPS,
}
"""Of tables of messages as they landed."""

KEYED: Mapping[str, str] = {
    **PROPERTIES,
    **_SMALL_ROW_GROUPS,
    # A correction of an old day writes a small file of deleted positions instead of writing that day again.
    "write.delete.mode": "merge-on-read",
    "write.merge.mode": "merge-on-read",
    "write.delete.granularity": "file",
    # RAW's files are of one day each, and what is read from them needs no shuffle to be written by day again.
    "write.distribution-mode": "none",
    "write.spark.fanout.enabled": "true",
}
"""Of tables with one row per key, in which later versions replace earlier ones."""

KEYED_TEXTS: Mapping[str, str] = {**KEYED, **_WITHOUT_BOUNDS_OF_TEXTS}
"""The same of tables whose columns are all texts."""


def without_retries(table: Table) -> None:
    """Let a commit fail when others were faster. PyIceberg would commit again by itself, on top of theirs."""
    _retry(table, {"commit.retry.num-retries": "0"})


def with_many_retries(table: Table) -> None:
    """Let a commit be tried on top of others' until it succeeds. PyIceberg would give up after four of them."""
    _retry(
        table,
        {
            "commit.retry.num-retries": "40",
            "commit.retry.min-wait-ms": "20",
            "commit.retry.max-wait-ms": "500",
        },
    )


def _retry(table: Table, how: Mapping[str, str]) -> None:
    """Say to this process alone how it is to commit."""
    table.metadata = table.metadata.model_copy(update={"properties": {**table.properties, **how}})


def overtaken(table: Table) -> BuildOvertaken:
    """What is raised when somebody else was faster."""
    return BuildOvertaken(
        f"Another build of {'.'.join(table.name())} has committed in the meantime.",
        "This one has changed nothing; what is left to do is pending and comes with the next tick.",
    )


def foreign_rows(table: Table, message_id: str) -> RowsForeign:
    """What is raised when days cannot be made anew by themselves."""
    return RowsForeign(
        f"{'.'.join(table.name())} holds a row of {message_id!r} that the layer before does not have so.",
        "Only a rebuild of all days is certain to put right what it has displaced.",
    )


def find_table(catalog: Catalog, identifier: tuple[str, str]) -> Table | None:
    """The table, or None if there is none. To ask for its existence first would read its metadata twice."""
    try:
        return catalog.load_table(identifier)
    except NoSuchTableError:
        return None


def ensure_table(
    catalog: Catalog,
    identifier: tuple[str, str],
    schema: Schema,
    spec: PartitionSpec,
    properties: Mapping[str, str] = PROPERTIES,
    sorted_by: str | None = None,
) -> Table:
    """The table, created first if it is not there."""
    there = find_table(catalog, identifier)
    return there or create_table(catalog, identifier, schema, spec, properties, sorted_by)


def create_table(
    catalog: Catalog,
    identifier: tuple[str, str],
    schema: Schema,
    spec: PartitionSpec,
    properties: Mapping[str, str],
    sorted_by: str | None = None,
) -> Table:
    """A table that was not there. Whoever is second to create it gets the first one's."""
    order = _sort_order(schema, sorted_by)
    create = partial(catalog.create_table, identifier, schema, None, spec, order, dict(properties))
    try:
        try:
            return create()
        except NoSuchNamespaceError:
            with suppress(NamespaceAlreadyExistsError):
                catalog.create_namespace(identifier[0])
            return create()
    except TableAlreadyExistsError:
        return catalog.load_table(identifier)


def _sort_order(schema: Schema, column: str | None) -> SortOrder:
    if column is None:
        return UNSORTED_SORT_ORDER
    return SortOrder(
        SortField(schema.find_field(column).field_id, IdentityTransform(), null_order=NullOrder.NULLS_FIRST)
    )


def ensure_errors_of_topics(
    catalog: Catalog, identifier: tuple[str, str], schema: Schema, spec: PartitionSpec
) -> Table:
    """A table of all topics' errors. One of old, partitioned by topic too, is partitioned anew."""
    made = ensure_table(catalog, identifier, schema, spec, ERRORS_OF_TOPICS, sorted_by="topic_name")
    if len(made.spec().fields) > len(spec.fields):
        _migrate(made)
    return made


def _migrate(made: Table) -> None:
    with made.transaction() as transaction:
        transaction.set_properties(dict(ERRORS_OF_TOPICS))
        with transaction.update_spec() as update:
            update.remove_field("topic_name")
        with transaction.update_sort_order() as order:
            order.asc("topic_name", IdentityTransform(), NullOrder.NULLS_FIRST)
