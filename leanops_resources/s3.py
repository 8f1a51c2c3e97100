"""S3, or a server that speaks like it: one client, and its faults told by name."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from boto3.session import Session  # type: ignore[import-untyped]
from botocore.config import Config  # type: ignore[import-untyped]
from botocore.exceptions import BotoCoreError, ClientError  # type: ignore[import-untyped]

from leanops.errors import LeanOpsError

NO_BUCKET = "NoSuchBucket"
ACCESS_HINT = (
    "Check the credentials, AWS_REGION and AWS_ENDPOINT_URL, and that they may list, get, put and delete there."
)
_PATIENCE = Config(
    connect_timeout=3,
    read_timeout=20,
    retries={"mode": "standard", "total_max_attempts": 3},
    max_pool_connections=16,
)

Named = Callable[[str, str], LeanOpsError]
"""The named error for a code of S3, blank where there was no answer, and what happened, in words."""


@contextmanager
def asking(named: Named, *answers: str) -> Iterator[Any]:
    """The client. A refusal that is one of `answers` ends the block; anything else is told by a named error."""
    try:
        s3 = client()
    except (BotoCoreError, ValueError) as error:
        raise named("", f"cannot be reached: {_sentence(error)}") from error
    try:
        yield s3
    except ClientError as error:
        code, message = (error.response["Error"].get(part, "") for part in ("Code", "Message"))
        if code not in answers:
            raise named(code, f"answered {code}: {_sentence(message)}") from error
    except BotoCoreError as error:
        raise named("", f"cannot be reached: {_sentence(error)}") from error


@cache
def client() -> Any:
    """One for the process, whatever the thread: it takes longer to make than most requests."""
    return Session().client("s3", config=_PATIENCE)


def _sentence(what: object) -> str:
    return f"{str(what).strip().rstrip('.')}."
