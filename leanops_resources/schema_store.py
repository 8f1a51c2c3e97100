"""Where contracts are kept: `{topic}/{pending|active|failed|archive}/schema.json`.

Any file under `pending/` is an upload, so that two of them at once do not write over each other. A contract that was
replaced stands under its version: `archive/v3/schema.json`. Why one was refused stands beside it: `failed/error.json`.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from time import time_ns
from uuid import uuid4

from leanops.contracts.model import Contract
from leanops.contracts.reading import MAX_BYTES, read_contract
from leanops.errors import ContractsMissing
from leanops.names import is_topic, topic_name

CONTRACT_FILE = "schema.json"
ERROR_FILE = "error.json"


class Stage(StrEnum):
    """The stations of a contract file."""

    PENDING = "pending"
    ACTIVE = "active"
    FAILED = "failed"
    ARCHIVE = "archive"


@dataclass(frozen=True)
class Upload:
    """A contract that somebody has put under `pending/`. What is beyond the size of any contract is cut off."""

    topic: str
    """The folder's name, which may be none of a topic."""
    name: str
    content: bytes
    by: str | None = None
    """Who put it there, where the store knows."""


@dataclass(frozen=True)
class ActiveFile:
    """An active contract file, by a mark that changes with its content."""

    mark: str
    content: bytes | None
    """None where the mark is known already."""
    problem: str | None = None
    """Why it cannot be read, where that is so."""

    @classmethod
    def of(cls, content: bytes, known_mark: str | None) -> "ActiveFile":
        """A file that is marked by its own digest."""
        mark = sha256(content).hexdigest()
        return cls(mark, None if mark == known_mark else content)


class SchemaStore(ABC):
    """The contracts of all topics, as bytes: what they mean is not for the store to say. Every call is atomic."""

    @abstractmethod
    def topics(self) -> Sequence[str]:
        """Every topic that has a place here, with or without a contract, in order of name."""

    @abstractmethod
    def strays(self) -> Sequence[str]:
        """Names found where topics should be that cannot be topics."""

    @abstractmethod
    def read(self, topic: str, stage: Stage, name: str = CONTRACT_FILE) -> bytes | None:
        """The contract file of a topic at a stage, or None."""

    @abstractmethod
    def active_files(self, known_marks: Mapping[str, str]) -> Mapping[str, ActiveFile]:
        """The active file of every topic that has one, without its content where its mark is the one that is known."""

    @abstractmethod
    def write(self, topic: str, stage: Stage, content: bytes, name: str = CONTRACT_FILE) -> None:
        """Put a file where that stage has it. Whoever reads it finds all of the old one or all of the new one."""

    @abstractmethod
    def submit(self, topic: str, content: bytes) -> str:
        """Put an upload under `pending/`, beside any that are there; where it is."""

    @abstractmethod
    def uploads(self) -> Sequence[Upload]:
        """All that is under `pending/`, of strays too, in the order in which it came."""

    @abstractmethod
    def remove(self, upload: Upload) -> None:
        """Take an upload away, unless another one has taken its place."""

    @abstractmethod
    def where(self, topic: str, stage: Stage, name: str = CONTRACT_FILE) -> str:
        """Where that file is, for people."""


def schema_store(location: str | Path) -> SchemaStore:
    """The contracts of a folder, or of `s3://bucket/prefix`."""
    if isinstance(location, str) and location.startswith("s3://"):
        from leanops_resources.s3_schema_store import S3SchemaStore

        bucket, _, prefix = location.removeprefix("s3://").partition("/")
        return S3SchemaStore(bucket, prefix)
    return LocalSchemaStore(Path(location))


def read_active(store: SchemaStore, topic: str) -> Contract | None:
    """The active contract of a topic, or None. `ContractInvalid` if there is one that cannot be used."""
    content = store.read(topic, Stage.ACTIVE)
    return None if content is None else read_contract(content, topic, store.where(topic, Stage.ACTIVE))


def another_name() -> str:
    """A name for an upload that finds `schema.json` taken; after it, and in order of time, where clocks are coarse."""
    return f"schema_{time_ns()}_{uuid4().hex[:8]}.json"


