"""Rows that a Firehose has appended to RAW: they get their numbers, and count as received from then on.

A Firehose numbers nothing and tells nobody what it has received. So the books of a topic that comes this way begin in
RAW: what stands there, and among the dead letters, was received. Before that SQS, Lambda and the Firehose vouch for it.
"""

from collections import Counter
from collections.abc import Iterable
from datetime import date, timedelta
from typing import TYPE_CHECKING

from leanops.errors import LeanOpsError
from leanops.names import Layer, table
from leanops_assets.raw.deliveries import count_as_received, intake_of, messages_by_day
from leanops_assets.raw.drain import Drained
from leanops_resources.state.store import StateStore

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

_NAME = "Firehose"


def take_over(catalog: "Catalog", store: StateStore, topics: Iterable[str], holder: str) -> list[Drained]:
    """Number and count what a Firehose has brought; those topics of which there was anything."""
    found = [_take_over(catalog, store, topic, holder) for topic in topics]
    return [each for each in found if each.landed or each.dead or each.problem or each.skipped]


def _take_over(catalog: "Catalog", store: StateStore, topic: str, holder: str) -> Drained:
    from leanops.raw.numbering import number_rows

    drained = Drained(topic, _NAME)
    try:
        drained.landed = _uncounted(catalog, store, topic)
        with intake_of(catalog, store, topic, holder, timedelta(0)):
            if number_rows(catalog.load_table(table(Layer.RAW, topic))):
                drained.commits = 1
            count_as_received(store, topic, _NAME, _uncounted(catalog, store, topic))
    except LeanOpsError as error:
        drained.skipped = str(error)
    except Exception as error:  # noqa: BLE001 - whatever is wrong with one topic, the others go on
        drained.problem = f"{type(error).__name__}: {error}"
    return drained


def _uncounted(catalog: "Catalog", store: StateStore, topic: str) -> Counter[date]:
    return Counter(messages_by_day(catalog, topic)) - Counter(store.received(topic))
