"""Entries of a key index: a hash, the number of the row that has it, and the row's publish day.

Numbers and days never change, whatever files a row is moved to, so neither do entries. A hash of 32 bits is wrong once
in some thousand look-ups of a topic of a million rows, and then says yes: a file is opened for nothing.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple, Self

import mmh3
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

NO_SEQ = -1
"""Of a row without a number, which somebody else has written."""


class Entries(NamedTuple):
    """Entries of any number of rows."""

    hashes: npt.NDArray[np.uint32]
    seqs: npt.NDArray[np.int64]
    days: npt.NDArray[np.int32]

    @classmethod
    def of(cls, rows: pa.Table, column: str) -> Self:
        """The entries of rows by a column of theirs."""
        days = pc.cast(pc.cast(rows["publish_time"], pa.date32()), pa.int32())
        seqs = pc.fill_null(rows["landing_seq"], NO_SEQ)
        return cls(hashes_of(rows[column]), seqs.to_numpy(), pc.fill_null(days, 0).to_numpy())

    @classmethod
    def all_of(cls, parts: Iterable["Entries"]) -> "Entries":
        """All entries of some parts."""
        nothing = Entries(np.empty(0, np.uint32), np.empty(0, np.int64), np.empty(0, np.int32))
        return Entries(*map(np.concatenate, zip(nothing, *parts, strict=True)))

    def without(self, seqs: Collection[int]) -> "Entries":
        """All but those of some rows."""
        if not seqs:
            return self
        is_left = ~np.isin(self.seqs, np.fromiter(seqs, np.int64, len(seqs)))
        return Entries(self.hashes[is_left], self.seqs[is_left], self.days[is_left])

    def packed(self) -> "PackedEntries":
        """The entries in order of landing, each once."""
        order = np.lexsort((self.hashes, self.seqs))
        order = order[_is_first_of_equals(self.seqs[order], self.hashes[order])]
        hashes, seqs, days = self.hashes[order], self.seqs[order], self.days[order]
        distances = np.diff(seqs, prepend=0)
        is_far = (distances < 0) | (distances >= _FAR)
        runs = np.flatnonzero(np.diff(days, prepend=days[:1] + 1))
        return PackedEntries(
            hashes, np.where(is_far, _FAR, distances).astype(np.uint8), distances[is_far], runs, days[runs]
        )


class PackedEntries(NamedTuple):
    """Entries in order of landing: their numbers as distances, of which most are 1, and their days as runs."""

    hashes: npt.NDArray[np.uint32]
    distances: npt.NDArray[np.uint8]
    far: npt.NDArray[np.int64]
    """The distances that do not fit, in their order."""
    runs: npt.NDArray[np.int64]
    """Where another day begins."""
    days: npt.NDArray[np.int32]

    @classmethod
    def all_of(cls, parts: Sequence["PackedEntries"]) -> "PackedEntries":
        """All entries of some parts."""
        return parts[0] if len(parts) == 1 else Entries.all_of(each.unpacked() for each in parts).packed()

    def encoded(self) -> bytes:
        counts = np.array([len(column) for column in self], np.int64)
        return b"".join(column.tobytes() for column in (counts, *self))

    @classmethod
    def decoded(cls, data: bytes) -> "PackedEntries":
        counts, place, columns = np.frombuffer(data, np.int64, len(_COLUMNS)), 8 * len(_COLUMNS), []
        for kind, count in zip(_COLUMNS, counts.tolist(), strict=True):
            columns.append(np.frombuffer(data, kind, count, place))
            place += columns[-1].nbytes
        return cls(*columns)

    def having(self, hashes: npt.NDArray[np.uint32]) -> Entries:
        """Those that have one of these hashes."""
        # Nearly none have: most are told by half of their bits, which takes a look at a small table.
        upper_halves = np.zeros(2**16, np.bool_)
        upper_halves[hashes >> 16] = True
        maybe = np.flatnonzero(upper_halves[self.hashes >> 16])
        return self._at(maybe[np.isin(self.hashes[maybe], hashes)])

    def without(self, seqs: Collection[int]) -> "PackedEntries":
        """All but those of some rows."""
        return self.unpacked().without(seqs).packed() if seqs else self

    def unpacked(self) -> Entries:
        return self._at(np.arange(len(self.hashes)))

    def _at(self, places: npt.NDArray[np.int64]) -> Entries:
        distances = self.distances.astype(np.int64)
        distances[self.distances == _FAR] = self.far
        days = self.days[np.searchsorted(self.runs, places, "right") - 1]
        return Entries(self.hashes[places], np.cumsum(distances)[places], days)


_FAR = 255
_COLUMNS = (np.uint32, np.uint8, np.int64, np.int64, np.int32)


def _is_first_of_equals(*columns: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Whether each entry differs from the one before it in any of these columns."""
    is_first = np.ones(len(columns[0]), np.bool_)
    is_first[1:] = np.any([column[1:] != column[:-1] for column in columns], axis=0)
    return is_first


def hashes_of(values: pa.ChunkedArray) -> npt.NDArray[np.uint32]:
    """The hashes of texts."""
    texts = values.cast(pa.binary()).to_pylist()
    return np.fromiter((mmh3.hash(text or b"", signed=False) for text in texts), np.uint32, len(texts))
