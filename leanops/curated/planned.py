"""What a build of Curated reads and replaces, from the tables' metadata alone."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from functools import cached_property

from pyiceberg.table import Table

from leanops.batch.layer import Planned
from leanops.batch.scan import Scan
from leanops.batch.topics import TopicBuild
from leanops.batch.write import Target
from leanops.commits import (
    Draft,
    certain_upto,
    checkpoint_of,
    commits_since,
    current_id,
    replaced_since,
)
from leanops.contracts.model import Contract
from leanops.curated.binding import bound_columns
from leanops.curated.built import CuratedBuild
from leanops.curated.table import ensure_curated_table, in_force_since
from leanops.curated.validation import Binding
from leanops.curated.worker import HELD, LOST, TopicWriter
from leanops.inventory import has_rows_without_day, schema_at
from leanops.slices import Slice
from leanops.standardized.table import ensure_standardized_table, flat_columns

_HELD_COLUMNS = ("idempotency_key", "landing_seq", "publish_time")


@dataclass(frozen=True)
class PlannedCurated(Planned):
    """One topic's build."""

    since: "Since"
    binding: Binding

    @classmethod
    def of(cls, build: TopicBuild) -> "PlannedCurated | CuratedBuild":
        contract, is_new = build.contract, build.tables.curated is None
        source = ensure_standardized_table(build.tables, contract)
        target = ensure_curated_table(build.tables, contract)
        read = source.current_snapshot()
        held = schema_at(source, read.snapshot_id) if read else source.schema()
        binding = Binding(contract, bound_columns(contract, flat_columns(held)))
        since = Since.read(source, target, contract, build.rebuild)
        part = since.part
        if read is None or (part.is_empty and since.is_of_version):
            return CuratedBuild(False, current_id(target), current_id(source), binding.bound)
        checkpoint = {
            "upto": str(part.upto),
            "standardized-snapshot": str(read.snapshot_id),
            "contract": contract.fingerprint,
            "contract-version": str(contract.version),
            "contract-since": in_force_since(target, contract) or datetime.now(UTC).isoformat(),
        }
        draft = Draft.of(target, part.after, is_new)
        return cls(build, source, read.snapshot_id, part, draft, checkpoint, since, binding)

    @property
    def lost(self) -> Sequence[int] | None:
        """The rows that later versions have replaced; None where it takes a look at the tables to tell."""
        return None if self.draft.is_second_try else self.since.lost

    @cached_property
    def rows(self) -> Scan:
        part, columns = self.part, self.binding.columns
        return Scan(self.topic, self.source, columns, part.holds, part.may_be_in, self.source_snapshot)

    @cached_property
    def held(self) -> Scan:
        """The rows of the table that may have to give way, by their numbers where these are known."""
        base, days = self.draft.base_id or None, self.part.days
        held = Scan(self.topic, self.draft.table, _HELD_COLUMNS, snapshot_id=base, role=HELD, days=days)
        return held if self.lost is None else replace(held, seqs=self.lost, role=LOST)

    @property
    def is_held_looked_at(self) -> bool:
        """Whether rows of the table may have to give way one by one."""
        return not self.part.is_whole and bool(self.held.files)

    def writer(self) -> TopicWriter:
        is_asked_by_key = self.lost is None and not self.part.is_whole
        return TopicWriter(self.binding, Target.of(self.draft.table), is_asked_by_key)


@dataclass(frozen=True)
class Since:
    """What Standardized has gained and lost since Curated last looked."""

    part: Slice
    lost: Sequence[int] | None
    snapshot: int
    """What it last looked at; 0 when it never did."""
    is_of_version: bool = True
    """Whether it was built by this version of a contract that says the same of rows as an earlier one."""

    @classmethod
    def read(cls, source: Table, target: Table, contract: Contract, rebuild: Collection[date]) -> "Since":
        upto, said = int(checkpoint_of(source).get("upto", 0)), checkpoint_of(target)
        builds = commits_since(source, said.get("standardized-snapshot"))
        rebuilt = [day for build in builds or () for day in build.get("rebuilt", "").split(",") if day]
        if builds is None or "all" in rebuilt or said.get("contract") != contract.fingerprint:
            return cls(Slice(0, upto), None, 0)
        days = {*rebuild, *map(date.fromisoformat, rebuilt)}
        if days and has_rows_without_day(target):
            return cls(Slice(0, upto), None, 0)
        after = certain_upto(target, int(said.get("upto", 0)))
        lost = None if days else replaced_since(builds, after)
        is_of_version = said.get("contract-version") == str(contract.version)
        return cls(Slice(after, upto, frozenset(days)), lost, int(said["standardized-snapshot"]), is_of_version)
