"""What waits to be built, read from the tables themselves: nothing is forgotten when a sensor's cursor is lost."""

from dataclasses import dataclass
from datetime import date

from pyiceberg.catalog import Catalog

from leanops.commits import certain_upto, checkpoint_of
from leanops.contracts.model import Contract
from leanops.inventory import days_changed, newest_day
from leanops.names import Layer, table
from leanops.raw.table import last_landing_seq
from leanops.tables import find_table


@dataclass(frozen=True)
class Pending:
    """A topic with something to build, the publish days that have gained rows, and up to which number they landed."""

    topic: str
    days: frozenset[date]
    upto: int


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
        days = days_changed(raw, int(known) if known else 0, landed.snapshot_id)
        return Pending(topic, days, upto)
    stands_for = certain_upto(curated, int(built.get("upto", 0)))
    if stands_for == upto and built.get("contract") == contract.fingerprint:
        return None
    # Only Curated lags behind. Its step builds what is missing, whichever day it is asked for.
    return Pending(topic, frozenset([newest_day(raw)]), upto)


def buffered(catalog: Catalog, topic: str) -> int:
    """How many messages wait in RAW for the topic's first contract."""
    return last_landing_seq(find_table(catalog, table(Layer.RAW, topic)))
