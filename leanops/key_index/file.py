"""A key index in files: Puffin, Iceberg's own format for what is known of a table beside its rows.

An index has one file, or two: what came last is in a small one that each build writes anew, and names the large one
that has all before it. Reading is PyIceberg's; it does not write Puffin.
"""

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import zstandard
from pydantic import ValidationError
from pyiceberg.io import FileIO
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.puffin import MAGIC_BYTES, PuffinFile
from pyiceberg.table.statistics import StatisticsFile

from leanops.data_files import new_file
from leanops.key_index.entries import Entries, PackedEntries

PREFIX = "keys-"
"""How the name of an index file begins: other engines put statistics of their own beside it."""

MOST_YOUNG = 50_000
"""So many entries are written anew with every build, some 200 KB; then they are put together with all others."""

ENTRY_BYTES = 4
"""What an entry takes, and a little more."""

_BLOB_ENTRIES = 1_000_000


class Kind(StrEnum):
    """What is looked up; and the column that it is in, of RAW and of the layers after it."""

    ID = "message_id"
    KEY = "idempotency_key"


class KeyIndexUnreadable(Exception):
    """A file of an index is missing or damaged: whoever asks has to read the tables."""


@dataclass(frozen=True)
class KeyFile:
    """A file of an index that was written, to be committed with the table that it is of."""

    path: str
    size: int
    footer_size: int
    base: str | None
    """The file that has all older entries."""

    def statistics_of(self, snapshot_id: int) -> StatisticsFile:
        """How a snapshot names it."""
        named = {
            "snapshot-id": snapshot_id,
            "statistics-path": self.path,
            "file-size-in-bytes": self.size,
            "file-footer-size-in-bytes": self.footer_size,
            # PyIceberg 0.12 takes no other kinds of blobs here than two of Iceberg's own; the file itself names them.
            "blob-metadata": [],
        }
        return StatisticsFile.model_validate(named)


@dataclass(frozen=True)
class KeyIndex:
    """The entries of a topic up to a number: ids of all its messages, keys of all rows of Standardized."""

    upto: int
    entries: Mapping[Kind, Sequence[PackedEntries]]
    base: str | None = None
    """The file that has all older ones."""
    gone: frozenset[int] = frozenset()
    """The rows, by their numbers, that later versions have replaced in Standardized: their keys are there no longer."""

    @classmethod
    def read(cls, io: FileIO, path: str) -> "KeyIndex":
        """What one file has. `KeyIndexUnreadable` if it is not as it was written."""
        try:
            with io.new_input(path).open() as stream:
                file = PuffinFile(stream.read())
            said = file.footer.properties
            if said["check"] != _check(said, [blob.model_dump(by_alias=True) for blob in file.footer.blobs]):
                raise KeyIndexUnreadable(f"{path} is damaged.")
            blobs = [(Kind(blob.type.removeprefix(PREFIX)), file.get_blob_payload(blob)) for blob in file.footer.blobs]
        except (OSError, ValueError, LookupError, ValidationError, zstandard.ZstdError) as error:
            raise KeyIndexUnreadable(f"{path} cannot be read: {error}") from error
        entries = {kind: [PackedEntries.decoded(data) for each, data in blobs if each is kind] for kind in Kind}
        return cls(int(said["upto"]), entries, said["base"] or None, frozenset(json.loads(said["gone"])))

    def whole(self, io: FileIO) -> "KeyIndex":
        """The same with all older entries."""
        if self.base is None:
            return self
        older = KeyIndex.read(io, self.base).whole(io)
        entries = {kind: [*older.entries[kind], *self.entries[kind]] for kind in Kind}
        return KeyIndex(self.upto, entries, gone=self.gone | older.gone)

    def put_together(self, io: FileIO) -> "KeyIndex":
        """The same as one file has it, without the keys of rows that are gone."""
        whole = self.whole(io)
        keys = [each.without(whole.gone) for each in whole.entries[Kind.KEY]]
        return KeyIndex(self.upto, {Kind.ID: whole.entries[Kind.ID], Kind.KEY: keys})

    def having(self, kind: Kind, hashes: "npt.NDArray[np.uint32]") -> Entries:
        """The entries that have one of these hashes."""
        found = Entries.all_of(each.having(hashes) for each in self.entries[kind])
        return found.without(self.gone) if kind is Kind.KEY else found

    def extended(self, more: Mapping[Kind, Sequence[Entries]], gone: Iterable[int], upto: int) -> "KeyIndex":
        """The index with further entries, and some rows gone."""
        entries = {kind: [*self.entries[kind], *(each.packed() for each in more[kind])] for kind in Kind}
        return replace(self, upto=upto, entries=entries, gone=self.gone.union(gone))

    @property
    def count(self) -> int:
        return sum(len(each.hashes) for parts in self.entries.values() for each in parts)

    def write(self, io: FileIO, table: TableMetadata) -> KeyFile:
        """Write it beside the metadata of a table."""
        place = load_location_provider(table.location, table.properties).new_metadata_location(
            f"{PREFIX}{uuid4()}.stats"
        )
        blobs, offset = [], len(MAGIC_BYTES)
        with new_file(io, place) as stream:
            stream.write(MAGIC_BYTES)
            for kind, data in self._blobs():
                stream.write(data)
                said = {"type": f"{PREFIX}{kind}", "fields": [], "snapshot-id": -1, "sequence-number": -1}
                blobs.append({**said, "offset": offset, "length": len(data), "compression-codec": "zstd"})
                offset += len(data)
            properties = {"upto": str(self.upto), "base": self.base or "", "gone": json.dumps(sorted(self.gone))}
            properties["check"] = _check(properties, blobs)
            footer = json.dumps({"blobs": blobs, "properties": properties}).encode()
            end = len(footer).to_bytes(4, "little") + bytes(4) + MAGIC_BYTES
            stream.write(MAGIC_BYTES + footer + end)
        footer_size = len(MAGIC_BYTES) + len(footer) + len(end)
        return KeyFile(place, offset + footer_size, footer_size, self.base)

    def _blobs(self) -> Iterator[tuple[Kind, bytes]]:
        # Each says by itself whether it was damaged.
        compressor = zstandard.ZstdCompressor(level=1, write_checksum=True)
        for kind, parts in self.entries.items():
            for together in _in_blobs(parts):
                whole = (
                    together[0]
                    if len(together) == 1
                    else Entries.all_of(map(PackedEntries.unpacked, together)).packed()
                )
                yield kind, compressor.compress(whole.encoded())


