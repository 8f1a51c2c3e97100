"""The build of a layer, of any number of topics: planned from metadata, decided and written in Spark jobs, committed.

What is small shares a job; what is large, by bytes, has one of its own. Both are built by the same steps. They differ
in how many workers share the rows of a topic: all of a small one's come together in one.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from typing import Generic, TypeVar, cast

from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import NestedField
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from leanops.batch.isolation import Jobs
from leanops.batch.scan import Scan
from leanops.batch.topics import Outcome, TopicBuild, each_topic, in_batches, is_large
from leanops.batch.write import Written
from leanops.commits import Draft
from leanops.inventory import table_days
from leanops.slices import Slice, sized
from leanops.table_files import file_day


@dataclass(frozen=True)
class Planned(ABC):
    """What one topic's build reads and replaces, from the tables' metadata alone."""

    build: TopicBuild
    source: Table
    """The table of the layer before."""
    source_snapshot: int
    part: Slice
    draft: Draft
    checkpoint: dict[str, str]

    @property
    def topic(self) -> str:
        return self.build.topic

    @property
    @abstractmethod
    def rows(self) -> Scan:
        """The rows that it takes in."""

    @property
    @abstractmethod
    def held(self) -> Scan:
        """The rows of the table that may have to give way."""

    @property
    def bytes(self) -> int:
        return self.rows.bytes

    @property
    def is_large(self) -> bool:
        return is_large(self)

    @property
    def row_count(self) -> int:
        return self.part.rows_landed + sum(day.rows for day in table_days(self.source, self.part.days).values())

    @property
    def is_made_anew(self) -> bool:
        """Whether whole days are, or all of them."""
        return self.part.is_whole or bool(self.part.days)

    @cached_property
    def dropped(self) -> list[DataFile]:
        """The files that are made anew as a whole."""
        if self.draft.is_of_nothing or not self.is_made_anew:
            return []
        files = [task.file for task in self.held.files]
        return files if self.part.is_whole else [file for file in files if file_day(file) in self.part.days]

    def publish(self, written: Written, columns: Sequence[NestedField] = ()) -> tuple[Snapshot, frozenset[date]]:
        """Publish what workers have written; the snapshot, and the days of which rows came or went."""
        snapshot = self.draft.publish(written, self.dropped, columns, self.checkpoint)
        deletes = (file for _, file in written.deletes)
        return snapshot, frozenset(file_day(file) for file in (*self.dropped, *written.added, *deletes))


PlannedBuild = TypeVar("PlannedBuild", bound=Planned)
Report = TypeVar("Report")
Build = TypeVar("Build")


@dataclass(frozen=True)
class LayerJob(ABC, Generic[PlannedBuild, Report, Build]):
    """One Spark job that builds a layer of some topics, which are small, or of one that is large."""

    jobs: Jobs
    catalog: Catalog
    planned: Mapping[str, PlannedBuild]

    @abstractmethod
    def decide(self, spark: SparkSession, planned: Sequence[PlannedBuild]) -> dict[str, Outcome[Report]]:
        """Decide about all rows, write the files of the layer, and commit what did not make it into the layer."""

    @abstractmethod
    def commit(self, planned: PlannedBuild, report: Report) -> Build:
        """Publish what was written of a topic."""

    def build(self) -> dict[str, Outcome[Build]]:
        spark = self.jobs.sessions()
        sized(spark, sum(each.row_count for each in self.planned.values()))
        found = self.jobs.isolated(
            [*self.planned], lambda topics: self.decide(spark, [self.planned[topic] for topic in topics])
        )
        done: dict[str, Outcome[Build]] = {}
        reports: dict[str, Report] = {}
        for topic, each in found.items():
            if isinstance(each, Exception):
                done[topic] = each
            else:
                reports[topic] = each
        todo = [self.planned[topic] for topic in reports]
        return done | each_topic(todo, lambda each: self.commit(each, reports[each.topic]))

    def begin(self, topics: Iterable[str]) -> dict[str, Exception]:
        """Begin the builds that are about to write errors; those that somebody was faster than write none."""
        begun = each_topic([self.planned[topic] for topic in sorted(topics)], lambda each: each.draft.begin())
        return {topic: error for topic, error in begun.items() if error is not None}


def build_layer(
    job: type[LayerJob[PlannedBuild, Report, Build]],
    kind: type[PlannedBuild],
    jobs: Jobs,
    catalog: Catalog,
    planned: Mapping[str, Outcome[PlannedBuild | Build]],
) -> dict[str, Outcome[Build]]:
    """What became of each topic. Of some that is known when they are planned: there is nothing to do, or it failed."""
    done: dict[str, Outcome[Build]] = {}
    todo: list[PlannedBuild] = []
    for topic, found in planned.items():
        if isinstance(found, kind):
            todo.append(found)
        else:
            done[topic] = cast("Outcome[Build]", found)
    for batch in in_batches(todo):
        done |= job(jobs, catalog, {each.topic: each for each in batch}).build()
    return done


def without(topics: Mapping[str, object], rows: DataFrame, column: str = "topic") -> DataFrame:
    """The rows of all other topics."""
    return rows.where(~F.col(column).isin(sorted(topics))) if topics else rows
