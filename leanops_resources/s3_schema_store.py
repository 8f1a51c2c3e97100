"""Contracts in a bucket: the same places as in a folder, as keys under a prefix."""

import getpass
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import datetime
from functools import cache
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from boto3.session import Session  # type: ignore[import-untyped]
from botocore.config import Config  # type: ignore[import-untyped]
from botocore.exceptions import BotoCoreError, ClientError  # type: ignore[import-untyped]

from leanops.contracts.reading import MAX_BYTES
from leanops.errors import ContractsMissing, SchemaStoreUnavailable
from leanops.names import is_topic, topic_name
from leanops_resources.schema_store import CONTRACT_FILE, SchemaStore, Stage, Upload, another_name

_BY = "leanops-by"
_PATIENCE = Config(connect_timeout=3, read_timeout=20, retries={"mode": "standard", "total_max_attempts": 3})
_CHANGED_MEANWHILE = ("PreconditionFailed", "ConditionalRequestConflict")
_HINT = "Check the credentials, AWS_REGION and AWS_ENDPOINT_URL, and that they may list, get, put and delete there."


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

    def write(self, topic: str, stage: Stage, content: bytes, name: str = CONTRACT_FILE) -> None:
        key = self._checked_key(topic, stage, name)
        with self._asking() as s3:
            s3.put_object(Bucket=self._bucket, Key=key, Body=content)

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
            with self._asking("NoSuchKey", *_CHANGED_MEANWHILE) as s3:
                s3.delete_object(Bucket=self._bucket, Key=key, IfMatch=found.etag)

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
        # All keys at once: a request per thousand objects, not one per topic.
        for each in (each for page in self._pages() for each in page.get("Contents", ())):
            match each["Key"].removeprefix(self._prefix).split("/"):
                case [topic, Stage.PENDING, name] if _is_shown(topic) and _is_shown(name):
                    found.append((each["LastModified"], topic, name))
        return [(topic, name) for _, topic, name in sorted(found)]

    def _pages(self, **how: str) -> Iterator[Any]:
        with self._asking() as s3:
            yield from s3.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=self._prefix, **how)

    def _find(self, key: str) -> _Found | None:
        # Of an object without a first byte none can be asked for.
        return self._get(key, Range=f"bytes=0-{MAX_BYTES}") or self._get(key)

    def _get(self, key: str, **part: str) -> _Found | None:
        with self._asking("NoSuchKey", "InvalidRange") as s3:
            answer = s3.get_object(Bucket=self._bucket, Key=key, **part)
            by = answer["Metadata"].get(_BY)
            with closing(answer["Body"]) as body:
                content = body.read(MAX_BYTES + 1)
                # Only who reads on at the end is told that it was not the end, but that the connection broke.
                body.read(1)
            return _Found(content, answer["ETag"], unquote(by) if by else None)
        return None

    def _put_new(self, key: str, content: bytes) -> bool:
        """Whether the key was free, and is taken by this content now."""
        with self._asking(*_CHANGED_MEANWHILE) as s3:
            s3.put_object(Bucket=self._bucket, Key=key, Body=content, IfNoneMatch="*", Metadata=_signature())
            return True
        return False

    @contextmanager
    def _asking(self, *answers: str) -> Iterator[Any]:
        """The client. A refusal that is one of `answers` ends the block; anything else is told by a named error."""
        try:
            yield _client()
        except ClientError as error:
            code, message = (error.response["Error"].get(part, "") for part in ("Code", "Message"))
            if code in answers:
                return
            if code == "NoSuchBucket":
                raise ContractsMissing(
                    f"There is no bucket {self._bucket} with contracts in it.",
                    "Point LEANOPS_SCHEMAS at one (it may be empty), as in s3://bucket/prefix.",
                ) from error
            raise self._unavailable(f"answered {code}: {message}") from error
        except BotoCoreError as error:
            raise self._unavailable(f"cannot be reached: {error}") from error

    def _unavailable(self, what: str) -> SchemaStoreUnavailable:
        return SchemaStoreUnavailable(f"s3://{self._bucket}/{self._prefix} {what.strip().rstrip('.')}.", _HINT)


@cache
def _client() -> Any:
    """One for the process, whatever the thread: it takes longer to make than most requests."""
    try:
        return Session().client("s3", config=_PATIENCE)
    except ValueError as error:
        raise SchemaStoreUnavailable(f"S3 cannot be reached: {error}.", _HINT) from error


def _is_shown(name: str) -> bool:
    return bool(name) and name[0] != "."


def _signature() -> dict[str, str]:
    """Who puts an object there, if this machine knows; in the ASCII that its metadata must be."""
    try:
        return {_BY: quote(getpass.getuser(), safe="@")}
    except (KeyError, OSError):
        return {}
