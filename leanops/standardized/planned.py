"""What a build of Standardized reads and replaces, from the tables' metadata alone."""

from dataclasses import dataclass, replace
from functools import cached_property

from pyiceberg.table.statistics import StatisticsFile

from leanops.batch.layer import Planned
from leanops.batch.scan import Scan
from leanops.batch.topics import TopicBuild
from leanops.batch.write import Target
from leanops.commits import Draft, checkpoint_of, current_id
from leanops.key_index.file import IndexUpdate, Kind
from leanops.key_index.table import index_of, is_only_appended
from leanops.raw.table import last_landing_seq
from leanops.slices import Slice
from leanops.standardized.built import StandardizedBuild
from leanops.standardized.flatten_plan import FlattenPlan
from leanops.standardized.table import ensure_standardized_table, is_mapped_by, plan_of
from leanops.standardized.transform import COPY, HELD, MESSAGE_COLUMNS, STANDING
from leanops.standardized.worker import TopicWriter
from leanops.table_files import TableFile

REREAD = "All of RAW was read again: Standardized had been built by earlier rules, or for other fields of the contract."

_FOUND_BY = {COPY: Kind.ID, HELD: Kind.KEY}
_STANDING_COLUMNS = tuple(name for name in STANDING.names if name not in ("topic", "role", "file", "position"))


@dataclass(frozen=True)
class PlannedStandardized(Planned):
    """One topic's build."""

    plan: FlattenPlan
    notice: str | None

    @classmethod
    def of(cls, build: TopicBuild, is_whole: bool = False) -> "PlannedStandardized | StandardizedBuild":
        contract, raw, is_new = build.contract, build.tables.raw, build.tables.standardized is None
        target = ensure_standardized_table(build.tables, contract)
        landed = raw.current_snapshot()
        notice = None if is_mapped_by(target, contract) else REREAD
        after = 0 if notice or is_whole else int(checkpoint_of(target).get("upto", 0))
        part = Slice(after, last_landing_seq(raw), frozenset(build.rebuild) if after else frozenset())
        if landed is None or part.is_empty:
            return StandardizedBuild(False, current_id(target), current_id(raw))
        checkpoint = {"upto": str(part.upto), "raw-snapshot": str(landed.snapshot_id)}
        if part.is_whole or part.days:
            checkpoint["rebuilt"] = "all" if part.is_whole else ",".join(map(str, sorted(part.days)))
        draft, plan = Draft.of(target, after, is_new), plan_of(target.schema(), contract)
        return cls(build, raw, landed.snapshot_id, part, draft, checkpoint, plan, notice)

    @cached_property
    def rows(self) -> Scan:
        return self.messages(self.part)

    def messages(self, part: Slice) -> Scan:
        """The messages of a part."""
        return Scan(self.topic, self.source, MESSAGE_COLUMNS, part.holds, part.may_be_in, self.source_snapshot)

    @property
    def is_looked_up(self) -> bool:
        """Whether only such rows of the past are read as have an id or a key of the messages that are taken in."""
        return not (self.is_large or self.is_made_anew)

    @cached_property
    def standing(self) -> list[Scan]:
        """Where the messages may have landed before, and the versions that the table holds."""
        if self.part.is_whole:
            return []
        raw, where = self.source, self.part.is_beside
        copies = Scan(self.topic, raw, _STANDING_COLUMNS, where, self._may_have_copies, self.source_snapshot, COPY)
        scans = [scan for scan in (copies, self.held) if scan.files]
        if not self.is_looked_up:
            return scans
        index = self.index.statistics_path if self.index else None
        return [replace(each, by=_FOUND_BY[each.role], index=index) for each in scans]

    def _may_have_copies(self, file: TableFile) -> bool:
        """Whether copies of the messages may be in a file; none that count are in one that is too old."""
        horizon, landed = self.build.contract.horizon, self._landed
        if horizon is None or landed is None or file.last_landed is None:
            return self.part.may_be_beside(file)
        return self.part.may_be_beside(file) and file.last_landed >= landed - horizon

    @cached_property
    def _landed(self) -> int | None:
        """When the first of the messages landed, if all files say it."""
        files = self.rows.table_files
        moments = [each.landed for each in files if each.landed is not None]
        return min(moments) if moments and len(moments) == len(files) else None

    @cached_property
    def index(self) -> StatisticsFile | None:
        """The topic's key index, if it has all that landed before."""
        read = checkpoint_of(self.draft.table).get("raw-snapshot")
        return index_of(self.draft.table) if is_only_appended(self.source, int(read) if read else None) else None

    @cached_property
    def held(self) -> Scan:
        base, days = self.draft.base_id or None, self.part.days
        return Scan(self.topic, self.draft.table, _STANDING_COLUMNS, snapshot_id=base, role=HELD, days=days)

    @property
    def is_repeated(self) -> bool:
        """Whether parse errors of its messages may stand already."""
        is_again = bool(self.part.days) or (self.part.is_whole and not self.draft.is_of_nothing)
        return is_again or self.draft.is_second_try

    def writer(self, plan: FlattenPlan) -> TopicWriter:
        """What a worker writes messages by that were read by a plan."""
        is_complete = not self.is_large
        return TopicWriter(plan, Target.of(self.draft.table), is_complete, self.index_update if is_complete else None)

    @property
    def index_update(self) -> IndexUpdate | None:
        """How the key index goes on: from what there is, or anew where all is; None where there is nothing to go on."""
        if self.part.is_whole:
            return IndexUpdate(None, self.part.upto)
        return IndexUpdate(self.index, self.part.upto, bool(self.part.days)) if self.index else None
