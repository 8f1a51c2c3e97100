"""What a table's snapshots say of themselves."""

from pyiceberg.table.snapshots import Operation, Snapshot

PREFIX = "leanops."
"""How the properties begin that the platform's own commits have."""


def properties_of(snapshot: Snapshot) -> dict[str, str]:
    """What the platform has noted with a commit; nothing, if the commit is not its own."""
    summary = snapshot.summary.additional_properties if snapshot.summary else {}
    return {key.removeprefix(PREFIX): value for key, value in summary.items() if key.startswith(PREFIX)}


def is_compaction(snapshot: Snapshot) -> bool:
    """Other files, the same rows."""
    return snapshot.summary is not None and snapshot.summary.operation is Operation.REPLACE


def is_append(snapshot: Snapshot) -> bool:
    """Further rows, and all others as they were."""
    return snapshot.summary is not None and snapshot.summary.operation is Operation.APPEND
