"""The bodies of dead letters in a bucket: the same names as in a folder, as keys under a prefix."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, closing
from datetime import datetime
from typing import Any

from leanops.errors import ArchiveUnavailable
from leanops_resources import s3
from leanops_resources.dlq_archive import DlqArchive


class S3Archive(DlqArchive):
    """Bodies in a bucket of S3, or of a server that speaks like it. Nothing is asked of it before the first call."""

    def __init__(self, bucket: str, prefix: str = "") -> None:
        self._bucket = bucket
        self._prefix = f"{prefix.strip('/')}/".lstrip("/")
        self._root = f"s3://{self._bucket}/{self._prefix}"

    def _name(self, where: str) -> str | None:
        return where.removeprefix(self._root) or None if where.startswith(self._root) else None

    def _write(self, name: str, body: bytes) -> str:
        with self._asking() as client:
            client.put_object(Bucket=self._bucket, Key=self._prefix + name, Body=body)
        return self._root + name

    def _read(self, name: str) -> bytes | None:
        with self._asking("NoSuchKey") as client:
            answer = client.get_object(Bucket=self._bucket, Key=self._prefix + name)
            with closing(answer["Body"]) as body:
                content: bytes = body.read()
                return content
        return None

    def _names(self) -> Iterator[tuple[str, datetime]]:
        with self._asking() as client:
            pages = client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=self._prefix)
            for each in (each for page in pages for each in page.get("Contents", ())):
                yield each["Key"].removeprefix(self._prefix), each["LastModified"]

    def _remove(self, name: str) -> None:
        with self._asking() as client:
            client.delete_object(Bucket=self._bucket, Key=self._prefix + name)

    def _asking(self, *answers: str) -> AbstractContextManager[Any]:
        return s3.asking(self._named, *answers)

    def _named(self, code: str, what: str) -> ArchiveUnavailable:
        if code == s3.NO_BUCKET:
            return ArchiveUnavailable(
                f"There is no bucket {self._bucket} for dead letters.", "Create it, or change LEANOPS_DLQ_ARCHIVE."
            )
        return ArchiveUnavailable(f"{self._root} {what}", s3.ACCESS_HINT)
