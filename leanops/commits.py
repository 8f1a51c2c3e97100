"""How a build commits: published whole or not at all, and only if the table still stands where the build has read it.

So two builds of one table at once cannot mix, whoever is slower: the second is overtaken and has changed nothing. The
checkpoint is part of the published commit, so that data and checkpoint cannot disagree.

A build needs one commit. Before it writes errors it begins a branch, as a mark: one that was left behind says that a
build was cut off, and from which checkpoint it had begun.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from uuid import uuid4

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table, Transaction
from pyiceberg.table.snapshots import Snapshot, ancestors_of
from pyiceberg.table.update.snapshot import ManageSnapshots
from pyiceberg.types import NestedField
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from leanops.batch.write import Written
from leanops.checkpointed import checkpointed
from leanops.errors import BuildOvertaken
from leanops.key_index.table import attach_index, outdated_files
from leanops.row_delta import row_delta
from leanops.snapshots import PREFIX, properties_of
from leanops.table_files import note_files
from leanops.tables import overtaken, without_retries

MOST_NAMED = 500
"""So many rows that later versions have replaced are named in a commit."""

_MANY = "many"
_DRAFT = "build_"


def current_id(table: Table) -> int | None:
    """The id of the snapshot that readers see."""
    snapshot = table.current_snapshot()
    return snapshot.snapshot_id if snapshot else None


def checkpoint_of(table: Table | None) -> dict[str, str]:
    """What the table stands for, as its last build says; commits of others since then, such as a compaction, do not."""
    build = last_build(table)
    return properties_of(build) if build else {}


def last_build(table: Table | None) -> Snapshot | None:
    """The last commit that says what the table stands for."""
    snapshots = ancestors_of(table.current_snapshot(), table.metadata) if table else ()
    return next(filter(properties_of, snapshots), None)


def commits_since(table: Table, snapshot_id: str | None) -> list[dict[str, str]] | None:
    """What the builds since a snapshot say of themselves; None if that snapshot is no longer known."""
    said: list[dict[str, str]] = []
    for snapshot in ancestors_of(table.current_snapshot(), table.metadata):
        if str(snapshot.snapshot_id) == snapshot_id:
            return said
        said.append(properties_of(snapshot))
    return None


def replaced_text(seqs: Sequence[int] | None) -> str:
    """Rows that later versions have replaced, for the summary of a commit; or that there are too many for one."""
    return _MANY if seqs is None or len(seqs) > MOST_NAMED else ",".join(map(str, seqs))


def replaced_since(builds: Iterable[Mapping[str, str]], upto: int) -> list[int] | None:
    """The rows up to a number that builds have replaced, in order; None if any of them has too many to name."""
    texts = [build.get("replaced", "") for build in builds]
    if _MANY in texts:
        return None
    return sorted(int(seq) for text in texts for seq in text.split(",") if seq and int(seq) <= upto)


def certain_upto(table: Table | None, upto: int) -> int:
    """The landing_seq up to which nothing is in doubt: a build that was cut off may have left errors from there on."""
    return min([upto, *_left_behind(table).values()]) if table else upto


def is_in_doubt(table: Table) -> bool:
    """Whether a build was interrupted, and may have left errors of rows that it has not published."""
    return bool(_left_behind(table))


@dataclass
class Draft:
    """A table's next state while it is being written."""

    table: Table
    base: Snapshot | None
    name: str
    left_behind: Collection[str]
    """The branches of builds that were cut off. What these wrote beside the table may still be there."""
    is_new: bool
    """Whether the table was made for this build."""
    _is_begun: bool = False

    @classmethod
    def of(cls, table: Table, after: int, is_new: bool) -> "Draft":
        """A draft of what the table becomes when rows that landed `after` are taken in."""
        name = f"{_DRAFT}{after}_{uuid4().hex[:12]}"
        return cls(table, table.current_snapshot(), name, [*_left_behind(table)], is_new)

    def begin(self) -> None:
        """Say that the build may leave errors of rows that it has not published, by a branch.

        A table without any snapshot has nothing that a branch could begin at, and says it by that.
        """
        if self.base is not None:
            change = self.table.manage_snapshots().create_branch(self.base_id, self.name)
            for ref in self.left_behind:
                change = change.remove_branch(ref)
            try:
                change.commit()
            except CommitFailedException as error:
                raise overtaken(self.table) from error
        self._is_begun = True
        # The commit has brought along what the table is by now.
        self._require_base()

    @property
    def is_second_try(self) -> bool:
        """Whether a build may have been cut off before this one."""
        return bool(self.left_behind) or (self.base is None and not self.is_new)

    @property
    def base_id(self) -> int:
        """The snapshot that the build has read; 0 when there was none."""
        return self.base.snapshot_id if self.base else 0

    @property
    def is_of_nothing(self) -> bool:
        """Whether the table has held no row so far."""
        summary = self.base.summary if self.base else None
        return summary is None or not int(summary["total-records"] or 0)

    def publish(
        self,
        written: Written,
        dropped: Collection[DataFile],
        columns: Sequence[NestedField],
        checkpoint: Mapping[str, str],
    ) -> Snapshot:
        """Publish files that workers have written, with the columns that they bring, in the place of those `dropped`.

        All of it in one commit.
        """
        outdated = outdated_files(self.table.metadata, written.index) if written.index else []
        deletes = [file for _, file in written.deletes]
        try:
            self._require_base()
            without_retries(self.table)
            with self.table.transaction() as transaction:
                _add_columns(transaction, columns)
                properties = {f"{PREFIX}{key}": value for key, value in checkpoint.items()}
                snapshot_id = row_delta(transaction, properties, [*written.added, *deletes], [*dropped])
                if written.index:
                    attach_index(transaction, snapshot_id, written.index)
                refs = ManageSnapshots(transaction)
                for ref in [self.name] if self._has_branch else self.left_behind:
                    refs = refs.remove_branch(ref)
                refs.commit()
        except (CommitFailedException, BuildOvertaken) as error:
            index = [written.index.path] if written.index else []
            self._remove([*(file.file_path for file in (*written.added, *deletes)), *index])
            self._leave_mark()
            raise overtaken(self.table) from error
        note_files(self.table, self.base_id, dropped, written.added, written.deletes)
        self._remove(each.statistics_path for each in outdated)
        published = self.table.current_snapshot()
        assert published is not None
        return published

    @property
    def _has_branch(self) -> bool:
        return self._is_begun and self.base is not None

    def _require_base(self) -> None:
        """Go no further when another build has committed since this one began."""
        if (current_id(self.table) or 0) != self.base_id or (self._has_branch and self.name not in self.table.refs()):
            self._leave_mark()
            raise overtaken(self.table)

    def _remove(self, paths: Iterable[str]) -> None:
        """Remove files that nobody needs any more, or that have come to nothing."""
        for path in paths:
            with suppress(OSError):
                self.table.io.delete(path)

    def _leave_mark(self) -> None:
        """Let the next build know that this one may have written errors of rows that it has not published."""
        with suppress(CommitFailedException):
            self.table.refresh()
            current = self.table.current_snapshot()
            if current and self._is_begun and self.name not in self.table.refs():
                self.table.manage_snapshots().create_branch(current.snapshot_id, self.name).commit()


