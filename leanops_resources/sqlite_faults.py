"""SQLite's own faults, each with what to do about it. The state store and the embedded catalog are SQLite files."""

import shutil
import sqlite3
from pathlib import Path

from leanops.errors import DiskFull, HomeNotWritable, StateBusy, StateCorrupt, no_room

BUSY_SECONDS = 30
"""How long a process waits for another one's transaction."""

_NEARLY_FULL = 2**20


def named(error: Exception, path: Path, if_damaged: str) -> Exception:
    """The named error that stands for a fault of the database at `path`, or the fault itself if it is none of these."""
    code = getattr(getattr(error, "orig", error), "sqlite_errorcode", None)
    what = str(getattr(error, "orig", error))
    match code & 0xFF if code is not None else None:
        case sqlite3.SQLITE_NOTADB | sqlite3.SQLITE_CORRUPT:
            return StateCorrupt(f"{path} is damaged and cannot be read as a database: {what}.", if_damaged)
        case sqlite3.SQLITE_FULL:
            return no_room(path, what)
        # Where there is no room for its files beside the database, SQLite says that it cannot open or extend them.
        case sqlite3.SQLITE_IOERR | sqlite3.SQLITE_CANTOPEN if is_nearly_full(path):
            return no_room(path, what)
        case sqlite3.SQLITE_IOERR:
            return DiskFull(
                f"{path} could not be written: {what}.",
                "See whether its disk has room and is sound, and run this again.",
            )
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM:
            return HomeNotWritable(f"{path} cannot be written: {what}.", "Give yourself write access to it.")
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return StateBusy(
                f"{path} was locked by another process for {BUSY_SECONDS} s.", "See which one, and run this again."
            )
        case _:
            return error


def is_nearly_full(path: Path) -> bool:
    """Whether the disk that a file is on has hardly any room."""
    try:
        return shutil.disk_usage(path if path.exists() else path.parent).free < _NEARLY_FULL
    except OSError:
        return False
