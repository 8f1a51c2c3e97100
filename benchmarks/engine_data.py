"""RAW tables of any size for the engine's benchmarks, made by whole columns.

Every value follows from a message's number, so that each run builds the same tables. Of every hundred messages of a
history 2 are copies of an earlier message, 4 correct an earlier record (half of them one of an earlier day, once the
history has two days), 1 is broken JSON, and 1 breaks the contract. Ids and keys are scrambled as UUIDs are: their order
says nothing about when they landed, so no statistics of files narrow a search for them.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog

from leanops.contracts.model import Contract
from leanops.raw import landing
from leanops.raw.table import ensure_raw_table

Numbers = npt.NDArray[np.int64]


SHRINK = int(os.environ.get("BENCH_SHRINK", "1"))
"""Divides the sizes of all tables, to try the benchmarks out. What is measured then is not kept."""

CHUNK_ROWS = 250_000
FIRST_MOMENT = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000
DAY = 86_400_000_000

# What a message is, by the last two digits of its number.
_COPIES = (49, 99)
_CORRECTIONS = (12, 37, 62, 87)
_BROKEN_JSON = 73
_BREAKS_CONTRACT = 30
_CUT_AT = 200

_DASHES = (8, 13, 18, 23)
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)


@dataclass(frozen=True)
class History:
    """A topic of so many messages, a multiple of a hundred, published evenly over so many days."""

    topic: str
    messages: int
    days: int

    @property
    def records(self) -> int:
        """How many rows Standardized has: one per record, and none for copies and broken JSON."""
        return self.messages * 93 // 100

    @property
    def contract(self) -> Contract:
        return contract_of(self.topic)

    def published(self, numbers: Numbers) -> Numbers:
        """When each message was published, in microseconds."""
        return FIRST_MOMENT + numbers * (self.days * DAY // self.messages)

    def chunks(self) -> Iterator[pa.Table]:
        """All messages in the order in which they land."""
        for first in range(0, self.messages, CHUNK_ROWS):
            numbers = np.arange(first, min(first + CHUNK_ROWS, self.messages))
            block, place = np.divmod(numbers, 100)
            messages = np.where(np.isin(place, _COPIES), numbers - 30, numbers)
            # Eight records of the block half-way back, so that two blocks' corrections do not meet.
            corrected = block // 2 * 100 + place // 25 * 2 + block % 2
            records = np.where(np.isin(place, _CORRECTIONS), corrected, messages)
            yield raw_rows(self.topic, messages, records, self.published(messages), self.published(numbers))

    def tick(self, number: int, messages: int) -> pa.Table:
        """The `number`th tick after the history: new messages of its newest day, and what reaches back.

        Of every hundred, 2 are copies of messages, and 4 are corrections of records, of random earlier days.
        """
        numbers = self.messages + number * messages + np.arange(messages)
        place = np.arange(messages) % 100
        blocks_before_newest_day = self.messages * (self.days - 1) // self.days // 100
        block = (_scrambled(numbers, salt=3) % np.uint64(blocks_before_newest_day)).astype(np.int64)
        is_copy, is_correction = np.isin(place, _COPIES), np.isin(place, _CORRECTIONS)
        ids = np.where(is_copy, block * 100 + 14 + place % 4, numbers)
        records = np.where(is_correction, block * 100 + 8 + place % 4, ids)
        now = FIRST_MOMENT + (self.days - 1) * DAY + DAY // 2 + number * 60_000_000 + np.arange(messages) * 1_000
        return raw_rows(self.topic, ids, records, np.where(is_copy, self.published(ids), now), now)


def sized(messages: int) -> int:
    """So many messages, or fewer of them where somebody only tries the benchmarks out."""
    return max(messages // SHRINK // 100 * 100, 1_000)


def append_raw(catalog: Catalog, topic: str, rows: pa.Table) -> None:
    """Append rows to RAW in one commit, as a landing does."""
    landing.append_raw(ensure_raw_table(catalog, topic), [rows], {})


def land_history(catalog: Catalog, history: History) -> None:
    """Make the topic's RAW table."""
    for chunk in history.chunks():
        append_raw(catalog, history.topic, chunk)


