"""Locks for as long as some work takes: waited for, renewed, released.

Nothing is wrong without them, since commits exclude each other by themselves (`leanops/commits.py`): a lock spares the
second of two builds the work.
"""

import logging
import os
import socket
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import timedelta

import psutil

from leanops.errors import TopicBusy
from leanops_resources.state.store import LOCK_TTL, Lock, LockLost, StateStore

_LOOK_AGAIN_SECONDS = 0.2
_LOG = logging.getLogger(__name__)


@contextmanager
def lease(store: StateStore, name: str, holder: str, wait: timedelta, ttl: timedelta = LOCK_TTL) -> Iterator[Lock]:
    """Hold the lock on `name`. `TopicBusy` when somebody else holds it for longer than `wait`."""
    with leases(store, [name], holder, wait, ttl) as held:
        if name in held.busy:
            raise held.busy[name]
        yield held.lock(name)


@contextmanager
def leases(
    store: StateStore, names: Collection[str], holder: str, wait: timedelta, ttl: timedelta = LOCK_TTL
) -> "Iterator[Leases]":
    """Hold the locks on all of `names` that are free, or get free within `wait`; the others are `busy`."""
    held = Leases(store, f"{socket.gethostname()}/{os.getpid()}/{holder}", ttl)
    ended = threading.Event()
    # The first locks are renewed while the last ones are waited for.
    renewal = threading.Thread(target=held.renew_until, args=(ended,), daemon=True, name=f"leases of {holder}")
    renewal.start()
    try:
        held.acquire(names, wait)
        yield held
    finally:
        ended.set()
        renewal.join()
        held.release()


class Leases:
    """The locks that one holder has, renewed together.

    A fault of the store does not end the renewal: it is tried again a third of the TTL later. A lock that was not
    renewed for a whole TTL is lost, and so is one of which the store says that it has expired or changed hands.
    """

    def __init__(self, store: StateStore, owner: str, ttl: timedelta) -> None:
        self._store = store
        self._owner = owner
        self._ttl = ttl
        self._guard = threading.Lock()
        self._locks: dict[str, Lock] = {}
        self._valid_until: dict[str, float] = {}
        """By the clock of this process, which nobody can set."""
        self._lost: set[str] = set()
        self._fault: Exception | None = None
        self.busy: dict[str, TopicBusy] = {}
        """What somebody else holds, by name."""

    @property
    def held(self) -> frozenset[str]:
        """The names whose locks this holder has."""
        lost = self.lost
        with self._guard:
            return frozenset(self._locks) - lost

    @property
    def lost(self) -> frozenset[str]:
        """The names whose locks this holder had. What they protect must not be committed."""
        with self._guard:
            now = time.monotonic()
            self._lost |= {name for name, until in self._valid_until.items() if now >= until}
            return frozenset(self._lost)

    def lock(self, name: str) -> Lock:
        """The lock on `name`. `LockLost` once it is no longer held, `TopicBusy` if it never was."""
        if name in self.busy:
            raise self.busy[name]
        if name in self.lost:
            raise LockLost(self._locks[name]) from self._fault
        return self._locks[name]

    def acquire(self, names: Collection[str], wait: timedelta) -> None:
        """Take all that are free, or get free within `wait`."""
        give_up = time.monotonic() + wait.total_seconds()
        missing = list(dict.fromkeys(names))
        while missing := self._take(missing):
            holders = {name: self._store.holder(name) for name in missing}
            gone = [holder for holder in holders.values() if holder and _is_gone(holder)]
            self._store.release_many(gone)
            if gone or None in holders.values():
                continue
            if time.monotonic() > give_up:
                self.busy = {name: _busy(holder) for name, holder in holders.items() if holder}
                return
            time.sleep(_LOOK_AGAIN_SECONDS)

    def _take(self, names: Collection[str]) -> list[str]:
        """Take those that are free; the others."""
        asked = time.monotonic()
        self._keep(self._store.acquire_many(names, self._owner, self._ttl), asked)
        return [name for name in names if name not in self._locks]

    def _keep(self, locks: dict[str, Lock], asked: float) -> None:
        """Note locks whose TTL began when the store was `asked`, or a moment later."""
        with self._guard:
            self._locks |= locks
            self._valid_until |= dict.fromkeys(locks, asked + self._ttl.total_seconds())

    def renew_until(self, ended: threading.Event) -> None:
        """Renew all locks, time and again, until their work has ended."""
        while not ended.wait(self._ttl.total_seconds() / 3):
            if locks := [self._locks[name] for name in self.held]:
                self._renew(locks)

    def _renew(self, locks: Collection[Lock]) -> None:
        asked = time.monotonic()
        try:
            renewed = self._store.renew_many(locks, self._ttl)
        except Exception as error:  # noqa: BLE001 - whatever it is, the store may be back before the TTL has passed
            _LOG.warning("%d locks of %s could not be renewed: %s", len(locks), self._owner, error)
            self._fault = error
            return
        self._keep(renewed, asked)
        self._fault = None
        with self._guard:
            self._lost |= {lock.name for lock in locks} - renewed.keys()

    def release(self) -> None:
        """Let all locks go."""
        if self._locks:
            self._store.release_many(self._locks.values())


def _busy(holder: Lock) -> TopicBusy:
    return TopicBusy(
        f"{holder.owner.split('/', 2)[2]} is at work on {holder.name} and has been for a while.",
        "What this one was to do stays pending and comes with the next tick.",
    )


def _is_gone(holder: Lock) -> bool:
    """Whether the holder was a process of this machine that is no more. Of others only the lock's end tells."""
    host, pid, _ = holder.owner.split("/", 2)
    return host == socket.gethostname() and not psutil.pid_exists(int(pid))
