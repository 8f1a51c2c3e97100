"""Where each kind of local state lives under `LEANOPS_HOME`."""

import os
from dataclasses import dataclass
from pathlib import Path

from leanops.errors import HomeNotWritable, disk_faults_named


@dataclass(frozen=True)
class Home:
    """The one folder that holds all local state. Removing it is a full reset."""

    path: Path

    @property
    def warehouse(self) -> Path:
        return self.path / "warehouse"

    @property
    def catalog(self) -> Path:
        return self.path / "catalog.db"

    @property
    def state(self) -> Path:
        return self.path / "state.db"

    @property
    def dagster(self) -> Path:
        return self.path / "dagster"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def spark(self) -> Path:
        return self.path / "spark"

    @property
    def landing(self) -> Path:
        return self.path / "landing"

    @property
    def dlq_archive(self) -> Path:
        return self.path / "dlq-archive"

    @property
    def manifests(self) -> Path:
        return self.path / "manifests"

    @property
    def cache(self) -> Path:
        """What was worked out once and can be worked out again."""
        return self.path / "cache"

    def write_cache(self, name: str, content: bytes) -> None:
        """Put a file into the cache, whole or not at all, whoever else writes it."""
        path = self.cache / name
        with disk_faults_named(self.path):
            draft = path.with_suffix(f".{os.getpid()}.draft")
            draft.write_bytes(content)
            draft.replace(path)

    def prepare(self) -> "Home":
        """Create what is missing. The folders are for their owner alone: payloads are other people's data."""
        if {"?", "#"} & set(str(self.path)):
            raise HomeNotWritable(
                f"{self.path} cannot be LEANOPS_HOME: a table's address ends at a ? or a #.", "Choose another folder."
            )
        with disk_faults_named(self.path):
            for folder in (
                self.path,
                self.warehouse,
                self.dagster,
                self.logs,
                self.spark,
                self.landing,
                self.manifests,
                self.cache,
            ):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            probe = self.path / ".writable"
            probe.touch()
            probe.unlink(missing_ok=True)
        return self