NOTHING = KeyIndex(0, dict.fromkeys(Kind, ()))
"""The index of a topic that has not landed anything yet."""


@dataclass(frozen=True)
class IndexUpdate:
    """How a build changes the index of its topic."""

    previous: StatisticsFile | None
    """The last file of the index; None for one that begins."""
    upto: int
    is_put_together: bool = False
    """Whether all entries go to one file: rows that had gone may come back when days are made anew."""
    most_young: int = field(default_factory=lambda: MOST_YOUNG)

    def write(
        self, io: FileIO, table: TableMetadata, more: Mapping[Kind, Sequence[Entries]], gone: Sequence[int] = ()
    ) -> KeyFile | None:
        """Write the index with further entries, and some rows gone; nothing, if what it goes on from cannot be read.

        A large file is left as it is, and gone on from by a small one. What has become too many entries for a small
        one is put together with all others.
        """
        try:
            before = self._before(io)
            index = (before.put_together(io) if self.is_put_together else before).extended(more, gone, self.upto)
            has_many = index.base is not None and index.count + len(index.gone) > self.most_young
            return (index.put_together(io) if has_many else index).write(io, table)
        except KeyIndexUnreadable:
            return None

    def _before(self, io: FileIO) -> KeyIndex:
        if self.previous is None:
            return NOTHING
        path = self.previous.statistics_path
        is_large = self.previous.file_size_in_bytes > self.most_young * ENTRY_BYTES
        return replace(NOTHING, base=path) if is_large else KeyIndex.read(io, path)


def _in_blobs(parts: Iterable[PackedEntries]) -> Iterator[list[PackedEntries]]:
    """Parts that are written together: small ones as one, and none that are larger than need be in memory at once."""
    together: list[PackedEntries] = []
    for part in parts:
        together.append(part)
        if sum(len(each.hashes) for each in together) >= _BLOB_ENTRIES:
            yield together
            together = []
    if together:
        yield together


def _check(said: Mapping[str, str], blobs: Sequence[Mapping[str, object]]) -> str:
    """What changes when any of what a footer says does. The blobs have checks of their own."""
    places = [[blob[name] for name in ("type", "offset", "length", "compression-codec")] for blob in blobs]
    return str(zlib.crc32(json.dumps([said["upto"], said["base"], said["gone"], places]).encode()))
