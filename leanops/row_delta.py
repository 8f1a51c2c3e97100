"""Commits that bring files of deleted positions: PyIceberg 0.12 reads these, and has no way to commit them.

Its producers of snapshots are taken as they are, but for one thing: files of deleted positions go to manifests of their
own, which say so. The other way is Spark's DELETE on a branch, a second for each topic and layer, and three commits.
"""

from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriterV2,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Transaction
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update.snapshot import _MergeAppendFiles, _OverwriteFiles, _SnapshotProducer

_MANY_MANIFESTS = 20
"""So many manifests of deletes are put together: each is a file to be read by whoever plans."""


class _DeleteManifestWriter(ManifestWriterV2):
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


class _WithDeletes(_SnapshotProducer):  # type: ignore[type-arg]
    def _manifests(self) -> list[ManifestFile]:
        files = self._added_data_files
        self._added_data_files = [file for file in files if file.content is DataFileContent.DATA]
        manifests = super()._manifests()
        # What is written down of the commit counts all of them.
        self._added_data_files = files
        new = [_added(file, self.snapshot_id) for file in files if file.content is not DataFileContent.DATA]
        return self._with_deleted(manifests, new) if new else manifests

    def _with_deleted(self, manifests: list[ManifestFile], new: list[ManifestEntry]) -> list[ManifestFile]:
        """Manifests, and one of what is deleted now; with what was before, where that has come to be many manifests."""
        spec_id = self._transaction.table_metadata.default_spec_id
        earlier = [
            each for each in manifests if each.content is ManifestContent.DELETES and each.partition_spec_id == spec_id
        ]
        merged = earlier if len(earlier) >= _MANY_MANIFESTS else []
        with self._new_delete_writer(self.spec(spec_id)) as writer:
            for entry in new:
                writer.add_entry(entry)
            for manifest in merged:
                for entry in self.fetch_manifest_entry(manifest):
                    writer.add_entry(_existing(entry))
        return [*(each for each in manifests if each not in merged), writer.to_manifest_file()]

    def _new_delete_writer(self, spec: PartitionSpec) -> _DeleteManifestWriter:
        output = self.new_manifest_output()
        return _DeleteManifestWriter(spec, self.schema(), output, self.snapshot_id, self._compression)


class _Append(_WithDeletes, _MergeAppendFiles):
    pass


class _Overwrite(_WithDeletes, _OverwriteFiles):
    pass


def row_delta(
    transaction: Transaction, properties: dict[str, str], added: list[DataFile], dropped: list[DataFile]
) -> int:
    """Commit files that are added, of rows or of deleted positions, and others that are dropped; the snapshot's id."""
    has_deletes = any(file.content is not DataFileContent.DATA for file in added)
    operation = Operation.OVERWRITE if dropped or has_deletes else Operation.APPEND
    kind = _Overwrite if dropped else _Append
    table = transaction._table  # noqa: SLF001 - PyIceberg's own `update_snapshot` takes it from there, too
    with kind(operation, transaction, table.io, snapshot_properties=properties) as change:
        for file in dropped:
            change.delete_data_file(file)
        for file in added:
            change.append_data_file(file)
        snapshot_id: int = change.snapshot_id
    return snapshot_id


def _added(file: DataFile, snapshot_id: int) -> ManifestEntry:
    return ManifestEntry.from_args(
        status=ManifestEntryStatus.ADDED,
        snapshot_id=snapshot_id,
        sequence_number=None,
        file_sequence_number=None,
        data_file=file,
    )


def _existing(entry: ManifestEntry) -> ManifestEntry:
    return ManifestEntry.from_args(
        status=ManifestEntryStatus.EXISTING,
        snapshot_id=entry.snapshot_id,
        sequence_number=entry.sequence_number,
        file_sequence_number=entry.file_sequence_number,
        data_file=entry.data_file,
    )
