"""The topics of a batch: what of each is to be built, its tables loaded once, and what happened to it."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from operator import itemgetter
from typing import Protocol, TypeAlias, TypeVar

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from leanops.concurrency import Concurrency
from leanops.contracts.model import Contract
from leanops.names import Layer, table
from leanops.raw.table import ensure_raw_table
from leanops.tables import find_table

Result = TypeVar("Result")
Outcome: TypeAlias = Result | Exception
"""What was made of a topic, or why it could not."""

LARGE_BYTES = 16 * 2**20
"""A topic with more to read, compressed, has a job of its own: a worker holds all rows of one that has not."""

_BATCH_BYTES = 8 * LARGE_BYTES
"""What is read by one job that topics share."""


@dataclass
class TopicTables:
    """A topic's tables, each loaded when it is first asked for. A commit brings what is held here up to date."""

    catalog: Catalog
    topic: str
    known: Collection[tuple[str, str]] | None = None
    """The tables that there are, where that was asked for once for all topics."""

    @cached_property
    def raw(self) -> Table:
        return ensure_raw_table(self.catalog, self.topic)

    @cached_property
    def standardized(self) -> Table | None:
        return self._find(Layer.STANDARDIZED)

    @cached_property
    def curated(self) -> Table | None:
        return self._find(Layer.CURATED)

    def _find(self, layer: Layer) -> Table | None:
        name = table(layer, self.topic)
        return find_table(self.catalog, name) if self.known is None or name in self.known else None


@dataclass(frozen=True)
class TopicBuild:
    """A topic to be built by its contract, with the days that are to be made anew."""

    tables: TopicTables
    contract: Contract
    rebuild: Collection[date] = ()

    @property
    def topic(self) -> str:
        return self.tables.topic


class Named(Protocol):
    """Whatever is of one topic."""

    @property
    def topic(self) -> str: ...


class Sized(Named, Protocol):
    """Whatever of a topic has to be read."""

    @property
    def bytes(self) -> int: ...


Of = TypeVar("Of", bound=Named)
Job = TypeVar("Job", bound=Sized)


def each_topic(topics: Sequence[Of], work: Callable[[Of], Result]) -> dict[str, Outcome[Result]]:
    """Work on each topic by itself, some at once: what is wrong with one leaves the others alone."""

    def one(topic: Of) -> Outcome[Result]:
        try:
            return work(topic)
        except Exception as error:  # noqa: BLE001 - it is the topic's outcome
            return error

    return dict(zip((each.topic for each in topics), Concurrency().map(one, topics), strict=True))


def built_or_raised(outcome: Outcome[Result]) -> Result:
    """What was made of a topic; what went wrong is raised."""
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def in_batches(jobs: Iterable[Job]) -> Iterator[list[Job]]:
    """The topics that share a job, by what it has to read; one that is large is alone."""
    batch: list[Job] = []
    batch_bytes = 0
    for size, job in sorted(((each.bytes, each) for each in jobs), key=itemgetter(0)):
        if batch and (size > LARGE_BYTES or batch_bytes + size > _BATCH_BYTES):
            yield batch
            batch, batch_bytes = [], 0
        batch.append(job)
        batch_bytes += size
    if batch:
        yield batch


def is_large(job: Sized) -> bool:
    """Whether a topic has a job of its own."""
    return job.bytes > LARGE_BYTES
