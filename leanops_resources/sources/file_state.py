"""Whether a file is complete: told from its times, and from whether anybody has it open for writing.

A write sets a file's modification time and its change time to the same moment. What gives a complete file its name, or
its old time back (`mv`, `rsync`, `cp -p`), moves the change time alone. So a file whose modification is the older of
the two was put into place, and one of which both are the same may still be written.
"""

import errno
import fcntl
import os
import signal
import time

KEPT_SECONDS = 3600.0
"""Where the system does not tell whether a file is open, one that was not put into place is kept for this long."""


def is_complete(state: os.stat_result, still_seconds: float) -> bool:
    """Whether a file was put into place, or nobody has written to it for so long."""
    return was_put_into_place(state) or is_still(state, still_seconds)


def was_put_into_place(state: os.stat_result) -> bool:
    """Whether something was done to the file after its last write that does not change its content."""
    return state.st_mtime_ns < state.st_ctime_ns


def is_still(state: os.stat_result, seconds: float) -> bool:
    """Whether nobody has written to the file for so long. Its modification time can be set, even to the future."""
    return min(state.st_mtime, state.st_ctime) <= time.time() - seconds


def is_open_for_writing(file: int) -> bool | None:
    """Whether anybody has a file open for writing, or is about to; None where the system does not tell.

    Linux grants a read lease on a file that nobody has open for writing, but not on somebody else's. It lasts until we
    close the file. Whoever wants to write meanwhile waits for its end, and our lease says so.
    """
    if not hasattr(fcntl, "F_SETLEASE"):
        return None
    try:
        # Whoever wants to write breaks the lease, of which a signal tells: by default one that ends the process.
        fcntl.fcntl(file, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except OSError as error:
        return True if error.errno == errno.EAGAIN else None
    return fcntl.fcntl(file, fcntl.F_GETLEASE) != fcntl.F_RDLCK


def may_be_removed(file: int, state: os.stat_result) -> bool:
    """Whether nothing will be added to a file any more, by those who have it open already."""
    is_open = is_open_for_writing(file)
    return not is_open if is_open is not None else was_put_into_place(state) or is_still(state, KEPT_SECONDS)
