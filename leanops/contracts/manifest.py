"""All that the asset graph is built from, compiled into one file that is named by its content.

A run rebuilds the definitions in a process of its own. It reads the manifest that the tick was planned with, so a
contract that changes in between changes the next tick and not this one.
"""

import hashlib
import os
import threading
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from leanops.contracts.model import Contract
from leanops.errors import StateCorrupt, disk_faults_named


class Topic(BaseModel):
    """A topic that is known, and the contract that is active for it. Without one its data buffers in RAW."""

    model_config = ConfigDict(frozen=True)

    name: str
    contract: Contract | None = None
    contract_problem: str | None = None
    """Why the file under `active/` cannot be used, where that is so."""


class Manifest(BaseModel):
    """The topics, by name."""

    model_config = ConfigDict(frozen=True)

    topics: tuple[Topic, ...]

    @cached_property
    def content(self) -> str:
        return self.model_dump_json(exclude_defaults=True)

    @cached_property
    def version(self) -> str:
        return hashlib.sha256(self.content.encode()).hexdigest()[:16]

    @cached_property
    def by_name(self) -> Mapping[str, Topic]:
        return {topic.name: topic for topic in self.topics}

    @cached_property
    def owners(self) -> Mapping[str, str]:
        """Whose each topic is, where its contract says so."""
        return {topic.name: ", ".join(topic.contract.owners) for topic in self.topics if topic.contract}

    def save(self, folder: Path) -> None:
        """Write the manifest under its version. Whoever reads that version finds all of it or nothing."""
        path, content = _path(folder, self.version), self.content.encode()
        with suppress(OSError):
            if path.read_bytes() == content:
                return
        with disk_faults_named(folder):
            draft = path.with_suffix(f".{os.getpid()}-{threading.get_ident()}.draft")
            draft.write_bytes(content)
            draft.replace(path)

    @classmethod
    def load(cls, folder: Path, version: str) -> "Manifest":
        """The manifest that was saved as `version`."""
        path = _path(folder, version)
        cause: Exception | None = None
        try:
            manifest = cls.model_validate_json(path.read_bytes())
            if manifest.version == version:
                return manifest
        except (OSError, ValueError) as error:
            cause = error
        raise StateCorrupt(
            f"The manifest {path} that this run was planned with is gone or damaged.",
            "Reload the code location and start the run again.",
        ) from cause


def _path(folder: Path, version: str) -> Path:
    return folder / f"{version}.json"
