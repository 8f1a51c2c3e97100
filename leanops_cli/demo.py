"""`leanops demo`: two days in the life of the platform, in two minutes.

| step | what happens |
|---|---|
| day 1 | messages of three topics; one of them has no contract, and its messages wait in RAW |
| contract | its contract is uploaded, and all that waited is built |
| day 2 | everything is dirty: copies, late arrivals, corrections, new fields, broken values, no envelopes at all |
| mending | a producer corrects a broken record; somebody mends a dead letter and replays it |
| ledger | what became of every message, from its queue to Curated: 100 % |
"""

import json
import os
import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Thread
from typing import Any

from leanops.errors import LeanOpsError, RunFailed
from leanops.home import Home
from leanops.landing_file import write_into_place
from leanops.progress import progress
from leanops.settings import Settings
from leanops_cli.dlq import replay
from leanops_cli.drain import print_drained
from leanops_cli.inject import inject, inject_check
from leanops_cli.ledger import ledger
from leanops_cli.tick import print_tick

_NEW_TOPIC, _MENDED_TOPIC = "support_chats", "events"


def demo() -> None:
    """Emulate production: two days of messages, a new contract, all that can go wrong, and what became of each.

    Everything runs through Dagster and stays under LEANOPS_HOME to be looked at. The contracts are copied there first.
    A second demo sends the same messages again: they are duplicates then.
    """
    from leanops_resources.spark.server import running, stop

    home = Home(Settings.load().home).prepare()
    os.environ[Settings.variable("schemas")] = str(_contracts(home))
    settings = Settings.load()
    begun, was_up = time.monotonic(), running(home) is not None
    Thread(target=_start_spark, args=(settings,), daemon=True).start()
    try:
        _tell(f"Day 1: three topics, of which {_NEW_TOPIC} has no contract yet")
        inject("day1_day2", day=[1])
        _drain_and_tick(settings)
        _tell(f"The contract of {_NEW_TOPIC} is uploaded, and what waited is built")
        _activate(settings)
        _tick(settings)
        _tell("Day 2: everything is dirty")
        inject("day1_day2", day=[2])
        _drop(home, "1-broken", _event("broken", timestamp=None), {**_event("late"), "publish_time": "tomorrow, maybe"})
        _drain_and_tick(settings)
        _tell("A broken record is corrected by its producer, and a dead letter is mended and replayed")
        _drop(home, "2-corrected", _event("corrected", key="broken"))
        _replay_mended(home)
        _drain_and_tick(settings)
        _tell("What became of every message")
        ledger()
        inject_check()
    finally:
        if not was_up:
            stop(home)
    print(f"\nAll of it took {time.monotonic() - begun:.0f} s. Look at it, or ask:")
    shown = os.path.relpath(settings.schemas)
    print(f"  make dev LEANOPS_SCHEMAS={shown}           the Dagster UI: assets, checks, runs, the jobs to ask with")
    for command, what in (
        ("leanops sql 'SELECT * FROM iceberg_curated_db.orders'", "typed rows"),
        ("leanops errors", "what is wrong, grouped"),
        ("leanops dlq list", "messages that never reached RAW"),
        ("leanops trace demo-corrected", "the story of one message"),
    ):
        print(f"  .venv/bin/{command:<56} {what}")


def _start_spark(settings: Settings) -> None:
    """It starts beside what does not need it. If it does not start, whoever needs it first is told."""
    from leanops_resources.spark.server import server_url

    with suppress(LeanOpsError):
        server_url(settings)


def _contracts(home: Home) -> Path:
    """The project's active contracts, in a folder that the demo may change."""
    from leanops_assets.instance import PROJECT

    folder = home.path / "schemas"
    if not folder.exists():
        for active in sorted((PROJECT / "schemas").glob("*/active")):
            shutil.copytree(active, folder / active.parent.name / active.name)
    return folder


def _tell(what: str) -> None:
    print(f"\n── {what}\n", flush=True)


def _drain_and_tick(settings: Settings) -> None:
    from leanops_assets.raw.drain_once import drain_once

    print()
    with progress("Draining"):
        drained = drain_once(settings)
    print_drained(drained)
    if any(row["failed"] for row in drained):
        raise RunFailed("A topic could not be drained.", "What it said stands above.")
    print()
    _tick(settings)


def _tick(settings: Settings) -> None:
    from leanops_assets.tick import tick_once

    with progress("Building") as advance:
        ticked = tick_once(settings, advance=advance)
    if not print_tick(ticked):
        raise RunFailed("A tick of the demo failed.", "`make dev` shows the run under Runs.")


def _activate(settings: Settings) -> None:
    """Upload the contract and run the job that takes it in, as its sensor would."""
    from leanops_assets.instance import PROJECT
    from leanops_assets.run_job import run_job
    from leanops_resources.schema_store import read_active, schema_store

    store = schema_store(settings.schemas)
    if read_active(store, _NEW_TOPIC):
        print(f"{_NEW_TOPIC} has a contract already.")
        return
    upload = PROJECT / "scenarios" / "contracts" / f"{_NEW_TOPIC}.json"
    where = store.submit(_NEW_TOPIC, upload.read_bytes())
    with progress("Activating"):
        run = run_job(settings, "contract", "take_in", {"topic": _NEW_TOPIC})
    if not run.success:
        raise RunFailed("The contract was refused.", f"{where} says why; `make dev` shows the run under Runs.")
    print(f"{os.path.relpath(where)} was taken in: {_NEW_TOPIC} has tables, and its gate is open.\n")


def _event(name: str, key: str | None = None, **changes: object) -> dict[str, Any]:
    """An envelope around an event of a moment ago."""
    moment = (datetime.now(UTC) - timedelta(minutes=2)).isoformat(timespec="seconds")
    event = {"timestamp": moment, "userId": "u-1", "eventType": "page", "verb": "view", **changes}
    payload = {"_metadata": {"idempotencyKeyResource": f"demo/{key or name}"}, "event": event}
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    return {"message_id": f"demo-{name}", "publish_time": now, "payload": payload}


def _drop(home: Home, name: str, *envelopes: Mapping[str, Any]) -> None:
    """Drop a file into the landing folder, as a producer would."""
    folder = home.landing / _MENDED_TOPIC
    folder.mkdir(exist_ok=True)
    lines = "".join(f"{json.dumps(envelope)}\n" for envelope in envelopes)
    write_into_place(folder / f"{name}.ndjson", lines.encode())


def _replay_mended(home: Home) -> None:
    """Mend the dead letter whose publish_time nobody could read, and replay it."""
    from leanops.raw.dead_letters import find_dead_letters
    from leanops_resources.catalog import LocalCatalog

    letters = find_dead_letters(LocalCatalog(home).load(), _MENDED_TOPIC, only_open=True)
    mended = home.path / "mended.json"
    mended.write_text(json.dumps(_event("late")))
    replay([letters[-1]["dead_letter_id"]], mended=mended)
