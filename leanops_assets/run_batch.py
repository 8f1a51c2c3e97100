"""The batch of a run: all that its steps are to build, built at once.

A Spark job costs as much for one topic as for hundreds. So the first step that asks has the batch of the whole run
built, layer by layer, and every step reports what happened to its topic. A run that selects some layers, topics or
checks, a re-execution of failed steps, a backfill and `leanops tick` all go this way.
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import Field, PrivateAttr

from leanops.contracts.manifest import Manifest
from leanops.contracts.model import Contract
from leanops.errors import BuildOvertaken, ContractReplaced
from leanops.names import ERRORS, SOURCE, Layer, step_name
from leanops.settings import Settings
from leanops_assets.checks import DaysToCheck, Verdict, check_days
from leanops_assets.gates import closed_gate
from leanops_assets.packing import RUN, SHARED_MINUTES, RunKind
from leanops_assets.specs import asset_key
from leanops_assets.step_faults import RETRIES, TRANSIENT, spark_fault
from leanops_resources.dagster_resources import CatalogResource, SparkConnectResource, StateStoreResource
from leanops_resources.spark.time_limit import TimeLimit
from leanops_resources.state.lease import leases

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

    from leanops.batch.isolation import Jobs
    from leanops.batch.topics import Outcome, TopicBuild, TopicTables
    from leanops.slices import Slice

WAIT = timedelta(minutes=5)
"""How long a run of one topic waits for another that builds it. Where topics share a run the others do not wait."""

_PARTED = 5
"""Where topics were parted to find the one that takes too long, each part has so many times less."""

ATTEMPTS = 3
"""How often a build is tried that somebody without the lock was faster than: what is left to do is less each time."""


@dataclass(frozen=True)
class Built:
    """What a build has to show."""

    is_new: bool
    days: frozenset[date] = frozenset()
    source_snapshot: int | None = None
    last_ingestion_ts: int | None = None
    part: "Slice | None" = None
    """Which rows it took in."""
    metadata: dict[str, Any] = field(default_factory=dict)


LayerBuild = Callable[["Jobs", "Catalog", "Sequence[TopicBuild]"], "dict[str, Outcome[Built]]"]
"""Builds a layer of some topics."""


@dataclass
class StepOutcome:
    """What happened to a layer of a topic."""

    built: Built | None = None
    """None where only checks were asked for."""
    verdicts: list[Verdict] = field(default_factory=list)
    skipped: str | None = None
    failed: Exception | None = None
    unchecked: Exception | None = None
    """Why there are no verdicts on what was built, where that is so."""
    tables: "TopicTables | None" = None
    layer: Layer = Layer.STANDARDIZED

    @property
    def table(self) -> "Table":
        """The layer's table, as the build has left it."""
        found = self.tables and (self.tables.curated if self.layer is Layer.CURATED else self.tables.standardized)
        assert found
        return found

    @property
    def errors_by_day(self) -> dict[date, dict[str, Any]]:
        """How many rows of each day stand among the layer's errors, by its ledger: all topics share that table."""
        from leanops.ledger.account import REFUSED

        ledgers = (each for each in self.verdicts if each.check == "ledger_closed")
        return {each.day: {"dagster/partition_row_count": each.metadata[REFUSED[self.layer]]} for each in ledgers}


@dataclass(frozen=True)
class Asked:
    """What a run is asked for."""

    run_id: str
    day: date
    rebuild: bool
    kind: str | None
    to_build: Mapping[Layer, Sequence[str]]
    """The topics to be built, by layer."""
    to_check: Mapping[Layer, Sequence[str]]
    """The topics with checks among the run's steps, by layer."""

    @property
    def topics(self) -> list[str]:
        asked = (*self.to_build.values(), *self.to_check.values())
        return list(dict.fromkeys(topic for topics in asked for topic in topics))


def asked_of(context: dg.AssetExecutionContext, manifest: Manifest, rebuild: bool) -> Asked:
    """What the run of a step is asked for, by its selection of assets, checks and steps."""
    run = context.run
    steps = run.step_keys_to_execute and {*run.step_keys_to_execute}
    is_whole = run.asset_selection is None and run.asset_check_selection is None
    assets = {*(run.asset_selection or ())}
    checked = {key.asset_key for key in run.asset_check_selection or ()}
    to_build: dict[Layer, list[str]] = {}
    to_check: dict[Layer, list[str]] = {}
    for layer in SOURCE:
        for topic in (each.name for each in manifest.topics if each.contract):
            keys = {asset_key(each, topic) for each in (layer, ERRORS[layer])}
            if steps and step_name(layer, topic) not in steps:
                continue
            if is_whole or keys & assets:
                to_build.setdefault(layer, []).append(topic)
            if is_whole or keys & assets or keys & checked:
                to_check.setdefault(layer, []).append(topic)
    day = date.fromisoformat(context.partition_key)
    return Asked(run.run_id, day, rebuild, run.tags.get(RUN), to_build, to_check)


