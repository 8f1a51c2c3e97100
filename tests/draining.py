"""A landing folder that tests drop files into, drain, and look at what became of every message."""

import json
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from importlib import import_module
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog

from leanops.concurrency import Concurrency
from leanops.home import Home
from leanops.landing_file import write_into_place
from leanops.names import Layer, table
from leanops.raw.dead_letters import find_dead_letters
from leanops.tables import find_table
from leanops_assets.raw.drain import Drained, Intake, drain
from leanops_assets.raw.queue_ledger import queue_accounts
from leanops_resources.catalog import LocalCatalog
from leanops_resources.dlq_archive import dlq_archive
from leanops_resources.sources.folder import LandingFolder
from leanops_resources.sources.source import Source
from leanops_resources.state.sqlite import SqliteStateStore

FIRST_DAY = date(2025, 1, 1)


def envelope(message_id: str, day: date = date(2025, 3, 1), **payload: object) -> bytes:
    fields = {"message_id": message_id, "publish_time": f"{day}T12:00:00Z", "payload": payload}
    return json.dumps(fields).encode()


@dataclass
class Landing:
    """A home whose landing folder is drained."""

    home: Home
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    threads: int = 1
    catalog: Catalog = field(init=False)
    store: SqliteStateStore = field(init=False)

    def __post_init__(self) -> None:
        self.catalog = LocalCatalog(self.home).load()
        self.store = SqliteStateStore(self.home.state)

    def drop(self, topic: str, lines: Iterable[bytes], name: str = "messages.ndjson") -> None:
        folder = self.home.landing / topic
        folder.mkdir(exist_ok=True)
        write_into_place(folder / name, b"".join(line + b"\n" for line in lines))

    def sources(self) -> list[Source]:
        folder = LandingFolder(self.home.landing)
        return [folder.of(topic) for topic in folder.topics()]

    def drain(self, sources: Sequence[Source] | None = None, **limits: Any) -> dict[str, Drained]:
        archive, concurrency = dlq_archive(self.home.dlq_archive), Concurrency(self.threads)
        intake = Intake(self.catalog, self.store, archive, FIRST_DAY, self.now, concurrency=concurrency)
        found = drain(intake, self.sources() if sources is None else sources, "a test", **limits)
        return {each.topic: each for each in found}

    def raw(self, topic: str) -> Counter[str]:
        """How often each message stands in RAW."""
        held = find_table(self.catalog, table(Layer.RAW, topic))
        return Counter(held.scan(selected_fields=("message_id",)).to_arrow()["message_id"].to_pylist() if held else ())

    def dead(self, topic: str) -> list[dict[str, Any]]:
        return find_dead_letters(self.catalog, topic)

    def require_closed(self, topic: str) -> None:
        """What was received is in RAW or a dead letter, and nothing is in flight."""
        accounts = queue_accounts(self.catalog, self.store, topic)
        assert accounts
        assert [account.problem for account in accounts if not account.closes] == []
        assert [account.in_flight for account in accounts if account.in_flight] == []
        assert self.store.open_deliveries(topic) == []

    def left(self) -> list[str]:
        """What is left in the landing folder."""
        return sorted(
            str(each.relative_to(self.home.landing)) for each in self.home.landing.rglob("*") if each.is_file()
        )


KILLED_AT = [
    ("leanops_resources.sources.folder:FolderSource.receive", 1),
    ("leanops_assets.raw.group_commit:process", 1),
    ("leanops_resources.dlq_archive:FolderArchive.put", 1),
    ("leanops_resources.state.sqlite:SqliteStateStore.track_errors", 1),
    ("leanops_resources.state.sqlite:SqliteStateStore.note_deliveries", 1),
    ("leanops.raw.dead_letters:save_dead_letter_deliveries", 1),
    ("leanops_resources.state.sqlite:SqliteStateStore.count_deliveries", 1),
    ("leanops_resources.state.sqlite:SqliteStateStore.note_deliveries", 2),
    ("leanops.raw.landing:append_raw", 1),
    ("leanops_resources.state.sqlite:SqliteStateStore.count_deliveries", 2),
    ("leanops_resources.sources.folder:FolderSource.delete", 1),
    ("leanops_resources.state.sqlite:SqliteStateStore.save_breakers", 1),
]
"""Every change of a drain, in the order in which it makes them, and which call of it."""


def killed_drain(home: Path, place: str, call: int, is_before: bool) -> None:
    """Drain in a process of its own, which is killed before or after it has done something."""
    context = get_context("forkserver")
    # Iceberg takes seconds to import: once for all.
    context.set_forkserver_preload(["tests.draining"])
    process = context.Process(target=_drain_until_killed, args=(home, place, call, is_before))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL, f"{place} was not reached"


def _drain_until_killed(home: Path, place: str, call: int, is_before: bool) -> None:
    module, _, path = place.partition(":")
    holder: Any = import_module(module)
    *outer, name = path.split(".")
    for each in outer:
        holder = getattr(holder, each)
    function, calls = getattr(holder, name), count(1)

    def killed(*arguments: Any, **named: Any) -> Any:
        is_the_one = next(calls) == call
        if is_the_one and is_before:
            os.kill(os.getpid(), signal.SIGKILL)
        result = function(*arguments, **named)
        if is_the_one:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(holder, name, killed)
    Landing(Home(home)).drain()
