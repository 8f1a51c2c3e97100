"""Where contracts are kept: `{topic}/{pending|active|failed|archive}/schema.json`."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

from leanops.errors import ContractsMissing
from leanops.names import is_topic, topic_name

CONTRACT_FILE = "schema.json"


class Stage(StrEnum):
    """The stations of a contract file."""

    PENDING = "pending"
    ACTIVE = "active"
    FAILED = "failed"
    ARCHIVE = "archive"


class SchemaStore(ABC):
    """The contracts of all topics, as bytes: what they mean is not for the store to say."""

    @abstractmethod
    def topics(self) -> Sequence[str]:
        """Every topic that has a place here, with or without a contract, in order of name."""

    @abstractmethod
    def strays(self) -> Sequence[str]:
        """Names found where topics should be that cannot be topics."""

    @abstractmethod
    def read(self, topic: str, stage: Stage) -> bytes | None:
        """The contract file of a topic at a stage, or None."""

    @abstractmethod
    def where(self, topic: str, stage: Stage) -> str:
        """Where that file is, for people."""


class LocalSchemaStore(SchemaStore):
    """Contracts in a folder of this machine."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def topics(self) -> Sequence[str]:
        return [name for name in self._names() if is_topic(name)]

    def strays(self) -> Sequence[str]:
        return [name for name in self._names() if not is_topic(name)]

    def read(self, topic: str, stage: Stage) -> bytes | None:
        try:
            return self._path(topic, stage).read_bytes()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None

    def where(self, topic: str, stage: Stage) -> str:
        return str(self._path(topic, stage))

    def _path(self, topic: str, stage: Stage) -> Path:
        return self._folder / topic_name(topic) / stage.value / CONTRACT_FILE

    def _names(self) -> Sequence[str]:
        if not self._folder.is_dir():
            raise ContractsMissing(
                f"There is no folder {self._folder} with contracts in it.",
                "Point LEANOPS_SCHEMAS at one (it may be empty), or run this where `schemas` is.",
            )
        return sorted(entry.name for entry in self._folder.iterdir() if entry.is_dir() and entry.name[0] != ".")
