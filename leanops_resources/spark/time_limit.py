"""How long the work of one step may take: what goes on for longer is interrupted, and told by name.

First what it does in Spark is interrupted. Work that has not come back some seconds later hangs in Python: a signal to
its thread raises the fault there, whatever it waits for.
"""

import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Self

from leanops.errors import StepTimedOut

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_AGAIN_SECONDS = 1
"""An interruption ends what runs at its moment, and not what is begun a moment later."""

_COMES_BACK_SECONDS = 5
_SIGNALLED_AGAIN_SECONDS = 60
"""So that what is raised has time to pass through all that has to be tidied up."""


class TimeLimit:
    """A limit on all that is done while it is held. Nobody else may use its session meanwhile."""

    def __init__(self, what: str, limit: timedelta, sessions: "Callable[[], SparkSession]") -> None:
        self._what = what
        self._limit = limit
        self._sessions = sessions
        self._session: SparkSession | None = None
        self._ended, self._passed = threading.Event(), threading.Event()
        self._watch = threading.Thread(target=self._interrupt_when_passed, daemon=True, name=f"time limit of {what}")

    def session(self) -> "SparkSession":
        """The session, which is opened by whoever asks first."""
        self._session = self._sessions()
        if self._passed.is_set():
            raise self._timed_out()
        return self._session

    def named(self, error: Exception) -> Exception:
        """The fault itself, or that the time was up."""
        return self._timed_out() if self._passed.is_set() else error

    def __enter__(self) -> Self:
        # Python handles signals in its main thread, in which steps run.
        self._can_signal = threading.current_thread() is threading.main_thread()
        if self._can_signal:
            self._handler_before = signal.signal(signal.SIGUSR1, self._raise)
        self._watch.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._watch.join()
        if self._can_signal:
            signal.signal(signal.SIGUSR1, self._handler_before)
        if isinstance(error, Exception) and self._passed.is_set() and not isinstance(error, StepTimedOut):
            # That the work was cancelled says no more, and the first cause is what people are told.
            raise self._timed_out() from None

    def _interrupt_when_passed(self) -> None:
        if self._ended.wait(self._limit.total_seconds()):
            return
        self._passed.set()
        signalled_at = time.monotonic() + _COMES_BACK_SECONDS
        while True:
            if self._session:
                # A server that does not answer is the step's own trouble.
                with suppress(Exception):
                    self._session.interruptAll()
            if self._ended.wait(_AGAIN_SECONDS):
                return
            if self._can_signal and time.monotonic() >= signalled_at:
                signalled_at += _SIGNALLED_AGAIN_SECONDS
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    def _raise(self, _signal: int, _frame: object) -> None:
        raise self._timed_out()

    def _timed_out(self) -> StepTimedOut:
        minutes = f"{self._limit.total_seconds() / 60:g}"
        return StepTimedOut(
            f"{self._what} was interrupted after {minutes} minutes.",
            "Nothing of it was published. Raise LEANOPS_STEP_MINUTES if it has so much to do.",
        )
