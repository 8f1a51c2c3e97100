"""Contracts that have been read before: one that has not changed is neither fetched nor checked again.

They are filed under the mark of their content, and under the code that read them, since other code may read otherwise.
A contract that cannot be used is not filed, since what is wrong with it is told with where it stands.
"""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import msgspec
from pydantic import ValidationError

from leanops import contracts, names
from leanops.contracts.model import Contract
from leanops.home import Home

_NAME = "contracts.json"


@dataclass(frozen=True)
class _Filed:
    mark: str
    contract: msgspec.Raw


@dataclass
class _File:
    reader: str
    topics: dict[str, _Filed] = field(default_factory=dict)


class ReadContracts:
    """The contracts that were read last time, by topic."""

    def __init__(self, filed: Mapping[str, _Filed]) -> None:
        self._contracts: dict[str, Contract] = {}
        self.now = dict(filed)
        for topic, each in filed.items():
            try:
                self._contracts[topic] = Contract.model_validate_json(bytes(each.contract))
            except ValidationError:
                del self.now[topic]
        self.marks = {topic: each.mark for topic, each in self.now.items()}

    def of(self, topic: str) -> Contract:
        """The contract under the mark that is known of it."""
        return self._contracts[topic]

    def keep(self, topic: str, mark: str, contract: Contract) -> None:
        """File a contract for whoever asks next."""
        self.now[topic] = _Filed(mark, msgspec.Raw(contract.model_dump_json(exclude_defaults=True).encode()))


@contextmanager
def read_contracts(home: Home) -> Iterator[ReadContracts]:
    """What is filed in a home, and is filed again when there is more."""
    filed = _read(home.cache / _NAME)
    known = ReadContracts(filed)
    yield known
    if known.now != filed:
        home.write_cache(_NAME, msgspec.json.encode(_File(_reader(), known.now)))


def _read(path: Path) -> dict[str, _Filed]:
    """What is filed; nothing, if that cannot be read or was read by other code."""
    with suppress(OSError, msgspec.MsgspecError):
        file = msgspec.json.decode(path.read_bytes(), type=_File)
        if file.reader == _reader():
            return file.topics
    return {}


@cache
def _reader() -> str:
    """The code that reads contracts, in short."""
    assert contracts.__file__
    sources = [*sorted(Path(contracts.__file__).parent.glob("*.py")), Path(names.__file__)]
    return hashlib.sha256(b"\0".join(source.read_bytes() for source in sources)).hexdigest()
