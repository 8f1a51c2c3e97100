"""What the tables must hold, in plain Python over dicts: slow, and obviously right."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from leanops.standardized.flatten_plan import FlattenPlan, Path
from tests.cases.payloads import verdict

ARRAY = "[array]"
"""Stands for an array's text in the oracle's leaves; its exact text is compared by cases of its own."""


class _Number(str):
    """A number as it was written."""


@dataclass(frozen=True)
class Message:
    """A row of RAW."""

    message_id: str
    payload: str
    publish_time: datetime
    ingestion_ts: int
    landing_seq: int
    idempotency_key: str | None = None


@dataclass
class Standardized:
    """The tables that a history gives: rows by key, and the ids of the messages that could not be read."""

    plan: FlattenPlan
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    duplicates: int = 0
    superseded: int = 0


def leaves(payload: bytes) -> dict[Path, str] | None:
    """A payload's leaves by Python's own parser, or None if it must be refused."""
    try:
        text = payload.decode()
        value = json.loads(
            text,
            object_pairs_hook=lambda pairs: ("object", pairs),
            parse_int=_Number,
            parse_float=_Number,
            parse_constant=float,
        )
        json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, tuple) or not verdict(text):
        return None
    found: dict[Path, str] = {}
    return found if _walk((), value[1], found) else None


def _walk(path: Path, members: list[tuple[str, Any]], found: dict[Path, str]) -> bool:
    """Note the leaves of an object; False if it gives a name twice."""
    if len({name for name, _ in members}) != len(members):
        return False
    for name, value in members:
        if isinstance(value, tuple):
            if not _walk((*path, name), value[1], found):
                return False
        elif isinstance(value, list):
            found[*path, name] = ARRAY
        elif value is not None:
            found[*path, name] = str(value).lower() if isinstance(value, bool) else str(value)
    return True


def standardized(messages: Iterable[Message], envelope: Mapping[str, Path], plan: FlattenPlan) -> Standardized:
    """FIFO on message_id, parse, flatten, map the envelope, LIFO on idempotency_key."""
    firsts: dict[str, Message] = {}
    result = Standardized(plan)
    for message in sorted(messages, key=lambda each: each.landing_seq):
        if firsts.setdefault(message.message_id, message) is not message:
            result.duplicates += 1
    parsed = [(message, leaves(message.payload.encode("utf-8", "surrogatepass"))) for message in firsts.values()]
    result.refused = {message.message_id for message, found in parsed if found is None}
    good = [(message, found) for message, found in parsed if found is not None]
    result.plan = plan.extended(path for _, found in good for path in found)
    names = {column.path: column.name for column in result.plan.columns}

    versions: dict[str, tuple[datetime, int, str]] = {}
    for message, found in good:
        in_payload = found.get(envelope.get("idempotency_key", ()), "")
        candidates = (in_payload, message.idempotency_key or "", message.message_id)
        key = next(each for each in candidates if each.strip(" "))
        version = (message.publish_time, message.ingestion_ts, message.message_id)
        if key in versions:
            result.superseded += 1
        if key not in versions or versions[key] < version:
            versions[key] = version
            result.rows[key] = {
                **{name: found.get(path) for path, name in names.items()},
                "message_id": message.message_id,
                "overflow": {path: text for path, text in found.items() if path not in names},
            }
    return result
