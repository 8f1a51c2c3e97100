"""Everything that can go wrong for a known reason: what is wrong, where, and what to do about it."""

import errno
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


class LeanOpsError(Exception):
    """A fault that people can act on. `problem` says what is wrong and where, `hint` what to do."""

    def __init__(self, problem: str, hint: str) -> None:
        super().__init__(f"{problem} {hint}")
        self.problem = problem
        self.hint = hint


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong in something people wrote: where it is, what is wrong, and the fix where it is known."""

    path: str
    message: str
    fix: str | None = None
    found: str | None = None
    allowed: str | None = None

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" + (f" {self.fix}" if self.fix else "")

    def document(self) -> dict[str, str]:
        """The same for programs: what is known of it, key by key."""
        known = {
            "path": self.path,
            "message": self.message,
            "found": self.found,
            "allowed": self.allowed,
            "fix": self.fix,
        }
        return {key: value for key, value in known.items() if value is not None}


class NotAllowed(ValueError):
    """A value that its rule does not allow. Whoever knows where it stands makes a `Problem` of it."""

    def __init__(
        self, message: str, *, found: str | None = None, allowed: str | None = None, fix: str | None = None
    ) -> None:
        super().__init__(f"{message}: {fix}" if fix else message)
        self.message = message
        self.found = found
        self.allowed = allowed
        self.fix = fix


def quoted(text: str) -> str:
    """A text that people wrote, as they wrote it, in short."""
    return repr(text if len(text) <= 60 else f"{text[:57]}…")


class ProblemsError(LeanOpsError):
    """Several things are wrong in one place, and all of them are listed at once."""

    def __init__(self, where: str, problems: Sequence[Problem], hint: str) -> None:
        count = "one problem" if len(problems) == 1 else f"{len(problems):,} problems"
        super().__init__("\n".join([f"{where} has {count}:", *(f"  {each}" for each in problems)]) + "\n", hint)
        self.where = where
        self.problems = tuple(problems)


class SettingsInvalid(ProblemsError):
    """A `LEANOPS_*` variable has a value that cannot be used, or a name that does not exist."""


class ContractInvalid(ProblemsError):
    """A contract file breaks the rules of contracts."""


class ContractFileUnreadable(LeanOpsError):
    """A contract file that was named is not there, or cannot be read."""


class ContractBreaking(LeanOpsError):
    """A contract changes a column's type in a way that its table cannot follow in place."""


class ContractReplaced(LeanOpsError):
    """A later version of the contract is in force than the one that a run was planned with."""


class RebuildRefused(LeanOpsError):
    """What was rebuilt for a contract does not add up, and is not published."""


class RehearsalImpossible(LeanOpsError):
    """There is no contract to rehearse, or there are no rows to rehearse one on."""


class ActivationFailed(LeanOpsError):
    """Something unforeseen ended the activation of a contract before it had changed anything."""


class ProposalImpossible(LeanOpsError):
    """There is nothing to propose a contract from, or no place to write it to."""


class ContractsMissing(LeanOpsError):
    """There is no folder or bucket of contracts where the settings say it is."""


class SchemaStoreUnavailable(LeanOpsError):
    """The bucket of contracts cannot be reached, or does not let us in."""


class QueueUnavailable(LeanOpsError):
    """A topic's queue cannot be reached, or does not let us in."""


class EnvelopesInvalid(ProblemsError):
    """A landing file has lines that are no envelopes."""


class ScenarioInvalid(ProblemsError):
    """A scenario breaks the rules of scenarios, or asks for what its contracts cannot give."""


class ExpectationUnmet(ProblemsError):
    """The tables do not hold what was injected."""


class TopicNameInvalid(LeanOpsError):
    """A topic's name is part of table names and paths; this one would not be safe there."""


class TopicUnknown(LeanOpsError):
    """A topic was named that nothing is known of."""


class LandingFileUnreadable(LeanOpsError):
    """The file to land is not there, or cannot be read as UTF-8 lines."""