def _add_columns(transaction: Transaction, columns: Sequence[NestedField]) -> None:
    if columns:
        with transaction.update_schema() as update:
            for column in columns:
                update.add_column(column.name, column.field_type, doc=column.doc)
        fields = transaction.table_metadata.schema().fields
        assert all(column in fields for column in columns), "columns have the ids that the files name"


def replace_rows(rows: DataFrame, table: str, where: str) -> None:
    """Put `rows` in the place of those of a table of messages that match `where`, in one commit.

    Iceberg's own overwrite takes whole files only, and here a file holds rows of many topics.
    """
    columns = rows.columns
    # Kept apart: Spark Connect cannot send a question that nests as deep as this one would with all that led to it.
    source = checkpointed(rows).withColumn("is_same", F.lit(None).cast("string")).alias("source")
    (
        source.mergeInto(table, F.expr(f"{table.rpartition('.')[2]}.message_id = source.is_same"))
        .whenNotMatched()
        .insert({name: F.expr(f"source.{name}") for name in columns})
        .whenNotMatchedBySource(F.expr(where))
        .delete()
        .merge()
    )


def _left_behind(table: Table) -> dict[str, int]:
    """The drafts that nobody has published, each with the landing_seq after which its build had begun."""
    return {ref: int(ref.split("_")[1]) for ref in table.refs() if ref.startswith(_DRAFT)}
