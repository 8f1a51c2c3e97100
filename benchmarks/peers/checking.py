"""What a table holds against what must stand in it: missing, doubled, outdated, let in, changed."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

from benchmarks.peers.messages import Expected

Row = Mapping[str, object]
"""A row of a table: `idempotency_key`, `message_id`, and whatever number fields the table has."""


@dataclass(frozen=True)
class Found:
    """How a table differs from what must stand in it."""

    rows: int
    missing: int
    doubled: int
    outdated: int
    unknown: int
    """Rows whose key no good message has: broken JSON that was let in."""

    changed: int
    """Numbers that have another value, or none."""

    rewritten: int
    """Numbers of the same value in another notation, as 1.1 for 1.10."""

    changed_by_field: Mapping[str, int]


def check(expected: Expected, rows: Iterable[Row]) -> Found:
    """Compare every row with the version of its key that must stand; the numbers only where the version is right."""
    seen = Counter[str]()
    unknown = outdated = rewritten = total = 0
    changed = Counter[str]()
    for row in rows:
        total += 1
        key = str(row["idempotency_key"])
        record = expected.records.get(key)
        if record is None:
            unknown += 1
            continue
        seen[key] += 1
        if row["message_id"] != record.message_id:
            outdated += 1
            continue
        for field, text in record.numbers.items():
            stored = row.get(field)
            if not _same_value(text, stored):
                changed[field] += 1
            elif str(stored) != text:
                rewritten += 1
    return Found(
        rows=total,
        missing=len(expected.records) - len(seen),
        doubled=seen.total() - len(seen),
        outdated=outdated,
        unknown=unknown,
        changed=changed.total(),
        rewritten=rewritten,
        changed_by_field=dict(changed),
    )


def _same_value(text: str, stored: object) -> bool:
    """Is what a table stores, as a number or as its text, the number that the payload's text is?"""
    try:
        return stored is not None and Decimal(str(stored)) == Decimal(text)
    except InvalidOperation:
        return False
