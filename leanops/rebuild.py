"""Rebuild a topic for a contract that its tables cannot follow in place: beside them, published whole or not at all.

A branch of an Iceberg table shares the table's columns, so a column of another type would show before its rows do.
Here the whole topic branches off: its tables are registered in a catalog of their own, as they stand. What is built
there has its own columns, checkpoints and errors, and nobody else sees it. Its snapshots become the tables' own in one
commit for each, columns and rows together, if nobody has committed meanwhile.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from uuid import uuid4

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.serializers import ToOutputFile
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.update import (
    AddSchemaUpdate,
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    AssertTableUUID,
    RemoveStatisticsUpdate,
    SetCurrentSchemaUpdate,
    SetSnapshotRefUpdate,
    SetStatisticsUpdate,
    TableUpdate,
)
from pyspark.sql import DataFrame, SparkSession

from leanops.batch.isolation import Jobs
from leanops.batch.topics import TopicBuild, TopicTables, built_or_raised
from leanops.commits import current_id, replace_rows
from leanops.contracts.model import Contract
from leanops.curated.build import build_curated
from leanops.curated.table import reshape_curated_table
from leanops.errors import RebuildRefused
from leanops.inventory import row_count
from leanops.key_index.table import index_files
from leanops.ledger.account import Account
from leanops.ledger.draw_up import LedgerRequest, draw_up
from leanops.names import ERRORS, SOURCE, Layer, spark_table, table
from leanops.ops.drift_log import DRIFT_LOG, log_drift
from leanops.standardized.build import build_standardized
from leanops.standardized.table import is_mapped_by, plan_of, reshape_standardized_table
from leanops.tables import find_table, overtaken

LAYERS = tuple(SOURCE)
"""What is built, in this order."""


@dataclass(frozen=True)
class Rebuilt:
    """What a rebuild has made of a topic, beside what stood there before."""

    rows_before: dict[Layer, int]
    rows_after: dict[Layer, int]
    accounts: Sequence[Account]


@dataclass(frozen=True)
class TopicBranch:
    """A topic's tables in a catalog of their own, and a session in which that catalog is the platform's."""

    live: Catalog
    branch: Catalog
    spark: SparkSession
    topic: str
    base: Mapping[Layer, int | None]
    """Where each table stood when the topic branched off."""

    @classmethod
    def off(cls, live: Catalog, branch: Catalog, spark: SparkSession, topic: str) -> "TopicBranch":
        """Branch off where the tables stand now; `branch` is an empty catalog."""
        for identifier in (*(table(layer, topic) for layer in Layer), DRIFT_LOG):
            if there := find_table(live, identifier):
                branch.register_table(identifier, _metadata_of_its_own(there))
        base = {layer: current_id(there) if there else None for layer, there in _tables(branch, topic).items()}
        return cls(live, branch, spark, topic, base)

    def rebuild(self, contract: Contract, say: Callable[[str], None]) -> Rebuilt:
        """Build both layers for the contract and draw up their ledger. `RebuildRefused` when it does not close."""
        before = self._rows()
        self._reshape(contract)
        topic = TopicBuild(TopicTables(self.branch, self.topic), contract)
        jobs = Jobs(lambda: self.spark)
        say(f"building {Layer.STANDARDIZED} beside what readers see")
        built_or_raised(build_standardized(jobs, self.branch, [topic])[self.topic])
        say(f"building {Layer.CURATED} beside what readers see")
        built_or_raised(build_curated(jobs, self.branch, [topic])[self.topic])
        say("drawing up the ledger of what was built")
        accounts = self._accounts(contract)
        if wrong := [each for each in accounts if not each.is_clean]:
            days = ", ".join(f"{each.layer} of {each.day} ({each.findings.count:,} rows)" for each in wrong[:5])
            raise RebuildRefused(
                f"The ledger of the rebuilt {self.topic} does not close: {days}.",
                "Nothing was changed, and the topic goes on with the contract that it has.",
            )
        return Rebuilt(before, self._rows(), accounts)

    def publish(self, read: Callable[[Layer], DataFrame], contract: Contract) -> None:
        """Make the branch what readers see: the errors first, as in every build, then layer by layer.

        `read` gives the errors of the branch in a session whose tables are those that readers see.
        """
        for layer in LAYERS:
            built = self.branch.load_table(table(layer, self.topic))
            there = find_table(self.live, table(layer, self.topic))
            if there is not None and (current_id(there), there.schema()) == (current_id(built), built.schema()):
                continue
            if there is not None and current_id(there) != self.base[layer]:
                raise overtaken(there)
            own = f"topic_name = '{self.topic}'"
            replace_rows(read(ERRORS[layer]).where(own), spark_table(ERRORS[layer], self.topic), own)
            if there is None:
                self.live.register_table(table(layer, self.topic), built.metadata_location)
            else:
                _publish(self.live, there, built, self.base[layer])
        standardized = self.live.load_table(table(Layer.STANDARDIZED, self.topic))
        log_drift(self.live, {self.topic: plan_of(standardized.schema(), contract).columns})

    def _reshape(self, contract: Contract) -> None:
        """Drop the columns that the contract has no place for."""
        standardized, curated = _tables(self.branch, self.topic).values()
        if standardized and not is_mapped_by(standardized, contract):
            reshape_standardized_table(standardized)
        if curated:
            reshape_curated_table(curated, contract)

    def _accounts(self, contract: Contract) -> list[Account]:
        """What the ledger says of the tables as they stand, loaded anew: what a build tells of them is not asked."""
        tables = TopicTables(self.branch, self.topic)
        requests = [LedgerRequest(tables, contract, layer) for layer in LAYERS]
        drawn = draw_up(Jobs(lambda: self.spark), self.branch, requests)
        return [each for layer in LAYERS for each in built_or_raised(drawn[self.topic, layer])]

    def _rows(self) -> dict[Layer, int]:
        tables = _tables(self.branch, self.topic)
        return {layer: row_count(there) if there else 0 for layer, there in tables.items()}


def _metadata_of_its_own(there: Table) -> str:
    """A copy of a table's metadata, for commits that are none of the table's; where it is.

    The table's own would be gone after some more commits to it; and commits to a branch from it would come to remove
    what the table is read from. So would they remove its key index.
    """
    place = f"{there.location()}/metadata/00000-{uuid4()}.metadata.json"
    own = there.metadata.model_copy(update={"metadata_log": [], "statistics": []})
    ToOutputFile.table_metadata(own, there.io.new_output(place))
    return place


def _tables(catalog: Catalog, topic: str) -> dict[Layer, Table | None]:
    return {layer: find_table(catalog, table(layer, topic)) for layer in LAYERS}


def _publish(live: Catalog, there: Table, built: Table, base: int | None) -> None:
    """Give a table the columns and snapshots of its branch, in one commit, if it still stands where that began."""
    requirements = (
        AssertTableUUID(uuid=there.metadata.table_uuid),
        AssertRefSnapshotId(ref=MAIN_BRANCH, snapshot_id=base),
    )
    try:
        live.commit_table(there, requirements, tuple(_updates(there, built)))
    except CommitFailedException as error:
        raise overtaken(there) from error


def _updates(there: Table, built: Table) -> Iterator[TableUpdate]:
    known_columns = {schema.schema_id for schema in there.metadata.schemas}
    for schema in built.metadata.schemas:
        if schema.schema_id not in known_columns:
            yield AddSchemaUpdate(schema_=schema)
    yield SetCurrentSchemaUpdate(schema_id=built.metadata.current_schema_id)
    known = {snapshot.snapshot_id for snapshot in there.metadata.snapshots}
    for snapshot in sorted(built.metadata.snapshots, key=lambda each: each.sequence_number or 0):
        if snapshot.snapshot_id not in known:
            yield AddSnapshotUpdate(snapshot=snapshot)
    if newest := current_id(built):
        yield SetSnapshotRefUpdate.model_validate(
            {"ref-name": MAIN_BRANCH, "type": SnapshotRefType.BRANCH, "snapshot-id": newest}
        )
    for outdated in index_files(there.metadata):
        yield RemoveStatisticsUpdate(snapshot_id=outdated.snapshot_id)
    for index in index_files(built.metadata):
        yield SetStatisticsUpdate(statistics=index)
