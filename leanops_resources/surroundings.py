"""Faults of what the platform stands on: a disk without room, a database that is locked, wherever they come up.

A store names its own faults. What comes up in a library between, such as in Dagster's storage or in a Spark job, is
found here, behind the errors that it was wrapped in.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from leanops.errors import NO_ROOM, DiskFull, HomeNotWritable, LeanOpsError, StateBusy, no_room
from leanops_resources.sqlite_faults import named

_SAID = ("No space left on device", "database or disk is full")


def fault_of_surroundings(error: BaseException, home: Path) -> LeanOpsError | None:
    """The named error that stands for a fault of the disk or of a local database, if that is what went wrong."""
    for each in _causes(error):
        if isinstance(each, DiskFull | HomeNotWritable | StateBusy):
            return each
        if isinstance(each, OSError) and each.errno in NO_ROOM:
            return no_room(Path(each.filename) if isinstance(each.filename, str) else home, str(each.strerror))
        if isinstance(getattr(each, "orig", each), sqlite3.Error):
            fault = named(each, home, "Put its last good copy in its place.")  # type: ignore[arg-type]
            if isinstance(fault, DiskFull | HomeNotWritable | StateBusy):
                return fault
        if said := next((said for said in _SAID if said in str(each)), None):
            return no_room(home, said)
    return None


@contextmanager
def surroundings_named(home: Path) -> Iterator[None]:
    """Raise such faults by their names, and everything else as it is."""
    try:
        yield
    except LeanOpsError:
        raise
    except Exception as error:
        if fault := fault_of_surroundings(error, home):
            raise fault from error
        raise


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error, and those that it came of."""
    seen: set[int] = set()
    each: BaseException | None = error
    while each is not None and id(each) not in seen:
        seen.add(id(each))
        yield each
        each = each.__cause__ or each.__context__
