"""Put a file of messages into the landing folder so that it is taken at once."""

import os
from pathlib import Path

_EARLIER_NS = 10**9


def put_into_place(draft: Path, path: Path) -> Path:
    """Give a complete file its name.

    A drain knows by its times that it was renamed after its last write. The clock of a file system ticks some hundred
    times a second, so both may fall together: its modification is dated a second earlier.
    """
    state = draft.stat()
    os.utime(draft, ns=(state.st_atime_ns, state.st_mtime_ns - _EARLIER_NS))
    return draft.replace(path)


def write_into_place(path: Path, content: bytes) -> Path:
    """Write a file that is complete when it has its name."""
    draft = path.with_name(f".{path.name}")
    draft.write_bytes(content)
    return put_into_place(draft, path)
