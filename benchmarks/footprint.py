"""What all processes of a home take together: memory at its peak, and time on the processors by what they are."""

import threading
import time
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

_EVERY_SECONDS = 1.0
_YOUNG_SECONDS = 5.0
"""A process that has just been forked has the environment of its parent for a moment."""

_KINDS = {
    "spark": ("java", "warm_daemon", "connect_server"),
    "services": ("dagster._daemon", "dagster_webserver", "code-server", "dagster api grpc"),
    "python": ("",),
}
"""By what the command line holds; of the first that fits."""


class Footprint:
    """Looks at the processes of a home for as long as it is held. Pages that several share are counted once."""

    def __init__(self, home: Path) -> None:
        self._home = str(home)
        self._kinds: dict[psutil.Process, str] = {}
        self._others: set[psutil.Process] = set()
        self._seconds: dict[psutil.Process, float] = {}
        self._before: dict[psutil.Process, float] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look_often, daemon=True)
        self.peak = 0

    def __enter__(self) -> Self:
        self._look()
        self._before, self.peak = dict(self._seconds), 0
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    @property
    def seconds(self) -> Counter[str]:
        """What the processes have taken of the processors, by their kind."""
        taken: Counter[str] = Counter()
        for process, seconds in self._seconds.items():
            taken[self._kinds[process]] += seconds - self._before.get(process, 0)  # type: ignore[assignment]
        return taken

    def _look_often(self) -> None:
        while not self._ended.wait(_EVERY_SECONDS):
            self._look()

    def _look(self) -> None:
        memory = 0
        for process in psutil.process_iter():
            if process in self._others:
                continue
            try:
                if process not in self._kinds and not self._is_of_home(process):
                    continue
                times = process.cpu_times()
                self._seconds[process] = times.user + times.system
                memory += process.memory_full_info().pss
            except psutil.Error:
                continue
        self.peak = max(self.peak, memory)

    def _is_of_home(self, process: psutil.Process) -> bool:
        if process.environ().get("LEANOPS_HOME") != self._home:
            if time.time() - process.create_time() > _YOUNG_SECONDS:
                self._others.add(process)
            return False
        command = " ".join(process.cmdline())
        self._kinds[process] = next(kind for kind, signs in _KINDS.items() if any(sign in command for sign in signs))
        return True
