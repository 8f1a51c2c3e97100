"""How long the work of one step may take in Spark: what goes on for longer is interrupted, and told by name."""

import threading
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


class TimeLimit:
    """A limit on all that is done with its session while it is held. Nobody else may use that session meanwhile."""

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
        self._watch.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._watch.join()
        if isinstance(error, Exception) and self._passed.is_set() and not isinstance(error, StepTimedOut):
            # That the work was cancelled says no more, and the first cause is what people are told.
            raise self._timed_out() from None

    def _interrupt_when_passed(self) -> None:
        if self._ended.wait(self._limit.total_seconds()):
            return
        self._passed.set()
        while True:
            if self._session:
                # A server that does not answer is the step's own trouble.
                with suppress(Exception):
                    self._session.interruptAll()
            if self._ended.wait(_AGAIN_SECONDS):
                return

    def _timed_out(self) -> StepTimedOut:
        minutes = f"{self._limit.total_seconds() / 60:g}"
        return StepTimedOut(
            f"{self._what} was interrupted after {minutes} minutes.",
            "Nothing of it was published. Raise LEANOPS_STEP_MINUTES if it has so much to do.",
        )
