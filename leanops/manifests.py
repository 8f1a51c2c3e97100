"""Manifests that are arranged by topic, in tables that all topics share: who asks for one topic reads a few small ones.

Iceberg puts manifests together by size, whatever is in them: 21,000 files of 700 topics and 30 days are in one. Each
question for a topic's rows had to read all of that, 1 s, and each change of them to write it again, 3 s. Here a
manifest stands for a range of topics, and has about as many files as there are manifests.

A commit adds a manifest for its own topic. Once there are many of these they are sorted into the ranges, in a commit
that changes no row. Whoever is overtaken meanwhile, as is usual in a tick, commits the same manifests again, for as
long as those that they take the place of are still there.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from math import isqrt
from uuid import uuid4

from pyiceberg.conversions import from_bytes
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import ManifestContent, ManifestEntry, ManifestFile, write_manifest, write_manifest_list
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate, AssertRefSnapshotId, SetSnapshotRefUpdate
from pyiceberg.types import StringType

LOOSE = 64
"""So many manifests may stand for no range."""

_LEAST = 100
"""So few files in a manifest are no trouble."""

_ATTEMPTS = 20


def arrange(table: Table) -> bool:
    """Sort the manifests of a table whose first partition field is the topic, if that is worth it; whether it was."""
    head = table.current_snapshot()
    arrangement = _Arrangement.of(table, head) if head else None
    if arrangement is None:
        return False
    for _ in range(_ATTEMPTS):
        with suppress(CommitFailedException):
            if arrangement.commit(table):
                return True
            break
        table.refresh()
    arrangement.remove(table)
    return False


@dataclass(frozen=True)
class _Arrangement:
    """Manifests that hold the same files as those that they take the place of."""

    snapshot_id: int
    replaced: frozenset[str]
    manifests: Sequence[ManifestFile]

    @classmethod
    def of(cls, table: Table, head: Snapshot) -> "_Arrangement | None":
        """What is to be changed, written but not committed; None where little would be."""
        there = _data_manifests(table, head)
        length = max(_LEAST, isqrt(sum(map(_files, there))))
        # What commits have added stands for no range, and what has lost most of its files for one that is too small.
        loose = [each for each in there if each.added_files_count or not length // 4 <= _files(each) <= 4 * length]
        if len(loose) <= LOOSE and all(_files(each) <= 4 * length for each in loose):
            return None
        paths = {each.manifest_path for each in loose}
        ranges = sorted((each for each in there if each.manifest_path not in paths), key=_first_topic)
        firsts = [_first_topic(each) for each in ranges]
        sorted_in: defaultdict[int, list[ManifestEntry]] = defaultdict(list)
        for entry in _entries(table, loose):
            sorted_in[max(bisect_right(firsts, _topic(entry)) - 1, 0)].append(entry)
        snapshot_id, written = table.metadata.new_snapshot_id(), list[ManifestFile]()
        for place, new in sorted_in.items():
            touched = ranges[place : place + 1]
            paths.update(each.manifest_path for each in touched)
            entries = sorted([*_entries(table, touched), *new], key=_topic)
            pieces = (entries[start : start + length] for start in range(0, len(entries), length))
            written += [_written(table, snapshot_id, piece) for piece in pieces]
        return cls(snapshot_id, frozenset(paths), written)

    def commit(self, table: Table) -> bool:
        """Put them in their place, on top of what others have committed; False if they have no place any more."""
        head = table.current_snapshot()
        assert head is not None
        there = head.manifests(table.io)
        if not self.replaced <= {each.manifest_path for each in there}:
            return False
        kept = [each for each in there if each.manifest_path not in self.replaced]
        replaced = sum(_files(each) for each in there if each.manifest_path in self.replaced)
        assert replaced == sum(map(_files, self.manifests)), "A file would be lost, or be there twice."
        place = table.location_provider().new_metadata_location(f"snap-{self.snapshot_id}-{uuid4()}.avro")
        sequence_number = table.metadata.next_sequence_number()
        with write_manifest_list(
            2, table.io.new_output(place), self.snapshot_id, head.snapshot_id, sequence_number, "deflate"
        ) as manifest_list:
            # Each attempt gives them the number of its own commit.
            manifest_list.add_manifests([*deepcopy(self.manifests), *kept])
        totals = head.summary.additional_properties if head.summary else {}
        snapshot = Snapshot(
            snapshot_id=self.snapshot_id,
            parent_snapshot_id=head.snapshot_id,
            sequence_number=sequence_number,
            manifest_list=place,
            summary=Summary(
                Operation.REPLACE, **{name: value for name, value in totals.items() if name.startswith("total-")}
            ),
            schema_id=table.metadata.current_schema_id,
        )
        to_it = SetSnapshotRefUpdate.model_validate(
            {"ref-name": MAIN_BRANCH, "type": SnapshotRefType.BRANCH, "snapshot-id": self.snapshot_id}
        )
        unmoved = AssertRefSnapshotId(ref=MAIN_BRANCH, snapshot_id=head.snapshot_id)
        try:
            table.catalog.commit_table(table, (unmoved,), (AddSnapshotUpdate(snapshot=snapshot), to_it))
        except CommitFailedException:
            table.io.delete(place)
            raise
        return True

    def remove(self, table: Table) -> None:
        """Take back what was written for nothing."""
        for manifest in self.manifests:
            with suppress(OSError):
                table.io.delete(manifest.manifest_path)


def _data_manifests(table: Table, head: Snapshot) -> list[ManifestFile]:
    return [each for each in head.manifests(table.io) if each.content is ManifestContent.DATA]


def _files(manifest: ManifestFile) -> int:
    return (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)


def _entries(table: Table, manifests: Sequence[ManifestFile]) -> Iterator[ManifestEntry]:
    return (entry for each in manifests for entry in each.fetch_manifest_entry(table.io, discard_deleted=True))


def _topic(entry: ManifestEntry) -> str:
    return str(entry.data_file.partition[0])


def _first_topic(manifest: ManifestFile) -> str:
    bound = manifest.partitions[0].lower_bound if manifest.partitions else None
    return str(from_bytes(StringType(), bound)) if bound else ""


def _written(table: Table, snapshot_id: int, entries: Sequence[ManifestEntry]) -> ManifestFile:
    place = table.location_provider().new_metadata_location(f"{uuid4()}-m0.avro")
    with write_manifest(
        2, table.spec(), table.schema(), table.io.new_output(place), snapshot_id, "deflate"
    ) as manifest:
        for entry in entries:
            manifest.existing(entry)
    return manifest.to_manifest_file()
