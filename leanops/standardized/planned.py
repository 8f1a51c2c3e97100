"""What a build of Standardized reads and replaces, from the tables' metadata alone."""

from dataclasses import dataclass
from functools import cached_property

from leanops.batch.layer import Planned
from leanops.batch.scan import Scan
from leanops.batch.topics import TopicBuild
from leanops.batch.write import Target
from leanops.commits import Draft, checkpoint_of, current_id
from leanops.raw.table import last_landing_seq
from leanops.slices import Slice
from leanops.standardized.built import StandardizedBuild
from leanops.standardized.flatten_plan import FlattenPlan
from leanops.standardized.table import ensure_standardized_table, is_mapped_by, plan_of
from leanops.standardized.transform import COPY, HELD, MESSAGE_COLUMNS, STANDING
from leanops.standardized.worker import TopicWriter

REREAD = "All of RAW was read again: Standardized had been built by earlier rules, or for other fields of the contract."

_STANDING_COLUMNS = tuple(name for name in STANDING.names if name not in ("topic", "role", "file"))


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

    @cached_property
    def standing(self) -> list[Scan]:
        """Where the messages may have landed before, and the versions that the table holds."""
        if self.part.is_whole:
            return []
        raw, part = self.source, self.part
        copies = Scan(
            self.topic, raw, _STANDING_COLUMNS, part.is_beside, part.may_be_beside, self.source_snapshot, COPY
        )
        return [scan for scan in (copies, self.held) if scan.files]

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
        files = () if self.part.is_whole else self.held.files
        return TopicWriter(plan, Target.of(self.draft.table, files, self.is_large), is_complete=not self.is_large)
