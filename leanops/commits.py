"""How a build commits: published whole or not at all, and only if the table still stands where the build has read it.

So two builds of one table at once cannot mix, whoever is slower: the second is overtaken and has changed nothing. The
checkpoint is part of the published commit, so that data and checkpoint cannot disagree.

What takes several commits is written on a branch beside the table that readers see. A build of few rows needs one
commit, and a branch only as a mark before it writes errors: a branch that was left behind says that a build was cut
off, and from which checkpoint it had begun.
"""

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from uuid import uuid4

import pyarrow as pa
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot, ancestors_of
from pyspark.sql import Column, DataFrame, SparkSession

from leanops.names import CATALOG
from leanops.picked import Picked
from leanops.replacement import Gone, Replacement, fitted, keyed_files
from leanops.slices import Slice
from leanops.tables import overtaken

REWRITTEN_BYTES = 8 * 2**20
"""What a build of few rows writes again at most, compressed, to take rows out of files."""

_PREFIX = "leanops."
_DRAFT = "build_"


def current_id(table: Table) -> int | None:
    """The id of the snapshot that readers see."""
    snapshot = table.current_snapshot()
    return snapshot.snapshot_id if snapshot else None


def checkpoint_of(table: Table | None) -> dict[str, str]:
    """What the table stands for, as its last build says; commits of others since then, such as a compaction, do not."""
    build = last_build(table)
    return _said(build) if build else {}


def last_build(table: Table | None) -> Snapshot | None:
    """The last commit that says what the table stands for."""
    snapshots = ancestors_of(table.current_snapshot(), table.metadata) if table else ()
    return next(filter(_said, snapshots), None)


