"""The story of a dead letter: when it came, why it could not land, what would heal it, what became of it."""

from collections.abc import Collection, Iterator
from datetime import datetime
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.expressions import And, BooleanExpression, EqualTo, In, Or

from leanops.ingestion.faults import Fault
from leanops.raw.dead_letters import DEAD_LETTERS, Outcome
from leanops.tables import find_table

Row = dict[str, Any]
_NAMES = ("message_id", "idempotency_key", "dead_letter_id")


def letters_called(catalog: Catalog, wanted: str, only: Collection[str] = ()) -> list[Row]:
    """The dead letters of all topics, or `only` of some, that are called so; the oldest first."""
    held = find_table(catalog, DEAD_LETTERS)
    if held is None:
        return []
    where: BooleanExpression = Or(*(EqualTo(term=name, value=wanted) for name in _NAMES))
    if only:
        where = And(where, In(term="topic_name", literals=set(only)))
    rows: list[Row] = held.scan(row_filter=where).to_arrow().sort_by([("received", "ascending")]).to_pylist()
    return rows


def letter_story(letter: Row) -> Iterator[tuple[str, Row]]:
    """What happened to a dead letter, in words, each with the facts that it is told from."""
    own_id, came = letter["dead_letter_id"], _moment(letter["received"])
    why = f"{letter['fault']}: {letter['reason']}"
    yield (
        f"came from {letter['source']} and became dead letter {own_id} at {came}, {why}",
        {
            "dead_letter_id": own_id,
            "message_id": letter["message_id"],
            "day": letter["day"],
            "received": came,
            "fault": letter["fault"],
            "reason": letter["reason"],
            "receives": letter["receives"],
        },
    )
    yield (
        f"its body, {letter['body_bytes']:,} bytes as they came, was put to {letter['body_archive']}",
        {"body_archive": letter["body_archive"], "body_sha256": letter["body_sha256"]},
    )
    facts = {"outcome": letter["outcome"], "replays": letter["replays"], "note": letter["note"]}
    match letter["outcome"]:
        case None:
            yield f"is open{_attempts(letter)}", facts
            yield f"would be healed by `leanops dlq replay {own_id}`{_healed(letter)}", {}
        case Outcome.REPLAYED:
            yield f"was brought to RAW as {letter['message_id']} at {_moment(letter['closed'])}{_noted(letter)}", facts
        case _:
            yield f"was {letter['outcome']} at {_moment(letter['closed'])}{_noted(letter)}", facts


def _attempts(letter: Row) -> str:
    times = letter["replays"] or 0
    if not times:
        return ": nobody has replayed or discarded it"
    return f", after {'one attempt' if times == 1 else f'{times} attempts'} to replay it{_noted(letter)}"


def _healed(letter: Row) -> str:
    if letter["fault"] == Fault.MALFORMED:
        return " --with a file that holds its body, mended; or by a new message of its producer"
    return ", once what made it fail is mended"


def _noted(letter: Row) -> str:
    return f": {letter['note']}" if letter["note"] else ""


def _moment(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds")
