"""Draw up the accounts of topics' layers: every row, one by one, from the layer before to where it stands now."""

from collections.abc import Sequence
from dataclasses import dataclass

from pyiceberg.catalog import Catalog

from leanops.batch.isolation import Jobs
from leanops.batch.topics import Outcome, each_topic, in_batches, is_large
from leanops.ledger.account import Account
from leanops.ledger.job import LedgerJob
from leanops.ledger.planned import LedgerRequest, PlannedLedger
from leanops.names import Layer

__all__ = ["Accounts", "LedgerRequest", "draw_up"]

Accounts = dict[tuple[str, Layer], Outcome[list[Account]]]
"""The accounts of a layer's days, by topic and layer, or why there are none."""


def draw_up(jobs: Jobs, catalog: Catalog, requests: Sequence[LedgerRequest]) -> Accounts:
    """A layer's account of each publish day, over all its rows or over those of a part, and what is pending.

    Before its first build by what the contract says, all that the layer before holds is pending, and nothing else is
    said. Nobody may build the topics meanwhile: a build writes errors before it publishes its rows. What is wrong with
    one topic is its outcome, and leaves the others alone.
    """
    topics: dict[str, list[LedgerRequest]] = {}
    for request in requests:
        topics.setdefault(request.topic, []).append(request)
    planned = each_topic([_Requests(*each) for each in topics.items()], _plan)
    done: Accounts = {}
    todo: list[_Planned] = []
    for topic, layers in planned.items():
        assert not isinstance(layers, Exception), "each layer has an outcome of its own"
        done |= {(topic, layer): found for layer, found in layers.items() if not isinstance(found, PlannedLedger)}
        if ledgers := [found for found in layers.values() if isinstance(found, PlannedLedger)]:
            todo.append(_Planned(topic, ledgers))
    for batch in in_batches(todo):
        tallies = LedgerJob(jobs, catalog, {each.topic: each.ledgers for each in batch}, is_large(batch[0])).tally()
        for each in batch:
            found = tallies[each.topic]
            if isinstance(found, Exception):
                done |= {(each.topic, ledger.layer): found for ledger in each.ledgers}
            else:
                done |= {(each.topic, tally.planned.layer): list(tally.accounts()) for tally in found}
    return done


@dataclass(frozen=True)
class _Requests:
    """What is asked of one topic."""

    topic: str
    requests: Sequence[LedgerRequest]


@dataclass(frozen=True)
class _Planned:
    """The ledgers of one topic's layers that rows have to be looked at for."""

    topic: str
    ledgers: Sequence[PlannedLedger]

    @property
    def bytes(self) -> int:
        return sum(each.bytes for each in self.ledgers)


def _plan(topic: _Requests) -> dict[Layer, Outcome[PlannedLedger | list[Account]]]:
    return {each.layer: each_topic([each], PlannedLedger.of)[each.topic] for each in topic.requests}
