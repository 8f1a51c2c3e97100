"""How a build commits: on a branch beside the table that readers see, published whole or not at all.

The branch begins at the snapshot that the build has read. It is published only if the table still stands there, so two
builds of one table at once cannot mix, whoever is slower: the second is overtaken and has changed nothing. The
checkpoint is part of the published commit, so that data and checkpoint cannot disagree.

A branch that was left behind says that a build was cut off, and from which checkpoint it had begun.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from uuid import uuid4

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot, ancestors_of
from pyspark.sql import Column, DataFrame, SparkSession

from leanops.errors import BuildOvertaken
from leanops.names import CATALOG
from leanops.picked import Picked

_PREFIX = "leanops."
_DRAFT = "build_"


def current_id(table: Table) -> int | None:
    """The id of the snapshot that readers see."""
    snapshot = table.current_snapshot()
    return snapshot.snapshot_id if snapshot else None


def checkpoint_of(table: Table | None) -> dict[str, str]:
    """What the table stands for, as its last build says; commits of others since then, such as a compaction, do not."""
    snapshots = ancestors_of(table.current_snapshot(), table.metadata) if table else ()
    return next(filter(None, map(_said, snapshots)), {})


def commits_since(table: Table, snapshot_id: str | None) -> list[dict[str, str]] | None:
    """What the builds since a snapshot say of themselves; None if that snapshot is no longer known."""
    said: list[dict[str, str]] = []
    for snapshot in ancestors_of(table.current_snapshot(), table.metadata):
        if str(snapshot.snapshot_id) == snapshot_id:
            return said
        said.append(_said(snapshot))
    return None


def first_said(table: Table | None, key: str, value: str) -> datetime | None:
    """When a build of the table first said this, as far back as its snapshots are kept."""
    snapshots = ancestors_of(table.current_snapshot(), table.metadata) if table else ()
    moments = [snapshot.timestamp_ms for snapshot in snapshots if _said(snapshot).get(key) == value]
    return datetime.fromtimestamp(min(moments) / 1000, UTC) if moments else None


def certain_upto(table: Table | None, upto: int) -> int:
    """The landing_seq up to which nothing is in doubt: a build that was cut off may have left errors from there on."""
    return min([upto, *_left_behind(table).values()]) if table else upto


@dataclass
class Draft:
    """A table's next state while it is being written."""

    table: Table
    base: Snapshot
    name: str
    is_second_try: bool
    """Whether a build was cut off before this one. What it wrote beside the table may still be there."""
    _checkpoint: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def begin(cls, table: Table, after: int) -> "Draft":
        """A draft of what the table becomes when rows that landed `after` are taken in."""
        base = table.current_snapshot() or _first_snapshot(table)
        left_behind = _left_behind(table)
        name = f"{_DRAFT}{after}_{uuid4().hex[:12]}"
        change = table.manage_snapshots().create_branch(base.snapshot_id, name)
        for ref in left_behind:
            change = change.remove_branch(ref)
        try:
            change.commit()
        except CommitFailedException as error:
            raise overtaken(table) from error
        return cls(table, base, name, is_second_try=bool(left_behind))

    @property
    def is_of_nothing(self) -> bool:
        """Whether the table has held no row so far."""
        return not self.base.summary or not int(self.base.summary["total-records"] or 0)

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

    def publish(self, checkpoint: Mapping[str, str]) -> Snapshot:
        """Make the draft what readers see, if nobody else has committed since it was begun."""
        self.require_not_overtaken()
        try:
            if self._checkpoint != checkpoint:
                self._say(checkpoint)
            self.table.manage_snapshots().set_current_snapshot(ref_name=self.name).remove_branch(self.name).commit()
        except CommitFailedException as error:
            self._leave_mark()
            raise overtaken(self.table) from error
        published = self.table.current_snapshot()
        assert published is not None
        return published

    def require_not_overtaken(self) -> None:
        """Go no further when another build has committed since this one began."""
        self.table.refresh()
        current = self.table.current_snapshot()
        if current is None or current.snapshot_id != self.base.snapshot_id or self.name not in self.table.refs():
            self._leave_mark()
            raise overtaken(self.table)

    def _leave_mark(self) -> None:
        """Let the next build know that this one may have written errors of rows that it has not published."""
        with suppress(CommitFailedException):
            self.table.refresh()
            current = self.table.current_snapshot()
            if current and self.name not in self.table.refs():
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


def overtaken(table: Table) -> BuildOvertaken:
    """What is raised when somebody else was faster."""
    return BuildOvertaken(
        f"Another build of {'.'.join(table.name())} has committed in the meantime.",
        "This one has changed nothing; what is left to do is pending and comes with the next tick.",
    )