class LandingConflict(LeanOpsError):
    """Other writers kept committing to the RAW table first."""


class DeadLetterMissing(LeanOpsError):
    """The body of a dead letter is not where it was archived."""


class DeadLetterUnknown(LeanOpsError):
    """A dead letter was named that there is none of, or more than one."""


class ArchiveUnavailable(LeanOpsError):
    """The bucket of dead letters cannot be reached, or does not let us in."""


class ReplayUnsettled(LandingConflict):
    """A replay failed, and whether RAW has its messages could not be found out."""


class DrainIncomplete(ProblemsError):
    """Some topics could not be drained to their end. The others were."""


class MaintenanceIncomplete(ProblemsError):
    """Some tables could not be maintained. The others were."""


class BuildOvertaken(LeanOpsError):
    """Another build of the same table has committed first."""


class RowsFailed(LeanOpsError):
    """A worker could not read, decide or write the rows of a topic."""


class TableUnreadable(LeanOpsError):
    """A table has files of a kind that the platform does not read."""


class RowsForeign(LeanOpsError):
    """A table holds rows that the layer before does not have so: somebody else has written them."""


class TopicBusy(LeanOpsError):
    """Another run is building the same topic."""


class HomeNotWritable(LeanOpsError):
    """`LEANOPS_HOME` cannot be created or written."""


class DiskFull(LeanOpsError):
    """There is no room left for what was to be written; nothing of it counts."""


class StateCorrupt(LeanOpsError):
    """A local database is not one any more."""


class StateBusy(LeanOpsError):
    """A local database stayed locked by another process for longer than anybody should wait."""


class StateStoreUnavailable(LeanOpsError):
    """The table that state is kept in cannot be reached or is not there, or does not take what was to be written."""


class JavaMissing(LeanOpsError):
    """Spark needs Java, and there is none, or too old a one."""


class SparkUnavailable(LeanOpsError):
    """The Spark server did not start, or went away."""


class StepTimedOut(LeanOpsError):
    """A step took longer than any may."""


class QueryInvalid(LeanOpsError):
    """Spark refused a statement that somebody typed."""


class RunFailed(LeanOpsError):
    """A Dagster run that was started from the command line did not succeed."""


class NothingCalledSo(LeanOpsError):
    """No message and no record has the id that was asked for."""


class LedgerImpossible(LeanOpsError):
    """What a ledger would be drawn up from is no longer there."""


class CodeServerFailed(LeanOpsError):
    """The Dagster code server could not load the definitions."""


class DagsterEnded(LeanOpsError):
    """A process of Dagster that `leanops dev` keeps has ended."""


class PortInUse(LeanOpsError):
    """Somebody else listens on the port that was asked for."""


NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def no_room(where: Path, what: str, hint: str | None = None) -> DiskFull:
    """That a disk is full, in the one sentence in which it is told, whichever store it was that had no room."""
    return DiskFull(
        f"There is no room left under {where}: {what}.",
        hint or "Free some space and run the same command again: what is not in the tables yet comes again.",
    )


@contextmanager
def disk_faults_named(where: Path) -> Iterator[None]:
    """Turn the operating system's «no room» and «not allowed» under `where` into their named errors."""
    try:
        yield
    except OSError as error:
        if error.errno in NO_ROOM:
            hint = "Nothing was committed. Free some space and run the same command again."
            raise no_room(where, str(error.strerror), hint) from error
        if error.errno in {errno.ENOTDIR, errno.EEXIST}:
            raise HomeNotWritable(
                f"{error.filename or where} cannot be written: there is a file where a folder should be.",
                "Move that file away, or point LEANOPS_HOME at a folder.",
            ) from error
        if error.errno in {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT}:
            raise HomeNotWritable(
                f"{error.filename or where} cannot be written: {error.strerror}.",
                "Give yourself write access to it, or point LEANOPS_HOME at a folder that you own.",
            ) from error
        raise