def commits_since(table: Table, snapshot_id: str | None) -> list[dict[str, str]] | None:
    """What the builds since a snapshot say of themselves; None if that snapshot is no longer known."""
    said: list[dict[str, str]] = []
    for snapshot in ancestors_of(table.current_snapshot(), table.metadata):
        if str(snapshot.snapshot_id) == snapshot_id:
            return said
        said.append(_said(snapshot))
    return None


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
    _checkpoint: Mapping[str, str] = field(default_factory=dict)
    _is_begun: bool = False

    @classmethod
    def of(cls, table: Table, after: int) -> "Draft":
        """A draft of what the table becomes when rows that landed `after` are taken in."""
        return cls(table, table.current_snapshot(), f"{_DRAFT}{after}_{uuid4().hex[:12]}", [*_left_behind(table)])

    def begin(self) -> None:
        """Begin its branch."""
        if self.base is None:
            self.base = _first_snapshot(self.table)
        change = self.table.manage_snapshots().create_branch(self.base.snapshot_id, self.name)
        for ref in self.left_behind:
            change = change.remove_branch(ref)
        try:
            change.commit()
        except CommitFailedException as error:
            raise overtaken(self.table) from error
        self._is_begun = True

    @property
    def is_second_try(self) -> bool:
        """Whether a build was cut off before this one."""
        return bool(self.left_behind)

    @property
    def base_id(self) -> int:
        """The snapshot that the build has read; 0 when there was none."""
        return self.base.snapshot_id if self.base else 0

    @property
    def is_of_nothing(self) -> bool:
        """Whether the table has held no row so far."""
        summary = self.base.summary if self.base else None
        return summary is None or not int(summary["total-records"] or 0)

    @property
    def columns(self) -> list[str]:
        """The table's columns, with those that were added meanwhile."""
        return [field.name for field in self.table.schema().fields]

    @property
    def spark_name(self) -> str:
        return ".".join(f"`{part}`" for part in (CATALOG, *self.table.name(), f"branch_{self.name}"))

    def delete(self, spark: SparkSession, condition: str) -> None:
        """Take rows out."""
        spark.sql(f"DELETE FROM {self.spark_name} WHERE {condition}")  # noqa: S608 - our own words and numbers

    def delete_rows(self, spark: SparkSession, gone: Picked) -> None:
        """Take out the rows that are picked. Of few that are named, only the files that can hold them are read."""
        if gone.many is not None and gone.count:
            gone.many.createOrReplaceTempView("gone")
            self.delete(spark, "landing_seq IN (SELECT landing_seq FROM gone)")
        elif gone.few:
            self.delete(spark, f"landing_seq IN ({', '.join(map(str, gone.few))})")

    def append(self, rows: DataFrame, checkpoint: Mapping[str, str]) -> None:
        """Put rows in, in the commit that will say what the table stands for."""
        writer = rows.writeTo(self.spark_name)
        for key, value in checkpoint.items():
            writer = writer.option(f"snapshot-property.{_PREFIX}{key}", value)
        writer.append()
        self._checkpoint = checkpoint

    def replace(
        self, sessions: Callable[[], SparkSession], gone: Gone, rows: pa.Table, checkpoint: Mapping[str, str]
    ) -> Snapshot:
        """Take rows out, put few others in, and publish that: in one commit, unless much has to be read for it."""
        said = {f"{_PREFIX}{key}": value for key, value in checkpoint.items()}
        self._require_base()
        replacement = Replacement(self.table, gone)
        is_large = replacement.bytes > REWRITTEN_BYTES
        if is_large:
            self._take_out(sessions(), gone)
        try:
            with keyed_files(self.table) as files:
                rows = fitted(rows, files.schema)
                if is_large:
                    files.commit(list(files.write(rows)), said, branch=self.name)
                else:
                    written = list(files.write(pa.concat_tables([replacement.left, rows])))
                    ended = [self.name] if self._is_begun else self.left_behind
                    files.commit(written, said, replacement.files, ended=ended)
        except CommitFailedException as error:
            self._leave_mark()
            raise overtaken(self.table) from error
        self._checkpoint = checkpoint
        return self.publish(checkpoint) if is_large else self._published()

    def _take_out(self, spark: SparkSession, gone: Gone) -> None:
        """Take rows out on the branch, where Spark writes down their places and not all other rows of their files."""
        if not self._is_begun:
            self.begin()
        if gone.everything:
            self.delete(spark, "true")
        elif gone.days:
            self.delete(spark, Slice.of_days(gone.days).on_days)
        self.delete_rows(spark, Picked(len(gone.seqs), gone.seqs))
        self.table.refresh()

    def publish(self, checkpoint: Mapping[str, str]) -> Snapshot:
        """Make the draft's branch what readers see, if nobody else has committed since it was begun."""
        self.require_not_overtaken()
        try:
            if self._checkpoint != checkpoint:
                self._say(checkpoint)
            self.table.manage_snapshots().set_current_snapshot(ref_name=self.name).remove_branch(self.name).commit()
        except CommitFailedException as error:
            self._leave_mark()
            raise overtaken(self.table) from error
        return self._published()

    def require_not_overtaken(self) -> None:
        """Go no further when another build has committed since this one began."""
        self.table.refresh()
        self._require_base()

    def _require_base(self) -> None:
        if (current_id(self.table) or 0) != self.base_id or (self._is_begun and self.name not in self.table.refs()):
            self._leave_mark()
            raise overtaken(self.table)

    def _published(self) -> Snapshot:
        published = self.table.current_snapshot()
        assert published is not None
        return published

    def _leave_mark(self) -> None:
        """Let the next build know that this one may have written errors of rows that it has not published."""
        with suppress(CommitFailedException):
            self.table.refresh()
            current = self.table.current_snapshot()
            if current and self._is_begun and self.name not in self.table.refs():
                self.table.manage_snapshots().create_branch(current.snapshot_id, self.name).commit()

    def _say(self, checkpoint: Mapping[str, str]) -> None:
        """Commit a checkpoint that comes without rows."""
        properties = {f"{_PREFIX}{key}": value for key, value in checkpoint.items()}
        with (
            self.table.transaction() as transaction,
            transaction.update_snapshot(snapshot_properties=properties, branch=self.name).fast_append(),
        ):
            pass


def replace_rows(rows: DataFrame, table: str, where: Column) -> None:
    """Put `rows` in the place of those that match `where`, in one commit."""
    rows.writeTo(table).overwrite(where)


def _said(snapshot: Snapshot) -> dict[str, str]:
    summary = snapshot.summary.additional_properties if snapshot.summary else {}
    return {key.removeprefix(_PREFIX): value for key, value in summary.items() if key.startswith(_PREFIX)}


def _left_behind(table: Table) -> dict[str, int]:
    """The drafts that nobody has published, each with the landing_seq after which its build had begun."""
    return {ref: int(ref.split("_")[1]) for ref in table.refs() if ref.startswith(_DRAFT)}


def _first_snapshot(table: Table) -> Snapshot:
    """A table without any snapshot has nothing that a branch could begin at: it gets an empty one."""
    with table.transaction() as transaction, transaction.update_snapshot().fast_append():
        pass
    snapshot = table.current_snapshot()
    assert snapshot is not None
    return snapshot
