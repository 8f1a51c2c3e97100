"""Contracts in a bucket: the same places as in a folder, as keys under a prefix."""

import getpass
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing
from datetime import datetime
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from leanops.contracts.reading import MAX_BYTES
from leanops.errors import ContractsMissing, LeanOpsError, SchemaStoreUnavailable
from leanops.names import is_topic, topic_name
from leanops_resources import s3
from leanops_resources.schema_store import CONTRACT_FILE, ActiveFile, SchemaStore, Stage, Upload, another_name

_BY = "leanops-by"
_AT_ONCE = 8
_CHANGED_MEANWHILE = ("PreconditionFailed", "ConditionalRequestConflict")


class _Found(NamedTuple):
    """An object, as far as anybody reads it."""

    content: bytes
    etag: str
    by: str | None


class S3SchemaStore(SchemaStore):
    """Contracts in a bucket of S3, or of a server that speaks like it. Nothing is asked of it before the first call."""

    def __init__(self, bucket: str, prefix: str = "") -> None:
        self._bucket = bucket
        self._prefix = f"{prefix.strip('/')}/".lstrip("/")

    def topics(self) -> Sequence[str]:
        return [name for name in self._names() if is_topic(name)]

    def strays(self) -> Sequence[str]:
        return [name for name in self._names() if not is_topic(name)]

    def read(self, topic: str, stage: Stage, name: str = CONTRACT_FILE) -> bytes | None:
        found = self._find(self._checked_key(topic, stage, name))
        return found.content if found else None

    def active_files(self, known_marks: Mapping[str, str]) -> Mapping[str, ActiveFile]:
        marks: dict[str, str] = {}
        for each in self._objects():
            match each["Key"].removeprefix(self._prefix).split("/"):
                case [topic, Stage.ACTIVE, name] if is_topic(topic) and name == CONTRACT_FILE:
                    marks[topic] = each["ETag"]
        changed = [topic for topic, mark in marks.items() if mark != known_marks.get(topic)]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            keys = [self._key(topic, Stage.ACTIVE, CONTRACT_FILE) for topic in changed]
            found = dict(zip(changed, pool.map(self._find, keys), strict=True))
        files = {topic: ActiveFile(mark, None) for topic, mark in marks.items() if topic not in found}
        # One that was replaced since has another mark than was listed.
        return files | {topic: ActiveFile(each.etag, each.content) for topic, each in found.items() if each}

    def write(self, topic: str, stage: Stage, content: bytes, name: str = CONTRACT_FILE) -> None:
        key = self._checked_key(topic, stage, name)
        with self._asking() as client:
            client.put_object(Bucket=self._bucket, Key=key, Body=content)

    def submit(self, topic: str, content: bytes) -> str:
        name = CONTRACT_FILE
        while not self._put_new(self._key(topic_name(topic), Stage.PENDING, name), content):
            name = another_name()
        return self.where(topic, Stage.PENDING, name)

    def uploads(self) -> Sequence[Upload]:
        found = ((topic, name, self._find(self._key(topic, Stage.PENDING, name))) for topic, name in self._pending())
        return [Upload(topic, name, each.content, each.by) for topic, name, each in found if each]

    def remove(self, upload: Upload) -> None:
        key = self._key(upload.topic, Stage.PENDING, upload.name)
        found = self._find(key)
        if found and found.content == upload.content:
            # S3 refuses if it has been replaced since. There are servers that do not heed the condition and delete
            # whatever is there: with those, what comes between the two requests is lost.
            with self._asking("NoSuchKey", *_CHANGED_MEANWHILE) as client:
                client.delete_object(Bucket=self._bucket, Key=key, IfMatch=found.etag)

    def where(self, topic: str, stage: Stage, name: str = CONTRACT_FILE) -> str:
        return f"s3://{self._bucket}/{self._checked_key(topic, stage, name)}"

    def _key(self, topic: str, stage: Stage, name: str) -> str:
        return f"{self._prefix}{topic}/{stage.value}/{name}"

    def _checked_key(self, topic: str, stage: Stage, name: str) -> str:
        if not is_topic(topic) and topic not in self._names():
            topic_name(topic)
        return self._key(topic, stage, name)

    def _names(self) -> Sequence[str]:
        folders = (each["Prefix"] for page in self._pages(Delimiter="/") for each in page.get("CommonPrefixes", ()))
        names = (folder.removeprefix(self._prefix).removesuffix("/") for folder in folders)
        return sorted(name for name in names if _is_shown(name))

    def _pending(self) -> Sequence[tuple[str, str]]:
        """Topic and name of every upload, in the order in which they came."""
        found: list[tuple[datetime, str, str]] = []
        for each in self._objects():
            match each["Key"].removeprefix(self._prefix).split("/"):
                case [topic, Stage.PENDING, name] if _is_shown(topic) and _is_shown(name):
                    found.append((each["LastModified"], topic, name))
        return [(topic, name) for _, topic, name in sorted(found)]

    def _objects(self) -> Iterator[Any]:
        """All keys at once: a request per thousand objects, not one per topic."""
        for page in self._pages():
            yield from page.get("Contents", ())

    def _pages(self, **how: str) -> Iterator[Any]:
        with self._asking() as client:
            yield from client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=self._prefix, **how)

    def _find(self, key: str) -> _Found | None:
        # Of an object without a first byte none can be asked for.
        return self._get(key, Range=f"bytes=0-{MAX_BYTES}") or self._get(key)

    def _get(self, key: str, **part: str) -> _Found | None:
        with self._asking("NoSuchKey", "InvalidRange") as client:
            answer = client.get_object(Bucket=self._bucket, Key=key, **part)
            by = answer["Metadata"].get(_BY)
            with closing(answer["Body"]) as body:
                content = body.read(MAX_BYTES + 1)
                # Only who reads on at the end is told that it was not the end, but that the connection broke.
                body.read(1)
            return _Found(content, answer["ETag"], unquote(by) if by else None)
        return None

    def _put_new(self, key: str, content: bytes) -> bool:
        """Whether the key was free, and is taken by this content now."""
        with self._asking(*_CHANGED_MEANWHILE) as client:
            client.put_object(Bucket=self._bucket, Key=key, Body=content, IfNoneMatch="*", Metadata=_signature())
            return True
        return False

    def _asking(self, *answers: str) -> AbstractContextManager[Any]:
        return s3.asking(self._named, *answers)

    def _named(self, code: str, what: str) -> LeanOpsError:
        if code == s3.NO_BUCKET:
            return ContractsMissing(
                f"There is no bucket {self._bucket} with contracts in it.",
                "Point LEANOPS_SCHEMAS at one (it may be empty), as in s3://bucket/prefix.",
            )
        return SchemaStoreUnavailable(f"s3://{self._bucket}/{self._prefix} {what}", s3.ACCESS_HINT)


def _is_shown(name: str) -> bool:
    return bool(name) and name[0] != "."


def _signature() -> dict[str, str]:
    """Who puts an object there, if this machine knows; in the ASCII that its metadata must be."""
    try:
        return {_BY: quote(getpass.getuser(), safe="@")}
    except (KeyError, OSError):
        return {}
