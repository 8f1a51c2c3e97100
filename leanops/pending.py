"""What waits to be built, read from the tables themselves: nothing is forgotten when a sensor's cursor is lost."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from leanops.commits import checkpoint_of
from leanops.contracts.model import Contract
from leanops.names import Layer, table
from leanops.tables import find_table


@dataclass(frozen=True)
class Pending:
    """A topic with something to build: the publish days that have gained rows, and the RAW snapshot they are from."""

    topic: str
    days: frozenset[date]
    raw_snapshot: int


def pending(catalog: Catalog, topic: str, contract: Contract) -> Pending | None:
    """What a topic has to build, or None when its layers stand for all that RAW holds and for its contract."""
    raw, standardized, curated = (
        find_table(catalog, table(layer, topic)) for layer in (Layer.RAW, Layer.STANDARDIZED, Layer.CURATED)
    )
    landed = raw.current_snapshot() if raw else None
    if raw is None or landed is None:
        return None
    consumed = checkpoint_of(standardized).get("raw-snapshot")
    built = standardized.current_snapshot() if standardized else None
    if consumed == str(landed.snapshot_id) and built:
        wanted = {"standardized-snapshot": str(built.snapshot_id), "contract": contract.fingerprint}
        if wanted.items() <= checkpoint_of(curated).items():
            return None
        # Only Curated lags behind. Its step builds the whole topic, whichever day it is asked for.
        return Pending(topic, frozenset([max(_days_since(raw, consumed=None))]), landed.snapshot_id)
    return Pending(topic, frozenset(_days_since(raw, consumed)), landed.snapshot_id)


def _days_since(raw: Table, consumed: str | None) -> Iterator[date]:
    """The days of the files added after the `consumed` snapshot, or of all files when that one is not known."""
    known = {str(snapshot.snapshot_id): snapshot.sequence_number or 0 for snapshot in raw.metadata.snapshots}
    after = known.get(consumed or "", 0)
    current = raw.current_snapshot()
    for manifest in current.manifests(raw.io) if current else ():
        if manifest.sequence_number > after:
            for entry in manifest.fetch_manifest_entry(raw.io):
                if (entry.sequence_number or 0) > after:
                    yield date(1970, 1, 1) + timedelta(days=entry.data_file.partition[0])