class BatchResource(dg.ConfigurableResource[None]):
    """The batch of a run, which lives as long as the run does."""

    shared_minutes: float = Field(
        default=SHARED_MINUTES, description="How long a job may take in a run whose topics wait for each other."
    )
    _batch: "RunBatch | None" = PrivateAttr(default=None)

    def of(
        self,
        context: dg.AssetExecutionContext,
        manifest: Manifest,
        settings: Settings,
        builds: Mapping[Layer, LayerBuild],
        rebuild: bool,
        iceberg: CatalogResource,
        state: StateStoreResource,
        spark: SparkConnectResource,
    ) -> "RunBatch":
        """The batch of a step's run."""
        if self._batch is None or self._batch.asked.run_id != context.run.run_id:
            asked = asked_of(context, manifest, rebuild)
            contracts = {each.name: each.contract for each in manifest.topics if each.contract}
            self._batch = RunBatch(
                asked, contracts, settings, builds, iceberg, state, spark, context.log.info, self.shared_minutes
            )
        return self._batch

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:  # noqa: ARG002 - Dagster's signature
        self._batch = None


@dataclass
class RunBatch:
    """Everything that a run builds and checks."""

    asked: Asked
    contracts: Mapping[str, Contract]
    settings: Settings
    builds: Mapping[Layer, LayerBuild]
    iceberg: CatalogResource
    state: StateStoreResource
    spark: SparkConnectResource
    say: Callable[..., None]
    shared_minutes: float = SHARED_MINUTES
    _outcomes: dict[tuple[Layer, str], StepOutcome] = field(default_factory=dict)
    _is_done: bool = False
    _tries: int = 0
    _fault: Exception | None = None
    _done: int = 0
    """Of all that is asked for, each topic and layer built or checked once."""

    def outcome(self, layer: Layer, topic: str) -> StepOutcome:
        """What happened to a layer of a topic. The first to ask has all of it built.

        A fault that is no topic's, such as a Spark server that went away, fails whoever asks; it is tried again by the
        next to ask, but not more often than a step is.
        """
        if not self._is_done:
            if self._fault and self._tries > RETRIES:
                raise self._fault
            self._tries += 1
            try:
                self._run()
            except Exception as error:
                self._fault = error
                raise
            self._is_done = True
        not_come = StepOutcome(skipped=f"{topic} did not come as far as {layer} in this run.")
        return self._outcomes.get((layer, topic), not_come)

    def _run(self) -> None:
        from leanops.batch.topics import TopicTables

        catalog, store, asked = self.iceberg.load(), self.state.store, self.asked
        gates = store.gates()
        for layer, topics in asked.to_build.items():
            for topic in topics:
                if reason := closed_gate(topic, gates.get(topic)):
                    self._outcomes[layer, topic] = StepOutcome(skipped=reason)
        wait = WAIT if len(asked.topics) == 1 else timedelta(0)
        names = {f"build/{topic}": topic for topic in asked.topics}
        with leases(store, names, f"run {asked.run_id}", wait) as held:
            for name, busy in held.busy.items():
                self._skip(names[name], str(busy))
            known = self.iceberg.catalog.metadata_locations().keys()
            tables = {topic: TopicTables(catalog, topic, known) for topic in asked.topics}
            for layer in SOURCE:
                self._build(layer, catalog, tables)
            self._check(catalog, tables)

    def _skip(self, topic: str, reason: str) -> None:
        for layer in SOURCE:
            self._outcomes.setdefault((layer, topic), StepOutcome(skipped=reason))

    def _build(self, layer: Layer, catalog: "Catalog", tables: "dict[str, TopicTables]") -> None:
        """Build a layer of all topics that have come so far, and again those that somebody was faster with."""
        from leanops.batch.isolation import Jobs
        from leanops.batch.topics import TopicBuild, TopicTables, each_topic

        todo = [topic for topic in self.asked.to_build.get(layer, ()) if self._has_come_to(layer, topic)]
        rebuild = [self.asked.day] if self.asked.rebuild else []
        begun = time.monotonic()
        if todo:
            self._begin(f"Building {layer} of {_count(todo)}")
        jobs = Jobs(self.spark.session, lambda topics, parted: self._limit(layer, topics, parted))
        for _ in range(ATTEMPTS):
            builds = [TopicBuild(tables[topic], self.contracts[topic], rebuild) for topic in todo]
            refused = each_topic(builds, require_in_force)
            outdated = {topic: each for topic, each in refused.items() if each is not None}
            done = outdated | self.builds[layer](jobs, catalog, [each for each in builds if each.topic not in outdated])
            self._note(layer, done, tables, time.monotonic() - begun)
            todo = [topic for topic, each in done.items() if isinstance(each, BuildOvertaken)]
            if not todo:
                break
            tables.update({topic: TopicTables(catalog, topic) for topic in todo})

    def _has_come_to(self, layer: Layer, topic: str) -> bool:
        """Whether a topic was neither held back nor has failed in the layer before."""
        before = self._outcomes.get((SOURCE[layer], topic))
        has_failed = before is not None and (before.failed or before.skipped) is not None
        return (layer, topic) not in self._outcomes and not has_failed

    def _note(
        self, layer: Layer, done: "Mapping[str, Outcome[Built]]", tables: "Mapping[str, TopicTables]", seconds: float
    ) -> None:
        built = 0
        for topic, found in done.items():
            if isinstance(found, Built):
                # A topic's share cannot be told: these are of the batch that it was built in.
                found.metadata.update({"seconds": round(seconds, 2), "batch_topics": len(done)})
                self._outcomes[layer, topic] = StepOutcome(found, tables=tables[topic], layer=layer)
                built += found.is_new
            elif isinstance(found, (BuildOvertaken, ContractReplaced)):
                self._outcomes[layer, topic] = StepOutcome(skipped=str(found))
            else:
                fault = spark_fault(found, self.spark)
                if isinstance(fault, TRANSIENT):
                    raise fault
                self._outcomes[layer, topic] = StepOutcome(failed=fault)
        if done:
            self._done += len(done)
            self.say("%s: %s built in %.1f s, %d had nothing new.", layer, _count(done), seconds, len(done) - built)

    def _check(self, catalog: "Catalog", tables: "Mapping[str, TopicTables]") -> None:
        """Draw up the ledgers of what was built, and of what only checks were asked for of."""
        to_check: list[DaysToCheck] = []
        for layer, topics in self.asked.to_check.items():
            for topic in topics:
                outcome = self._outcomes.get((layer, topic))
                if outcome is None and topic in self.asked.to_build.get(layer, ()):
                    continue
                outcome = self._outcomes.setdefault((layer, topic), StepOutcome())
                built = outcome.built
                if outcome.skipped or outcome.failed or (built and not built.is_new):
                    continue
                days, new = ({self.asked.day, *built.days}, built.part) if built else ({self.asked.day}, None)
                to_check.append(DaysToCheck(tables[topic], self.contracts[topic], layer, frozenset(days), new))
        if not to_check:
            return
        from leanops.batch.isolation import Jobs

        begun = time.monotonic()
        self._begin(f"Drawing up {len(to_check):,} ledgers")
        jobs = Jobs(self.spark.session, lambda topics, parted: self._limit("ledger", topics, parted))
        try:
            found = check_days(jobs, catalog, to_check)
        except Exception as error:  # noqa: BLE001 - what is built is published, and is told before the step fails
            found = {(each.topic, each.layer): error for each in to_check}
        seconds = time.monotonic() - begun
        for (topic, layer), verdicts in found.items():
            outcome = self._outcomes[layer, topic]
            if outcome.built:
                outcome.built.metadata["check_seconds"] = round(seconds, 2)
            if isinstance(verdicts, Exception):
                outcome.unchecked = spark_fault(verdicts, self.spark)
            else:
                outcome.verdicts = verdicts
        self.say("%d ledgers drawn up in %.1f s.", len(to_check), seconds)

    def _begin(self, stage: str) -> None:
        """Tell how far the batch is: in the run's log, and on the terminal where it is looked at there."""
        from leanops.progress import at_stage

        self.say("%s.", stage)
        asked = (*self.asked.to_build.values(), *self.asked.to_check.values())
        at_stage(stage, self._done, sum(map(len, asked)))

    @contextmanager
    def _limit(self, what: str, topics: Sequence[str], parted: int) -> Iterator[None]:
        """How long a job may take: not long where topics wait for each other, and less where one of them is sought."""
        is_shared = self.asked.kind == RunKind.SHARED
        minutes = min(self.shared_minutes, self.settings.step_minutes) if is_shared else self.settings.step_minutes
        name = f"{what}/{topics[0]}" if len(topics) == 1 else f"{what} of {len(topics)} topics"
        longest = timedelta(minutes=minutes / (_PARTED if parted else 1))
        with TimeLimit(f"The build of {name}", longest, self.spark.session) as limit:
            limit.session()
            yield


def require_in_force(build: "TopicBuild") -> None:
    """A run that was planned with an earlier contract does not undo what the tables have been built for since."""
    from leanops.commits import checkpoint_of

    built_for = int(checkpoint_of(build.tables.curated).get("contract-version", 0))
    if built_for > build.contract.version:
        raise ContractReplaced(
            f"This run was planned with version {build.contract.version} of the contract of {build.topic}, whose "
            f"tables have been built for version {built_for} since.",
            "What is pending comes with the next tick.",
        )


def _count(topics: Collection[object]) -> str:
    return "1 topic" if len(topics) == 1 else f"{len(topics):,} topics"
