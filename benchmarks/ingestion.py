"""How fast messages come from a folder and from queues to RAW, committed, and in how much memory."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3  # type: ignore[import-untyped]

from benchmarks.landing import payload_of, write_messages
from benchmarks.report import Section
from leanops.home import Home
from leanops.landing_file import put_into_place

MESSAGES = 600_000
FEW = 100_000
SMALL_TOPICS, SMALL_MESSAGES = 200, 50
FROM_MOTO = 300
FROM_QUEUE = 30_000
PREFIX = "bench-"
_COLUMNS = ("what", "messages", "commits", "seconds", "messages a second", "a core-second", "MB more than at start")


def _drop_messages(folder: Path, count: int) -> None:
    folder.mkdir()
    write_messages(folder / ".messages", count)
    put_into_place(folder / ".messages", folder / "messages.ndjson")


def measure_folder(folder: Path) -> Section:
    """Files of one topic, few and many messages, and files of many small topics."""
    rows = []
    for what, count in (("one topic", FEW), ("one topic, more than six buffers", MESSAGES)):
        home = Home(folder / f"home-{count}").prepare()
        _drop_messages(home.landing / "orders", count)
        rows.append(_row(what, _drained(home)))
    home = Home(folder / "home-many").prepare()
    for number in range(SMALL_TOPICS):
        _drop_messages(home.landing / f"topic_{number}", SMALL_MESSAGES)
    rows.append(_row(f"{SMALL_TOPICS} topics of {SMALL_MESSAGES}", _drained(home)))
    return Section(
        "Ingestion from a folder",
        _COLUMNS,
        rows,
        "From files to RAW, judged, numbered, committed and deleted. Messages of about 450 bytes on three publish "
        "days; buffers of 64 MB. Memory is what the process has grown by at its peak.",
    )


def measure_queues(folder: Path) -> Section:
    """A queue of moto, and one that hands out messages that are ready made."""
    rows = []
    with _server("moto.server", "-p", "5990", "-H", "127.0.0.1", port=5990) as environment:
        _fill(environment)
        home = Home(folder / "home-moto").prepare()
        rows.append(_row("SQS of moto on this machine", _drained(home, PREFIX, environment)))
    with _server("benchmarks.canned_queue", str(FROM_QUEUE)) as environment:
        home = Home(folder / "home-canned").prepare()
        rows.append(_row("an SQS that costs nothing", _drained(home, PREFIX, environment)))
    return Section(
        "Ingestion from queues",
        _COLUMNS,
        rows,
        "By boto3, ten messages a call, eight calls at once, deleted after the commit. Moto looks through its whole "
        "queue for every call, and holds a long poll against all others: it bounds the first figure. boto3 bounds the "
        "second: it takes about 2 ms of a core to receive ten messages and as much to delete them, to sign, to parse "
        "and to look for its own settings, so one process does not get beyond 2,600 messages a second. Several "
        "processes, each with some of the topics, do.",
    )


def _drained(home: Home, prefix: str | None = None, environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.drain_once", str(home.path), *([prefix] if prefix else [])]
    done = subprocess.run(
        command, env={**os.environ, **(environment or {})}, capture_output=True, text=True, check=True
    )
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def _row(what: str, figures: Mapping[str, Any]) -> tuple[object, ...]:
    messages, seconds, cores = (figures[name] for name in ("messages", "seconds", "core_seconds"))
    return (
        what,
        f"{messages:,}",
        figures["commits"],
        f"{seconds:.2f}",
        f"{messages / seconds:,.0f}",
        f"{messages / cores:,.0f}",
        f"{figures['megabytes']:,.0f}",
    )


@contextmanager
def _server(module: str, *arguments: str, port: int | None = None) -> Iterator[dict[str, str]]:
    """A server in a process of its own; what the environment must say to find it."""
    process = subprocess.Popen(
        [sys.executable, "-m", module, *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stdout
        found = port or int(process.stdout.readline())
        environment = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{found}",
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_DEFAULT_REGION": "us-east-1",
        }
        yield environment
    finally:
        process.terminate()
        process.wait()


def _fill(environment: Mapping[str, str]) -> None:
    client = boto3.client(
        "sqs",
        endpoint_url=environment["AWS_ENDPOINT_URL"],
        aws_access_key_id="key",
        aws_secret_access_key="secret",
        region_name="us-east-1",
    )
    for _ in range(100):
        try:
            url = client.create_queue(QueueName=f"{PREFIX}orders")["QueueUrl"]
            break
        except client.exceptions.ClientError:
            raise
        except Exception:  # noqa: BLE001 - it is not up yet
            time.sleep(0.2)
    for number in range(0, FROM_MOTO, 10):
        entries = []
        for place in range(number, number + 10):
            envelope = {
                "message_id": f"m-{place}",
                "publish_time": f"2026-01-{14 + place % 3}T08:00:00Z",
                "payload": payload_of(place),
            }
            entries.append({"Id": str(place), "MessageBody": json.dumps(envelope)})
        client.send_message_batch(QueueUrl=url, Entries=entries)
