"""The tables against what they must hold: every difference, with the messages that it is about."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from typing import TypeVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, EqualTo, IsNull

from leanops.errors import Problem
from leanops.injector.expectation import DayCounts, Expectation
from leanops.names import Layer, table
from leanops.raw.dead_letters import DEAD_LETTERS
from leanops.tables import find_table

SHOWN = 20
"""How many messages of a difference are named."""

Row = TypeVar("Row", bound=Hashable)
Pair = tuple[str, str]
_ALL_ROWS = AlwaysTrue()


@dataclass(frozen=True)
class _Rows:
    """What a table holds of a topic."""

    keys: Sequence[str]
    ids: Sequence[str]
    days: Counter[date]


def compare(expected: Iterable[Expectation], catalog: Catalog) -> list[Problem]:
    """All that the tables do not hold as they must."""
    return [problem for each in expected for problem in _of_topic(each, catalog)]


def _of_topic(expected: Expectation, catalog: Catalog) -> Iterator[Problem]:
    topic = expected.topic
    copies, raw = _raw(catalog, topic)
    yield from _differences(topic, "RAW", raw.ids, expected.raw, str)
    yield from _dead_letters(expected, catalog)
    if not expected.has_contract:
        yield from _counts(expected, {"raw": raw.days})
        return

    standardized = _rows(catalog, Layer.STANDARDIZED, topic)
    parse_errors = _rows(catalog, Layer.PARSE_ERRORS, topic, EqualTo(term="topic_name", value=topic))
    curated = _rows(catalog, Layer.CURATED, topic)
    is_open = And(EqualTo(term="topic_name", value=topic), IsNull(term="closed"))
    errors = _rows(catalog, Layer.ERRORS, topic, is_open)
    yield from _differences(topic, "parse_errors", parse_errors.ids, expected.parse_errors, str)
    for name, rows, wanted in (
        ("Standardized", standardized, expected.standardized),
        ("Curated", curated, expected.curated),
        ("errors", errors, expected.open_errors),
    ):
        yield from _differences(topic, name, zip(rows.keys, rows.ids, strict=True), wanted.items(), _record)
    yield from _new_columns(expected, catalog)
    # What is left of RAW is superseded, so it is right when these are.
    yield from _counts(
        expected,
        {
            "raw": raw.days,
            "standardized": standardized.days,
            "parse_errors": parse_errors.days,
            "duplicates": copies,
            "curated": curated.days,
            "open_errors": errors.days,
        },
    )


def _raw(catalog: Catalog, topic: str) -> tuple[Counter[date], _Rows]:
    """The rows of RAW, and on which days copies lie of messages that had landed already."""
    found = _scan(catalog, table(Layer.RAW, topic), ("message_id", "publish_time", "landing_seq"))
    if found is None:
        return Counter(), _Rows((), (), Counter())
    found = found.sort_by("landing_seq")
    ids, days = found["message_id"].to_pylist(), _days(found)
    seen: set[str] = set()
    copies: Counter[date] = Counter()
    for name, day in zip(ids, days, strict=True):
        if name in seen:
            copies[day] += 1
        seen.add(name)
    return copies, _Rows((), ids, Counter(days))


def _rows(catalog: Catalog, layer: Layer, topic: str, rows: BooleanExpression = _ALL_ROWS) -> _Rows:
    found = _scan(catalog, table(layer, topic), ("idempotency_key", "message_id", "publish_time"), rows)
    if found is None:
        return _Rows((), (), Counter())
    return _Rows(found["idempotency_key"].to_pylist(), found["message_id"].to_pylist(), Counter(_days(found)))


def _scan(
    catalog: Catalog,
    identifier: tuple[str, str],
    columns: tuple[str, ...],
    rows: BooleanExpression = _ALL_ROWS,
) -> pa.Table | None:
    found = find_table(catalog, identifier)
    return found and found.scan(rows, selected_fields=columns).to_arrow()


def _days(rows: pa.Table) -> list[date]:
    days: list[date] = pc.cast(rows["publish_time"], pa.date32()).to_pylist()
    return days


def _dead_letters(expected: Expectation, catalog: Catalog) -> Iterator[Problem]:
    """Each must have come to the table, whatever has become of it there. Nothing else may be open."""
    found = _scan(catalog, DEAD_LETTERS, ("body_sha256", "closed"), EqualTo(term="topic_name", value=expected.topic))
    letters = found.to_pylist() if found else []
    came = {letter["body_sha256"] for letter in letters}
    still_open = {letter["body_sha256"] for letter in letters if letter["closed"] is None}
    due = expected.dead_letters
    yield from _differences(
        expected.topic,
        "dlq_errors",
        sorted(came & set(due) | still_open),
        list(due),
        lambda body: f"{body} ({due[body]})" if body in due else body,
    )


def _new_columns(expected: Expectation, catalog: Catalog) -> Iterator[Problem]:
    found = find_table(catalog, table(Layer.STANDARDIZED, expected.topic))
    there = set(found.schema().column_names) if found else set()
    if missing := [name for name in expected.new_columns if name not in there]:
        names = ", ".join(missing)
        yield Problem(expected.topic, f"Standardized lacks the columns {names}.", found="none", allowed=names)


def _differences(
    topic: str, name: str, found: Iterable[Row], wanted: Iterable[Row], told: Callable[[Row], str]
) -> Iterator[Problem]:
    held, due = Counter(found), Counter(wanted)
    for rows, what in ((due - held, "lacks"), (held - due, "has, and must not have,")):
        if rows:
            names = ", ".join(told(row) for row in list(rows.elements())[:SHOWN])
            more = f", and {rows.total() - SHOWN:,} more" if rows.total() > SHOWN else ""
            yield Problem(
                topic,
                f"{name} {what} {_counted(rows.total())}: {names}{more}.",
                found=_counted(held.total()),
                allowed=_counted(due.total()),
            )


def _counts(expected: Expectation, found: dict[str, Counter[date]]) -> Iterator[Problem]:
    days = {*expected.days, *(day for counts in found.values() for day in counts)}
    for day in sorted(days):
        wanted = msgspec.structs.asdict(expected.days.get(day, DayCounts()))
        for name, counts in found.items():
            if counts[day] != wanted[name]:
                yield Problem(
                    f"{expected.topic} {day}",
                    f"{name} is {counts[day]:,}, and must be {wanted[name]:,}.",
                    found=f"{counts[day]:,}",
                    allowed=f"{wanted[name]:,}",
                )


def _record(pair: Pair) -> str:
    key, message_id = pair
    return f"{key} by {message_id}"


def _counted(rows: int) -> str:
    return "1 row" if rows == 1 else f"{rows:,} rows"