class LocalSchemaStore(SchemaStore):
    """Contracts in a folder of this machine."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def topics(self) -> Sequence[str]:
        return [name for name in self._names() if is_topic(name)]

    def strays(self) -> Sequence[str]:
        return [name for name in self._names() if not is_topic(name)]

    def read(self, topic: str, stage: Stage, name: str = CONTRACT_FILE) -> bytes | None:
        return _read(self._path(topic, stage, name))

    def active_files(self, known_marks: Mapping[str, str]) -> Mapping[str, ActiveFile]:
        files: dict[str, ActiveFile] = {}
        for topic in self.topics():
            try:
                content = self.read(topic, Stage.ACTIVE)
            except OSError as error:
                files[topic] = ActiveFile("", None, error.strerror)
            else:
                if content is not None:
                    files[topic] = ActiveFile.of(content, known_marks.get(topic))
        return files

    def write(self, topic: str, stage: Stage, content: bytes, name: str = CONTRACT_FILE) -> None:
        path = self._path(topic, stage, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        _drafted(path, content).replace(path)

    def submit(self, topic: str, content: bytes) -> str:
        first = self._path(topic_name(topic), Stage.PENDING, CONTRACT_FILE)
        first.parent.mkdir(parents=True, exist_ok=True)
        draft, path = _drafted(first, content), first
        try:
            while not _linked(draft, path):
                path = first.with_name(another_name())
        finally:
            draft.unlink()
        return str(path)

    def uploads(self) -> Sequence[Upload]:
        paths = [path for name in self._names() for path in _files(self._folder / name / Stage.PENDING)]
        found = ((path, _read(path), _owner(path)) for path in sorted(paths, key=_age))
        # What somebody has taken away since is not there; it is not an empty upload.
        return [
            Upload(path.parents[1].name, path.name, content, by) for path, content, by in found if content is not None
        ]

    def remove(self, upload: Upload) -> None:
        path = self._path(upload.topic, Stage.PENDING, upload.name)
        # Under another name first: if it is not what was meant, or if this ends half-way, it is an upload like any.
        aside = path.with_name(another_name())
        with suppress(FileNotFoundError):
            path.rename(aside)
            if _read(aside) == upload.content:
                aside.unlink()

    def where(self, topic: str, stage: Stage, name: str = CONTRACT_FILE) -> str:
        return str(self._path(topic, stage, name))

    def _path(self, topic: str, stage: Stage, name: str) -> Path:
        if not is_topic(topic) and not (self._folder.is_dir() and topic in self._names()):
            topic_name(topic)
        return self._folder / topic / stage.value / name

    def _names(self) -> Sequence[str]:
        if not self._folder.is_dir():
            raise ContractsMissing(
                f"There is no folder {self._folder} with contracts in it.",
                "Point LEANOPS_SCHEMAS at one (it may be empty), or run this where `schemas` is.",
            )
        return sorted(entry.name for entry in self._folder.iterdir() if entry.is_dir() and entry.name[0] != ".")


def _read(path: Path) -> bytes | None:
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None


def _files(folder: Path) -> Iterator[Path]:
    """The files of a folder that are no drafts of any editor or of ours."""
    if folder.is_dir():
        yield from (path for path in folder.iterdir() if path.is_file() and path.name[0] != ".")


def _age(path: Path) -> tuple[int, str]:
    try:
        return path.stat().st_mtime_ns, str(path)
    except FileNotFoundError:
        return 0, str(path)


def _owner(path: Path) -> str | None:
    try:
        return path.owner()
    except (KeyError, FileNotFoundError):
        return None


def _drafted(path: Path, content: bytes) -> Path:
    """The content beside its place, whole and on the disk, where nobody looks for it."""
    draft = path.with_name(f".{path.name}.{uuid4().hex}")
    with draft.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    return draft


def _linked(draft: Path, path: Path) -> bool:
    """Whether the place was free, and is taken by the draft now."""
    try:
        os.link(draft, path)
    except FileExistsError:
        return False
    return True
