"""The key index of a topic: one of the snapshots of its Standardized table names it, as its statistics.

So an index lives and goes with that snapshot, by Iceberg's own rules. It is asked only while it is certain that it says
no of nothing that is there: where anybody else has changed a table, all files are read.
"""

from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import ancestors_of
from pyiceberg.table.statistics import StatisticsFile

from leanops.key_index.file import PREFIX, KeyFile
from leanops.snapshots import is_append, is_compaction, properties_of


def index_of(standardized: Table | None) -> StatisticsFile | None:
    """The last file of the index that has all rows of a table; None if there is none."""
    if standardized is None:
        return None
    held = {each.snapshot_id: each for each in index_files(standardized.metadata)}
    for snapshot in ancestors_of(standardized.current_snapshot(), standardized.metadata):
        if snapshot.snapshot_id in held:
            return held[snapshot.snapshot_id]
        if not is_compaction(snapshot):
            return None
    return None


def index_of_topic(raw: Table | None, standardized: Table | None, curated: Table | None) -> StatisticsFile | None:
    """The same for who looks for rows of all its tables: if nobody but builds has written to any of them."""
    is_certain = raw is None or is_only_appended(raw)
    is_certain &= all(is_written_by_builds(each) for each in (standardized, curated) if each)
    return index_of(standardized) if is_certain else None


def is_only_appended(raw: Table, since: int | None = None) -> bool:
    """Whether RAW holds what it held at a snapshot, and more: what others append has no number until it is built.

    Or, since no snapshot, what it held as far back as these are kept.
    """
    for snapshot in ancestors_of(raw.current_snapshot(), raw.metadata):
        if snapshot.snapshot_id == since:
            return True
        if not (properties_of(snapshot) or is_compaction(snapshot) or is_append(snapshot)):
            return False
    return True


def is_written_by_builds(table: Table) -> bool:
    """Whether nobody else has changed a table, as far back as its snapshots are kept."""
    snapshots = ancestors_of(table.current_snapshot(), table.metadata)
    return all(properties_of(each) or is_compaction(each) for each in snapshots)


def index_files(metadata: TableMetadata) -> list[StatisticsFile]:
    """The files of indexes among a table's statistics, of which other engines may have some."""
    return [each for each in metadata.statistics if f"/{PREFIX}" in each.statistics_path]


def outdated_files(metadata: TableMetadata, file: KeyFile) -> list[StatisticsFile]:
    """The files of indexes that one takes the place of."""
    return [each for each in index_files(metadata) if each.statistics_path not in (file.path, file.base)]


def attach_index(transaction: Transaction, snapshot_id: int, file: KeyFile) -> None:
    """Have a snapshot name its index. Those that it takes the place of are named no longer."""
    for each in outdated_files(transaction.table_metadata, file):
        # PyIceberg 0.12 forgets what an update was told before it is told to remove something.
        transaction.update_statistics().remove_statistics(each.snapshot_id).commit()
    transaction.update_statistics().set_statistics(file.statistics_of(snapshot_id)).commit()
