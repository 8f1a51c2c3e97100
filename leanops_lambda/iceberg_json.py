"""Rows as a Firehose reads them for an Iceberg table: one JSON object each, moments in microseconds since 1970."""

from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def iceberg_json(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row with its moments and days as the numbers that Iceberg keeps them as."""
    return {column: _number(value) for column, value in row.items()}


def _number(value: object) -> object:
    match value:
        case datetime():
            # In whole numbers: as seconds, a double would lose microseconds.
            return (value - _EPOCH) // timedelta(microseconds=1)
        case date():
            return (value - _EPOCH.date()).days
        case _:
            return value
