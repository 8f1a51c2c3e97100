"""Arrow string arrays from raw JSON texts, by whole columns and from buffers only.

`pa.array(list)` would import pandas, which costs a new Spark worker 1.6 s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import Raw

Text = Raw | bytes

_QUOTE, _BACKSLASH, _NULL = b'"'[0], b"\\"[0], b"n"[0]
_read_string = msgspec.json.Decoder(str).decode


@dataclass(frozen=True)
class Measured:
    """A column of raw texts joined: its bytes, the length of each text and its first sign (0 for an absent one)."""

    data: np.ndarray
    lengths: np.ndarray
    first: np.ndarray

    @classmethod
    def of(cls, texts: Sequence[Text]) -> Measured:
        # No JSON text holds a raw NUL, so it can mark where each ends; msgspec's Raw has no length of its own.
        joined = np.frombuffer(b"\0".join([*texts, b""]), np.uint8)
        ends = np.flatnonzero(joined == 0)
        lengths = np.diff(ends, prepend=-1) - 1
        return cls(joined, lengths, joined[ends - lengths])


def text_array(texts: Sequence[Text], measured: Measured) -> pa.Array:
    """The column's values: strings decoded, everything else as written, null and absent as NULL."""
    is_string = measured.first == _QUOTE
    lengths, joined = measured.lengths, measured.data
    ends = np.cumsum(lengths + 1) - 1
    if (joined == _BACKSLASH).any():
        escaped = np.unique(np.searchsorted(ends, np.flatnonzero(joined == _BACKSLASH)))
        texts, lengths = list(texts), lengths.copy()
        for i in escaped[is_string[escaped]].tolist():
            decoded = b'"' + _read_string(texts[i]).encode() + b'"'
            texts[i], lengths[i] = decoded, len(decoded)
        joined = np.frombuffer(b"\0".join(texts) + b"\0", np.uint8)
        ends = np.cumsum(lengths + 1) - 1
    keep = np.ones(len(joined), bool)
    keep[ends] = False
    keep[ends[is_string] - 1] = False
    keep[ends[is_string] - lengths[is_string]] = False
    valid = (lengths > 0) & (measured.first != _NULL)
    return string_array(lengths - 2 * is_string, valid, joined[keep])


def string_array(lengths: np.ndarray, valid: np.ndarray, data: bytes | np.ndarray) -> pa.Array:
    """Texts of these lengths, one after the other in `data`."""
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.StringArray.from_buffers(len(lengths), pa.py_buffer(offsets), pa.py_buffer(data), bitmap(valid))


def bitmap(valid: np.ndarray) -> pa.Buffer:
    """Arrow's way to say which values are there."""
    return pa.py_buffer(np.packbits(valid, bitorder="little"))


def lengths_of(payloads: pa.Array) -> np.ndarray:
    """The length of each payload, in bytes."""
    if not len(payloads):
        return np.zeros(0, np.int32)
    offsets = np.frombuffer(payloads.buffers()[1], np.int32)[payloads.offset : payloads.offset + len(payloads) + 1]
    return np.diff(offsets)


def is_utf8(payloads: pa.Array) -> bool:
    """Whether a whole batch is text."""
    try:
        payloads.view(pa.string()).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True
