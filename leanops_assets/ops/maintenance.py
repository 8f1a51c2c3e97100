"""The job `maintenance`: every table is kept quick to read and small on disk (`leanops/maintenance.py`).

One table after the other, beside drains and ticks. A topic's table is held while it is worked on, a second or so where
it is small; one that somebody else holds for longer than `PATIENCE` is left for the next night. Tables that all topics
share are held by nobody. A table that fails is named, and fails the run after all others are done.
"""

from collections import Counter
from collections.abc import Collection
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import dagster as dg
from pydantic import Field

from leanops.contracts.manifest import Manifest
from leanops.errors import LeanOpsError, MaintenanceIncomplete, Problem, SparkUnavailable, TopicBusy
from leanops.names import SOURCE, Layer, table
from leanops.settings import Settings
from leanops_assets.metadata import markdown_table
from leanops_assets.raw.deliveries import intake_of
from leanops_assets.step_faults import spark_fault
from leanops_resources.dagster_resources import CatalogResource, SparkConnectResource, StateStoreResource
from leanops_resources.spark.time_limit import TimeLimit
from leanops_resources.state.lease import lease
from leanops_resources.state.store import StateStore

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

PATIENCE = timedelta(minutes=1)
MAINTAINED = "maintained"
COLUMNS = (
    "table",
    "index_made",
    "files_compacted",
    "manifests_rewritten",
    "snapshots_expired",
    "files_removed",
    "delete_files_rewritten",
    "lost_files_removed",
    "said",
)
_SHOWN = 100
_Identifier = tuple[str, str]


class MaintenanceOf(dg.Config):
    """What is maintained. Without anything: all tables, as every night."""

    topics: list[str] = Field(default=[], description="Only the tables of these topics.")
    weekly: bool = Field(default=False, description="Also what is done once a week: lost files, deleted positions.")


@dataclass(frozen=True)
class Maintained:
    """What was done to a table, or why nothing was."""

    name: str
    done: Counter[str] = field(default_factory=Counter)
    skipped: str | None = None
    problem: str | None = None

    def row(self) -> dict[str, Any]:
        """The same, by the names that are shown."""
        counts = {each: self.done[each] for each in COLUMNS if each not in ("table", "said")}
        return {"table": self.name, **counts, "said": self.problem or self.skipped or "", "failed": bool(self.problem)}


def build_maintenance_job(manifest: Manifest, settings: Settings) -> dg.JobDefinition:
    """The job over the tables of `manifest`, and those that its topics share."""

    @dg.op(name="maintain", description="Compacts files and manifests, expires snapshots, removes lost files.")
    def maintain(
        context: dg.OpExecutionContext,
        config: MaintenanceOf,
        iceberg: CatalogResource,
        state: StateStoreResource,
        spark: SparkConnectResource,
    ) -> None:
        limit = timedelta(minutes=settings.step_minutes)
        upkeep = _Upkeep(iceberg.load(), state.store, spark, f"run {context.run_id}", limit, config.weekly)
        tables = _tables(iceberg.catalog.metadata_locations(), manifest, config.topics)
        told = []
        for identifier, own in tables.items():
            each = upkeep.maintained(identifier, own)
            if each.done or each.skipped or each.problem:
                told.append(each)
                context.log.info("%s", {name: value for name, value in each.row().items() if value})
        rows = [each.row() for each in told]
        totals = sum((each.done for each in told), Counter[str]())
        said: dict[str, Any] = {
            "tables": len(tables),
            **totals,
            MAINTAINED: dg.MetadataValue.json(rows),
            "table": markdown_table(COLUMNS, ([row[name] for name in COLUMNS] for row in rows[:_SHOWN]), signs=200),
        }
        if problems := [Problem(each.name, each.problem) for each in told if each.problem]:
            hint = "No row has changed; what is left to do is done by the next night."
            raise dg.Failure(str(MaintenanceIncomplete("The maintenance", problems, hint)), said, allow_retries=False)
        context.add_output_metadata(said)

    @dg.job(name="maintenance", description="Keeps all tables quick to read and small on disk. Changes no row.")
    def maintenance_job() -> None:
        maintain()

    return maintenance_job


@dataclass(frozen=True)
class _Upkeep:
    catalog: "Catalog"
    store: StateStore
    spark: SparkConnectResource
    holder: str
    limit: timedelta
    weekly: bool

    def maintained(self, identifier: _Identifier, own: "_Own | None") -> Maintained:
        """Maintain a table, which is a topic's own or shared. What is wrong with it leaves the others alone."""
        name = ".".join(identifier)
        try:
            with self._held(own) if own else nullcontext():
                return Maintained(name, self._maintain(identifier, own))
        except TopicBusy as error:
            return Maintained(name, skipped=error.problem)
        except Exception as error:  # noqa: BLE001 - it is told, or raised where it is all tables' trouble
            fault = spark_fault(error, self.spark)
            if isinstance(fault, SparkUnavailable):
                raise fault from None
            text = str(fault) if isinstance(fault, LeanOpsError) else f"{type(fault).__name__}: {fault}"
            return Maintained(name, problem=text)

    def _held(self, own: "_Own") -> "AbstractContextManager[Any]":
        """Keep those away who commit to a topic's table. RAW's commits are all counted before their snapshots go."""
        if own.layer is Layer.RAW:
            return intake_of(self.catalog, self.store, own.topic, self.holder, PATIENCE)
        return lease(self.store, f"build/{own.topic}", self.holder, PATIENCE)

    def _maintain(self, identifier: _Identifier, own: "_Own | None") -> Counter[str]:
        from leanops.key_index.upkeep import maintain_index
        from leanops.maintenance import maintain_nightly, maintain_weekly, read_by_next

        with TimeLimit(f"The maintenance of {'.'.join(identifier)}", self.limit, self.spark.session) as limit:
            held = self.catalog.load_table(identifier)
            read = read_by_next(self.catalog, *own) if own else None
            done = Counter[str]()
            if own and own.layer is Layer.STANDARDIZED:
                raw = self.catalog.load_table(table(Layer.RAW, own.topic))
                done["index_made"] += maintain_index(limit.session, own.topic, raw, held)
            done += maintain_nightly(limit.session, held, read, is_shared=own is None)
            return done + maintain_weekly(limit.session, held.refresh()) if self.weekly else done


class _Own(NamedTuple):
    """Whose a table is."""

    topic: str
    layer: Layer


def _tables(
    there: Collection[_Identifier], manifest: Manifest, only: Collection[str]
) -> dict[_Identifier, _Own | None]:
    """The tables that there are of some topics, or all, those that are shared among them."""
    layers = (Layer.RAW, *SOURCE)
    owners = {table(layer, topic.name): _Own(topic.name, layer) for topic in manifest.topics for layer in layers}
    found = {identifier: owners.get(identifier) for identifier in sorted(there)}
    return {each: own for each, own in found.items() if not only or (own and own.topic in only)}
