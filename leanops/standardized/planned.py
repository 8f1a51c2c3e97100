"""What a build of Standardized reads and replaces, from the tables' metadata alone."""

from dataclasses import dataclass
from functools import cached_property

from pyiceberg.manifest import DataFile

from leanops.batch.scan import Scan
from leanops.batch.topics import TopicBuild
from leanops.batch.write import Target
from leanops.commits import Draft, checkpoint_of, current_id
from leanops.inventory import table_days
from leanops.raw.table import last_landing_seq
from leanops.slices import Slice
from leanops.standardized.built import StandardizedBuild
from leanops.standardized.flatten_plan import FlattenPlan
from leanops.standardized.table import ensure_standardized_table, is_mapped_by, plan_of
from leanops.standardized.transform import COPY, HELD, MESSAGE_COLUMNS, STANDING
from leanops.standardized.worker import TopicWriter
from leanops.table_files import file_day

REREAD = "All of RAW was read again: Standardized had been built by earlier rules, or for other fields of the contract."

_STANDING_COLUMNS = tuple(name for name in STANDING.names if name not in ("topic", "role", "file"))


@dataclass(frozen=True)
class Planned:
    """What a topic's build reads and replaces, from metadata alone."""

    build: TopicBuild
    part: Slice
    plan: FlattenPlan
    draft: Draft
    checkpoint: dict[str, str]
    notice: str | None

    @classmethod
    def of(cls, build: TopicBuild, is_whole: bool = False) -> "Planned | StandardizedBuild":
        contract, raw = build.contract, build.tables.raw
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
        return cls(build, part, plan_of(target.schema(), contract), Draft.of(target, after), checkpoint, notice)

    @property
    def topic(self) -> str:
        return self.build.topic

    @cached_property
    def messages(self) -> Scan:
        """The messages that it takes in."""
        raw, part = self.build.tables.raw, self.part
        return Scan(self.topic, raw, MESSAGE_COLUMNS, part.holds, part.may_be_in, self._landed)

    @cached_property
    def standing(self) -> list[Scan]:
        """Where the messages may have landed before, and the versions that the table holds."""
        if self.part.is_whole:
            return []
        table, part = self.build.tables.raw, self.part
        raw = Scan(self.topic, table, _STANDING_COLUMNS, part.is_beside, part.may_be_beside, self._landed, COPY)
        return [raw, self.held]

    @cached_property
    def held(self) -> Scan:
        return Scan(
            self.topic,
            self.draft.table,
            _STANDING_COLUMNS,
            snapshot_id=self.draft.base_id or None,
            role=HELD,
            days=self.part.days,
        )

    @property
    def rows(self) -> int:
        return self.part.rows_landed + sum(
            day.rows for day in table_days(self.build.tables.raw, self.part.days).values()
        )

    @property
    def bytes(self) -> int:
        return self.messages.bytes

    @cached_property
    def dropped(self) -> list[DataFile]:
        """The files that are made anew as a whole."""
        if self.draft.is_of_nothing:
            return []
        files = [task.file for task in self.held.files]
        return files if self.part.is_whole else [file for file in files if file_day(file) in self.part.days]

    @property
    def is_repeated(self) -> bool:
        """Whether parse errors of its messages may stand already."""
        is_again = bool(self.part.days) or (self.part.is_whole and not self.draft.is_of_nothing)
        return is_again or self.draft.is_second_try

    def writer(self) -> TopicWriter:
        files = self.held.files if self.standing else ()
        return TopicWriter(self.plan, Target.of(self.draft.table, files))

    @property
    def _landed(self) -> int:
        return int(self.checkpoint["raw-snapshot"])
