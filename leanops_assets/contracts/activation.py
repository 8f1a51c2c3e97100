"""From an upload to the active contract: validated, compared, its tables made to follow, and put in its place.

An upload stays under `pending/` until all else is done. Wherever it is killed, doing it again ends in the same place:
every log knows what it holds already, tables that follow are left alone, and an upload that is active is only removed.
Nobody builds the topic meanwhile, so no upload disturbs a tick, and of two uploads at once the second meets the
contract of the first.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

from leanops.contracts.diff import Diff, Impact, diff, require_successor
from leanops.contracts.error_document import error_document
from leanops.contracts.model import Contract
from leanops.contracts.reading import read_contract
from leanops.errors import (
    ActivationFailed,
    ContractBreaking,
    ContractInvalid,
    LeanOpsError,
    RebuildRefused,
    TopicNameInvalid,
)
from leanops.names import is_topic, table
from leanops.settings import Settings
from leanops_assets.run_batch import WAIT
from leanops_resources.schema_store import CONTRACT_FILE, ERROR_FILE, SchemaStore, Stage, Upload, read_active
from leanops_resources.spark.recovery import spark_faults_named
from leanops_resources.state.lease import lease
from leanops_resources.state.store import Gate, GateStatus, StateStore
from leanops_resources.surroundings import fault_of_surroundings, surroundings_named

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from leanops.rebuild import Rebuilt
    from leanops_resources.catalog import IcebergCatalog

Publish = Callable[[], "Rebuilt | None"]
"""Make what was prepared what readers see."""

REFUSALS = (ContractInvalid, ContractBreaking, RebuildRefused, TopicNameInvalid, ActivationFailed)
"""What is wrong with an upload. For any other fault, such as Spark's or the disk's, its author can do nothing: it stays
under `pending/`, and is tried again."""

_REBUILDING = "it is being rebuilt for version"


@dataclass(frozen=True)
class Activated:
    """A contract that is active now, what it has changed, and what its rebuild has made, if it took one."""

    topic: str
    contract: Contract
    diff: Diff
    rebuilt: "Rebuilt | None" = None


@dataclass(frozen=True)
class Activation:
    """What is needed to take uploads in. `say` is told how far it is."""

    settings: Settings
    store: SchemaStore
    state: StateStore
    catalog: "IcebergCatalog"
    sessions: "Callable[[], SparkSession]"
    say: Callable[[str], None]

    def take_in(self, upload: Upload) -> Activated | None:
        """Make an upload the active contract; None if somebody else has.

        A refusal (`REFUSALS`) is raised once it is filed. Whatever else is raised leaves the upload pending.
        """
        topic = upload.topic
        with (
            surroundings_named(self.settings.home),
            lease(self.state, f"build/{topic}", "a contract upload", WAIT),
            ExitStack() as held,
        ):
            if self.store.read(topic, Stage.PENDING, upload.name) != upload.content:
                return None
            active, replaced = self._active(topic), self.store.read(topic, Stage.ACTIVE)
            where = self.store.where(topic, Stage.PENDING, upload.name)
            try:
                contract = read_contract(upload.content, topic, where)
                changes, publish = diff(active, contract), _nothing
                if replaced != upload.content:
                    if active:
                        require_successor(active, contract, where)
                    publish = held.enter_context(self._prepared(topic, contract, changes))
            except REFUSALS as error:
                self._refuse(upload, active, error)
                raise
            except LeanOpsError:
                raise
            except Exception as error:
                if fault_of_surroundings(error, self.settings.home):
                    raise
                why = f"{type(error).__name__}: {error}".partition("\n")[0]
                failed = ActivationFailed(
                    f"The contract of {topic} could not be taken in: {why}",
                    "Nothing was changed, and the topic goes on with the contract that it has. Submit it again.",
                )
                self._refuse(upload, active, failed)
                raise failed from error
            # From here on nothing is refused any more: what is cut off is done again.
            activated = Activated(topic, contract, changes, publish())
            if replaced != upload.content:
                self._log(activated, upload.by)
                self._archive(topic, active, replaced)
                self.store.write(topic, Stage.ACTIVE, upload.content)
            self._open_gate(topic)
            self.store.remove(upload)
            return activated

    def _active(self, topic: str) -> Contract | None:
        """The contract that is active, if it can be used."""
        try:
            return read_active(self.store, topic)
        except ContractInvalid:
            return None

    @contextmanager
    def _prepared(self, topic: str, contract: Contract, changes: Diff) -> "Iterator[Publish]":
        """The tables as the contract needs them: evolved in place if they can follow, else rebuilt beside them."""
        from leanops.batch.topics import TopicTables
        from leanops.curated.table import ensure_curated_table, ensure_errors_table
        from leanops.ops.drift_log import log_type_changes
        from leanops.standardized.table import ensure_parse_errors_table, ensure_standardized_table, is_mapped_by

        catalog = self.catalog.load()
        log_type_changes(catalog, topic, contract.version, changes)
        ensure_parse_errors_table(catalog)
        ensure_errors_table(catalog)
        if changes.impact is not Impact.BREAKING:
            try:
                tables = TopicTables(catalog, topic)
                if is_mapped_by(tables.standardized, contract):
                    ensure_standardized_table(tables, contract)
                    ensure_curated_table(tables, contract)
                    yield _nothing
                    return
                self.say("Standardized has not kept what the contract asks for, and is read from RAW again")
            except ContractBreaking:
                self.say("its tables are of a contract that is gone, and cannot follow")
        with self._rebuilt(topic, contract) as publish:
            yield publish

    @contextmanager
    def _rebuilt(self, topic: str, contract: Contract) -> "Iterator[Publish]":
        from leanops.rebuild import TopicBranch
        from leanops_resources.spark.faults import let_go
        from leanops_resources.spark.session import attach

        # Before anything is paused: where there is no Spark, the topic goes on with the contract that it has.
        with self.catalog.branch() as branch:
            session = attach(self.settings, branch)
            try:
                with (
                    self._paused(topic, f"{_REBUILDING} {contract.version}"),
                    spark_faults_named(session, self.settings, "a rebuild"),
                ):
                    self.say(f"{topic} is paused, and is rebuilt for version {contract.version}")
                    built = TopicBranch.off(self.catalog.load(), branch.load(), session, topic)
                    rebuilt = built.rebuild(contract, self.say)

                def publish() -> "Rebuilt":
                    self.say("its ledger is closed: publishing")
                    with spark_faults_named(session, self.settings, "a rebuild"):
                        built.publish(lambda layer: branch.seen_from(self.sessions(), table(layer, topic)), contract)
                    return rebuilt

                yield publish
            finally:
                let_go(session)

    @contextmanager
    def _paused(self, topic: str, reason: str) -> Iterator[None]:
        """The topic waits while it is rebuilt, until that is published. If it cannot be, its gate is as before."""
        before = self.state.gate(topic)
        if self._is_held_by_hand(topic):
            yield
            return
        self.state.set_gate(topic, Gate(processing_enabled=False, status=GateStatus.PAUSED, reason=reason))
        try:
            yield
        except Exception:
            # What went wrong is the news, also where the gate cannot be set.
            with suppress(LeanOpsError):
                self.state.set_gate(topic, before or Gate(processing_enabled=True, status=GateStatus.READY))
            raise

    def _log(self, activated: Activated, by: str | None) -> None:
        from leanops.ops.schema_versions import log_version

        log_version(self.catalog.load(), activated.topic, activated.contract, activated.diff, by)

    def _archive(self, topic: str, active: Contract | None, replaced: bytes | None) -> None:
        """Keep the contract that is replaced, under its version; one that is there already is not written over."""
        if replaced is None:
            return
        place = f"v{active.version}" if active else "unreadable"
        if self.store.read(topic, Stage.ARCHIVE, f"{place}/{CONTRACT_FILE}") not in (None, replaced):
            place = f"{place}-{sha256(replaced).hexdigest()[:8]}"
        self.store.write(topic, Stage.ARCHIVE, replaced, f"{place}/{CONTRACT_FILE}")

    def _refuse(self, upload: Upload, active: Contract | None, error: LeanOpsError) -> None:
        """File an upload under `failed/` with all that is wrong. The active contract goes on working."""
        self.store.write(upload.topic, Stage.FAILED, upload.content)
        self.store.write(upload.topic, Stage.FAILED, error_document(error), ERROR_FILE)
        if is_topic(upload.topic) and not self._is_held_by_hand(upload.topic):
            reason = f"a contract was refused, see {self.store.where(upload.topic, Stage.FAILED, ERROR_FILE)}"
            gate = Gate(processing_enabled=active is not None, status=GateStatus.ERROR, reason=reason)
            self.state.set_gate(upload.topic, gate)
        self.store.remove(upload)

    def _open_gate(self, topic: str) -> None:
        if not self._is_held_by_hand(topic):
            self.state.set_gate(topic, Gate(processing_enabled=True, status=GateStatus.READY))

    def _is_held_by_hand(self, topic: str) -> bool:
        """Whether somebody has paused the topic, who alone may resume it."""
        gate = self.state.gate(topic)
        is_ours = gate is not None and (gate.reason or "").startswith(_REBUILDING)
        return gate is not None and gate.status is GateStatus.PAUSED and not is_ours


def _nothing() -> "Rebuilt | None":
    """The tables are as they should be."""
    return None


def described(activated: Activated) -> Sequence[str]:
    """What has happened, for people."""
    lines = [f"{activated.topic}: version {activated.contract.version} is active ({activated.diff.impact})."]
    lines += [f"  {change}" for change in activated.diff.changes]
    if activated.rebuilt:
        for layer, before in activated.rebuilt.rows_before.items():
            lines.append(f"  {layer}: {before:,} rows before, {activated.rebuilt.rows_after[layer]:,} now")
    return lines