def raw_rows(topic: str, messages: Numbers, records: Numbers, published: Numbers, landed: Numbers) -> pa.Table:
    """RAW's columns but for `landing_seq`: message number `messages[i]` is a version of record number `records[i]`."""
    return pa.table(
        {
            "message_id": _uuids(messages),
            "topic_name": pa.repeat(topic, len(messages)),
            "json_payload": _payloads(messages, records, published),
            "ingestion_ts": pa.array(landed // 1_000_000 + 5),
            "publish_time": pa.array(published).cast(pa.timestamp("us", "UTC")),
            "idempotency_key": pa.nulls(len(messages), pa.string()),
        }
    )


def contract_of(topic: str) -> Contract:
    """Ten of the payload's fields, two of them Critical Data Elements."""
    types = {
        "event_timestamp": "TIMESTAMP",
        "event_userid": "STRING",
        "event_eventtype": "STRING",
        "event_metadata_ipaddress": "STRING",
        "event_metadata_deviceid": "STRING",
        "amount": "DECIMAL(18,2)",
        "currency": "STRING",
        "quantity": "BIGINT",
        "gift": "BOOLEAN",
        "deliverydate": "DATE",
    }
    return Contract.model_validate(
        {
            "table_name": topic,
            "envelope_columns": [{"name": "idempotency_key", "source": "_metadata.idempotencyKeyResource"}],
            "payload_columns": [
                {"name": name, "type": kind, "cde": name in ("event_timestamp", "event_userid")}
                for name, kind in types.items()
            ],
        }
    )


def _payloads(messages: Numbers, records: Numbers, published: Numbers) -> pa.Array:
    """Compact JSON of 14 fields on up to two levels below the top, about 360 bytes."""
    place = messages % 100
    breaks_contract = place == _BREAKS_CONTRACT
    # Two ways to break it, in turns: an amount that is no number, and a missing Critical Data Element.
    is_odd = messages // 100 % 2 == 1
    whole = _joined(
        '{"_metadata":{"idempotencyKeyResource":"',
        _hex(_scrambled(records, salt=2)),
        '","correlationId":"c-',
        _texts(messages * 6101 % 100_000),
        '"},"event":{"timestamp":"',
        _moments(published),
        '","userId":',
        pc.if_else(pa.array(breaks_contract & is_odd), '""', _joined('"u-', _texts(messages * 7919 % 50_000), '"')),
        ',"eventType":"',
        _chosen(("purchase", "refund", "exchange", "purchase"), messages),
        '","metadata":{"ipAddress":"203.0.113.',
        _texts(messages % 254 + 1),
        '","deviceId":"d-',
        _texts(messages * 104_729 % 900_000),
        '","userAgent":"shop/4.2"}},"amount":',
        pc.if_else(pa.array(breaks_contract & ~is_odd), '"n/a"', _amounts(messages * 31 % 1_000_000)),
        ',"currency":"',
        _chosen(("EUR", "EUR", "USD", "CHF", "GBP"), messages),
        '","quantity":',
        _texts(messages % 9 + 1),
        ',"gift":',
        _chosen(("false", "false", "true"), messages),
        ',"items":["sku-',
        _texts(messages * 13 % 4_000),
        '"],"deliveryDate":"',
        pc.utf8_slice_codeunits(_moments(published + 3 * DAY), 0, 10),
        '"}',
    )
    cut = pc.utf8_slice_codeunits(whole, 0, _CUT_AT)
    return pc.if_else(pa.array(place == _BROKEN_JSON), cut, whole)


def _joined(*pieces: pa.Array | str) -> pa.Array:
    return pc.binary_join_element_wise(*pieces, "")


def _texts(numbers: Numbers) -> pa.Array:
    return pa.array(numbers).cast(pa.string())


def _amounts(cents: Numbers) -> pa.Array:
    return _joined(_texts(cents // 100), ".", pc.utf8_lpad(_texts(cents % 100), 2, "0"))


def _moments(microseconds: Numbers) -> pa.Array:
    """Moments as `2026-01-14T08:15:00.123Z`."""
    texts = pa.array(microseconds // 1000).cast(pa.timestamp("ms")).cast(pa.string())
    return _joined(pc.binary_replace_slice(texts, 10, 11, "T"), "Z")


def _chosen(options: Sequence[str], numbers: Numbers) -> pa.Array:
    return pa.array(options).take(pa.array(numbers % len(options)))


def _uuids(numbers: Numbers) -> pa.Array:
    digits = np.concatenate([_hex_digits(_scrambled(numbers, salt)) for salt in (0, 1)], axis=1)
    places = np.setdiff1d(np.arange(36), _DASHES)
    signs = np.full((len(numbers), 36), ord("-"), np.uint8)
    signs[:, places] = digits
    return _fixed_width(signs)


def _hex(numbers: npt.NDArray[np.uint64]) -> pa.Array:
    return _fixed_width(_hex_digits(numbers))


def _hex_digits(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint8]:
    octets = numbers.view(np.uint8).reshape(-1, 8)
    return _HEX[np.stack([octets >> 4, octets & 15], axis=2).reshape(-1, 16)]


def _fixed_width(signs: npt.NDArray[np.uint8]) -> pa.Array:
    count, width = signs.shape
    offsets = np.arange(0, (count + 1) * width, width, dtype=np.int32)
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(signs)))


def _scrambled(numbers: Numbers, salt: int) -> npt.NDArray[np.uint64]:
    """SplitMix64: another number for each, without order and without twins."""
    mixed = (numbers.astype(np.uint64) + np.uint64(salt << 40)) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
