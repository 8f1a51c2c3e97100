"""Spark's Python daemon with what the payload reader needs imported before it forks.

A new Python worker then costs a fork, not two seconds of imports. Spark puts its own pyspark.zip first on the path;
that has no byte code, so the installed package is preferred. Python has looked into the archives by then, and would
list them anew for every task, which took a fifth of the workers' time: so they are forgotten.

Spark starts a daemon for each session and never ends it. One that has had no workers for a while ends by itself; should
its session want another worker after all, Spark starts a new daemon.
"""

import importlib
import os
import signal
import sys
import threading
import time
from pathlib import Path

IDLE_SECONDS = 300
_LOOK_SECONDS = 15


def _end_when_idle() -> None:
    """Ask Linux for this process's children, and end when there have been none for long enough."""
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    busy_at = time.monotonic()
    while children.exists() and time.monotonic() - busy_at < IDLE_SECONDS:
        time.sleep(_LOOK_SECONDS)
        if children.read_text():
            busy_at = time.monotonic()
    if children.exists():
        os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.path[:] = [entry for entry in sys.path if not entry.endswith(("pyspark.zip", ".jar"))]
    for entry in [entry for entry in sys.path_importer_cache if entry.endswith((".zip", ".jar"))]:
        del sys.path_importer_cache[entry]
    for library in ("msgspec", "numpy", "pyarrow", "leanops.standardized.worker", "leanops.curated.worker"):
        importlib.import_module(library)
    threading.Thread(target=_end_when_idle, daemon=True).start()
    importlib.import_module("pyspark.daemon").manager()
