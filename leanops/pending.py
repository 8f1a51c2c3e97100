"""What waits to be built, read from the tables themselves: nothing is forgotten when a sensor's cursor is lost."""

from dataclasses import dataclass
from datetime import date

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from leanops.commits import certain_upto, checkpoint_of
from leanops.contracts.model import Contract
from leanops.inventory import bytes_added, newest_day
from leanops.names import Layer, table
from leanops.raw.table import last_landing_seq
from leanops.tables import find_table


@dataclass(frozen=True)
class Pending:
    """A topic with something to build: its publish days that have gained rows, up to which number, and how much."""

    topic: str
    days: frozenset[date]
    upto: int
    bytes: int
    """The size of the files that a build has to read."""


def pending(catalog: Catalog, topic: str, contract: Contract) -> Pending | None:
    """What a topic has to build, or None when its layers stand for all that RAW holds and for its contract."""
    raw, standardized, curated = (
        find_table(catalog, table(layer, topic)) for layer in (Layer.RAW, Layer.STANDARDIZED, Layer.CURATED)
    )
    upto = last_landing_seq(raw)
    landed = raw.current_snapshot() if raw else None
    if raw is None or landed is None or not upto:
        return None
    consumed, built = checkpoint_of(standardized), checkpoint_of(curated)
    if consumed.get("upto") != str(upto):
        known = consumed.get("raw-snapshot")
        added = bytes_added(raw, int(known) if known else 0, landed.snapshot_id)
        # Snapshots since the last build may have expired, and with them what they say of days.
        days = frozenset(added) or frozenset([newest_day(raw)])
        return Pending(topic, days, upto, sum(added.values()) or _size(raw))
    stands_for = certain_upto(curated, int(built.get("upto", 0)))
    says = (built.get("contract"), built.get("contract-version"))
    if stands_for == upto and says == (contract.fingerprint, str(contract.version)):
        return None
    # Only Curated lags behind. Its step builds what is missing, whichever day it is asked for; that may be all of it.
    return Pending(topic, frozenset([newest_day(raw)]), upto, _size(standardized))


def buffered(catalog: Catalog, topic: str) -> int:
    """How many messages wait in RAW for the topic's first contract."""
    return last_landing_seq(find_table(catalog, table(Layer.RAW, topic)))


def _size(held: Table | None) -> int:
    """The size of all files of a table."""
    snapshot = held.current_snapshot() if held else None
    return int(snapshot.summary["total-files-size"] or 0) if snapshot and snapshot.summary else 0
