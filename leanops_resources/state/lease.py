"""A lock for as long as some work takes: waited for, kept alive, given back.

Nothing is wrong without it, since commits exclude each other by themselves (`leanops/commits.py`): the lock spares the
second of two builds the work.
"""

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import psutil

from leanops.errors import TopicBusy
from leanops_resources.state.store import LOCK_TTL, Lock, LockLost, StateStore

_LOOK_AGAIN_SECONDS = 0.2


@contextmanager
def lease(store: StateStore, name: str, purpose: str, patience: timedelta, ttl: timedelta = LOCK_TTL) -> Iterator[Lock]:
    """Hold the lock on `name`. `TopicBusy` when somebody else does for longer than one's `patience`."""
    lock = _acquired(store, name, f"{socket.gethostname()}/{os.getpid()}/{purpose}", patience, ttl)
    ended = threading.Event()
    keeper = threading.Thread(target=_keep, args=(store, lock, ttl, ended), daemon=True, name=f"lease of {name}")
    keeper.start()
    try:
        yield lock
    finally:
        ended.set()
        keeper.join()
        store.release(lock)


def _acquired(store: StateStore, name: str, owner: str, patience: timedelta, ttl: timedelta) -> Lock:
    give_up = time.monotonic() + patience.total_seconds()
    while (lock := store.acquire(name, owner, ttl)) is None:
        holder = store.holder(name)
        if holder is None or _is_gone(holder):
            if holder:
                store.release(holder)
            continue
        if time.monotonic() > give_up:
            raise TopicBusy(
                f"{holder.owner.split('/', 2)[2]} is at work on {name} and has been for a while.",
                "What this one was to do stays pending and comes with the next tick.",
            )
        time.sleep(_LOOK_AGAIN_SECONDS)
    return lock


def _is_gone(holder: Lock) -> bool:
    """Whether the holder was a process of this machine that is no more. Of others only the lock's end tells."""
    host, pid, _ = holder.owner.split("/", 2)
    return host == socket.gethostname() and not psutil.pid_exists(int(pid))


def _keep(store: StateStore, lock: Lock, ttl: timedelta, ended: threading.Event) -> None:
    while not ended.wait(ttl.total_seconds() / 3):
        try:
            lock = store.renew(lock, ttl)
        except LockLost:
            return
