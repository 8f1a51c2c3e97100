"""What was found pending of each topic, remembered: a topic's metadata is read again only after a commit to it.

A finding is filed under the places of the metadata that it was read from. Every commit puts a table's metadata in
another place, so no finding can be out of date, and all places are known from one question to the catalog.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import msgspec
from pyiceberg.catalog import Catalog

from leanops.contracts.manifest import Topic
from leanops.home import Home
from leanops.names import Layer, table
from leanops.pending import Pending, buffered, pending
from leanops_resources.catalog import IcebergCatalog

_RULES = 2
"""What is filed by other rules than today's is not looked at: raise it when `leanops/pending.py` decides anew."""

_NAME = "pending.json"
_LAYERS = (Layer.RAW, Layer.STANDARDIZED, Layer.CURATED)
_Source = tuple[str | None, ...]


@dataclass(frozen=True)
class Finding:
    """What a topic has to build, or how many messages it buffers where it has no contract."""

    pending: Pending | None = None
    buffered: int = 0


@dataclass(frozen=True)
class _Filed:
    source: _Source
    finding: Finding


@dataclass
class _File:
    rules: int = _RULES
    topics: dict[str, _Filed] = field(default_factory=dict)


class Findings:
    """The findings of one home."""

    def __init__(self, catalog: IcebergCatalog, filed: Mapping[str, _Filed]) -> None:
        self._load = catalog.load
        self._places = catalog.metadata_locations()
        self._filed = filed
        self.known = dict(filed)

    def of(self, topic: Topic) -> Finding:
        """What waits of a topic now."""
        places = [self._places.get(table(layer, topic.name)) for layer in _LAYERS]
        if places[0] is None:
            return Finding()
        contract = topic.contract
        source = (*places, f"{contract.fingerprint} {contract.version}" if contract else None)
        there = self._filed.get(topic.name)
        if there is None or there.source != source:
            there = self.known[topic.name] = _Filed(source, self._find(topic))
        return there.finding

    @cached_property
    def _catalog(self) -> Catalog:
        return self._load()

    def _find(self, topic: Topic) -> Finding:
        if topic.contract is None:
            return Finding(buffered=buffered(self._catalog, topic.name))
        return Finding(pending=pending(self._catalog, topic.name, topic.contract))


@contextmanager
def findings(home: Home, catalog: IcebergCatalog) -> Iterator[Findings]:
    """The findings, which are filed for whoever looks next."""
    before = _read(home.cache / _NAME)
    found = Findings(catalog, before)
    yield found
    if found.known != before:
        home.write_cache(_NAME, msgspec.json.encode(_File(topics=found.known)))


def _read(path: Path) -> dict[str, _Filed]:
    """What is filed; nothing, if that cannot be read."""
    with suppress(OSError, msgspec.MsgspecError):
        file = msgspec.json.decode(path.read_bytes(), type=_File)
        if file.rules == _RULES:
            return file.topics
    return {}
