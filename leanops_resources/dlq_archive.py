"""Where the bodies of dead letters are kept: `{topic}/{day}/{dead_letter_id}.body`, in a folder or a bucket.

A body is kept as it came, so that it can be looked at, mended and replayed. A body that somebody has mended stands
beside it: `{dead_letter_id}.{hash}.mended`.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from uuid import uuid4

from leanops.errors import DeadLetterMissing, disk_faults_named
from leanops.ingestion.processor import DeadLetter
from leanops.names import topic_name

RETENTION_DAYS = 14
AT_ONCE = 16
"""So many bodies are on their way at once: most of the time of each is waiting."""


class DlqArchive(ABC):
    """The bodies of all dead letters, each known by where it is. Every call is atomic."""

    def put(self, letter: DeadLetter) -> str:
        """Keep the body of a dead letter; where it is. The same letter again is written over itself."""
        name = _stem_of(letter.message.topic, letter.day, letter.dead_letter_id)
        return self._write(f"{name}.body", letter.message.body)

    def put_many(self, letters: Iterable[DeadLetter]) -> dict[str, str]:
        """Keep the bodies of dead letters; where each is, by its id."""
        letters = list(letters)
        with ThreadPoolExecutor(AT_ONCE, "archive") as pool:
            places = list(pool.map(self.put, letters))
        return {letter.dead_letter_id: place for letter, place in zip(letters, places, strict=True)}

    def put_mended(self, topic: str, day: date, dead_letter_id: str, body: bytes) -> str:
        """Keep the mended body of a dead letter beside its own; where it is."""
        digest = sha256(body).hexdigest()[:16]
        return self._write(f"{_stem_of(topic, day, dead_letter_id)}.{digest}.mended", body)

    def get(self, where: str) -> bytes:
        """The body that was put there. `DeadLetterMissing` if it is gone, or if this archive never had it."""
        body = self._read(self._inside(where))
        if body is None:
            raise DeadLetterMissing(
                f"The body at {where} is gone.",
                f"Bodies are kept for {RETENTION_DAYS} days, and for as long as their letter is open. Ask the "
                "producer for it and replay that, or discard the letter.",
            )
        return body

    def expire(self, keep: Collection[str], older_than_days: int = RETENTION_DAYS) -> int:
        """Remove what was put here longer ago, but for the letters whose bodies are at `keep`; how many files it was.

        What counts is when a body was put here. Its day may be long past when it comes.
        """
        limit = datetime.now(UTC) - timedelta(days=older_than_days)
        kept = {_stem(name) for where in keep if (name := self._name(where))}
        old = [name for name, put in self._names() if put < limit and _stem(name) not in kept]
        for name in old:
            self._remove(name)
        return len(old)

    def _inside(self, where: str) -> str:
        """The name of a body by where it is."""
        if name := self._name(where):
            return name
        raise DeadLetterMissing(
            f"{where} is no place in this archive.", "Point LEANOPS_DLQ_ARCHIVE at the archive that it was put into."
        )

    @abstractmethod
    def _name(self, where: str) -> str | None:
        """The name of a place: its way from the root of the archive. None if it is not below that."""

    @abstractmethod
    def _write(self, name: str, body: bytes) -> str:
        """Put a body under a name; where that is."""

    @abstractmethod
    def _read(self, name: str) -> bytes | None:
        """The body of a name, or None if there is none."""

    @abstractmethod
    def _names(self) -> Iterator[tuple[str, datetime]]:
        """The name of everything in the archive, and when it was put there."""

    @abstractmethod
    def _remove(self, name: str) -> None:
        """Remove what has a name, if it is still there."""


def dlq_archive(location: Path | str) -> DlqArchive:
    """The archive in a folder, or in `s3://bucket/prefix`."""
    if isinstance(location, str) and location.startswith("s3://"):
        from leanops_resources.s3_dlq_archive import S3Archive

        bucket, _, prefix = location.removeprefix("s3://").partition("/")
        return S3Archive(bucket, prefix)
    return FolderArchive(Path(location))


class FolderArchive(DlqArchive):
    """Bodies in a folder of this machine, for its owner alone: they are other people's data."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()

    def _name(self, where: str) -> str | None:
        place, root = Path(where).resolve(), self._folder.resolve()
        return str(place.relative_to(root)) if root in place.parents else None

    def _write(self, name: str, body: bytes) -> str:
        path = self._folder / name
        draft = path.with_name(f".{path.name}.{uuid4().hex}")
        with disk_faults_named(self._folder):
            for folder in (self._folder, path.parent.parent, path.parent):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            try:
                with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                    file.write(body)
                    file.flush()
                    os.fsync(file.fileno())
                draft.replace(path)
            except BaseException:
                draft.unlink(missing_ok=True)
                raise
        return str(path)

    def _read(self, name: str) -> bytes | None:
        try:
            return (self._folder / name).read_bytes()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None

    def _names(self) -> Iterator[tuple[str, datetime]]:
        for path in self._folder.glob("*/*/*"):
            with suppress(FileNotFoundError):
                yield str(path.relative_to(self._folder)), datetime.fromtimestamp(path.stat().st_mtime, UTC)

    def _remove(self, name: str) -> None:
        path = self._folder / name
        with disk_faults_named(self._folder):
            path.unlink(missing_ok=True)
            # A day goes with its last body.
            with suppress(OSError):
                path.parent.rmdir()


def _stem_of(topic: str, day: date, dead_letter_id: str) -> str:
    return f"{topic_name(topic)}/{day}/{dead_letter_id}"


def _stem(name: str) -> str:
    """What the names of a letter's bodies have in common."""
    return name.partition(".")[0]
