"""SQLite's own faults, each with what to do about it. The state store and the embedded catalog are SQLite files."""

import sqlite3
from pathlib import Path

from leanops.errors import DiskFull, HomeNotWritable, StateBusy, StateCorrupt

BUSY_SECONDS = 30
"""How long a process waits for another one's transaction."""


def named(error: Exception, path: Path, if_damaged: str) -> Exception:
    """The named error that stands for a fault of the database at `path`, or the fault itself if it is none of these."""
    code = getattr(getattr(error, "orig", error), "sqlite_errorcode", None)
    what = str(getattr(error, "orig", error))
    match code & 0xFF if code is not None else None:
        case sqlite3.SQLITE_NOTADB | sqlite3.SQLITE_CORRUPT:
            return StateCorrupt(f"{path} is damaged and cannot be read as a database: {what}.", if_damaged)
        case sqlite3.SQLITE_FULL | sqlite3.SQLITE_IOERR:
            return DiskFull(f"{path} could not be written: {what}.", "Free some space and run the same again.")
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM:
            return HomeNotWritable(f"{path} cannot be written: {what}.", "Give yourself write access to it.")
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return StateBusy(
                f"{path} was locked by another process for {BUSY_SECONDS} s.", "See which one, and run this again."
            )
        case _:
            return error
