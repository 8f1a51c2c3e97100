"""The messages that all systems get, as files of envelopes, and what must stand in a table afterwards.

They are a `History` (copies, corrections, broken JSON), and four of every hundred carry one more number that does not
fit a double, or not in its notation. What must stand is worked out from the messages alone, with Python's JSON.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.engine_data import History, sized

MESSAGES = sized(200_000)
WARM_MESSAGES = sized(20_000)
DAYS = 3

NUMBERS = {
    22: ("serial", "9876543210{:020}"),
    44: ("rate", "1234567.{:018}"),
    55: ("price", "{}.10"),
    66: ("extreme", "{}e400"),
}
"""Fields of odd numbers, by the last two digits of the message's number: 30 digits, 25 digits, a zero at the end, and
more than a double holds."""

NUMBER_FIELDS = ("amount", "quantity", *(field for field, _ in NUMBERS.values()))


@dataclass(frozen=True)
class Files:
    """Two halves of the messages, to be loaded one after the other, and fewer messages of another table for warmth."""

    warm: tuple[Path, Path]
    halves: tuple[Path, Path]


@dataclass(frozen=True)
class Record:
    """The version of a record that stands, with the text of its numbers."""

    message_id: str
    numbers: dict[str, str]


@dataclass(frozen=True)
class Expected:
    """What must stand, by key, and how many messages have no key because their JSON is broken."""

    records: dict[str, Record]
    broken: int


class _Number(str):
    """The text of a number as it stands in a payload."""

    __slots__ = ()


def write_files(folder: Path) -> Files:
    """Make the files of both histories."""
    return Files(
        _write(folder / "warm", History("warm", WARM_MESSAGES, DAYS)),
        _write(folder / "messages", History("orders", MESSAGES, DAYS)),
    )


def what_must_stand(files: Iterable[Path]) -> Expected:
    """Of each key the latest version, by `publish_time`."""
    latest: dict[str, tuple[tuple[str, int, str], dict[str, Any]]] = {}
    broken = 0
    for envelope in _envelopes(files):
        try:
            payload = json.loads(envelope["payload"], parse_float=_Number, parse_int=_Number)
        except ValueError:
            broken += 1
            continue
        key = payload["_metadata"]["idempotencyKeyResource"]
        version = (envelope["publish_time"], envelope["ingestion_ts"], envelope["message_id"])
        if key not in latest or latest[key][0] < version:
            latest[key] = version, payload
    return Expected(
        {key: Record(version[2], _numbers_of(payload)) for key, (version, payload) in latest.items()}, broken
    )


def _numbers_of(payload: dict[str, Any]) -> dict[str, str]:
    return {field: str(payload[field]) for field in NUMBER_FIELDS if isinstance(payload.get(field), _Number)}


def _envelopes(files: Iterable[Path]) -> Iterator[dict[str, Any]]:
    for file in files:
        with file.open() as lines:
            yield from map(json.loads, lines)


def _write(folder: Path, history: History) -> tuple[Path, Path]:
    folder.mkdir(parents=True)
    rows = pa.concat_tables(list(history.chunks()))
    halves = folder / "first.ndjson", folder / "second.ndjson"
    half = len(rows) // 2
    for number, file in enumerate(halves):
        with file.open("w") as lines:
            for place, row in enumerate(rows.slice(number * half, half).to_pylist(), start=number * half):
                lines.write(json.dumps(_envelope(place, row)) + "\n")
    return halves


def _envelope(number: int, row: dict[str, Any]) -> dict[str, Any]:
    return {
        "message_id": row["message_id"],
        "publish_time": row["publish_time"].isoformat(timespec="microseconds").replace("+00:00", "Z"),
        "ingestion_ts": row["ingestion_ts"],
        "payload": _with_odd_number(number, row["json_payload"]),
    }


def _with_odd_number(number: int, payload: str) -> str:
    if number % 100 not in NUMBERS:
        return payload
    field, form = NUMBERS[number % 100]
    return f'{payload.removesuffix("}")},"{field}":{form.format(number)}}}'
