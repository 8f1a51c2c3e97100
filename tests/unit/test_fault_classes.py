"""The kind of fault that each error is: whose doing it was, and so what becomes of the message."""

import errno
import socket
import sqlite3
import ssl
from collections.abc import Callable
from urllib.error import URLError

import botocore.exceptions as boto  # type: ignore[import-untyped]
import pyiceberg.exceptions as iceberg
import pytest
import sqlalchemy.exc
from botocore.retries.standard import (  # type: ignore[import-untyped]
    ThrottledRetryableChecker,
    TransientRetryableChecker,
)

from leanops.errors import (
    ArchiveUnavailable,
    DiskFull,
    HomeNotWritable,
    LandingConflict,
    LeanOpsError,
    QueueUnavailable,
    StateBusy,
    StateCorrupt,
    StateStoreUnavailable,
    TopicNameInvalid,
)
from leanops.ingestion.faults import Fault, classify
from leanops.raw.envelope import EnvelopeMalformed


def refusal(code: str, status: int = 400) -> Exception:
    """What a client of AWS raises when the service answers so."""
    answer = {"Error": {"Code": code, "Message": "No."}, "ResponseMetadata": {"HTTPStatusCode": status}}
    error: Exception = boto.ClientError(answer, "PutItem")
    return error


URL = "https://sqs.eu-central-1.amazonaws.com"
SAID = ("What is wrong.", "What to do.")
DOWN = OSError("The network is down.")

OUTSIDE: list[Exception] = [
    refusal("Throttling"),
    refusal("ThrottlingException"),
    refusal("RequestThrottled"),
    refusal("KmsThrottled"),
    refusal("OverLimit", 403),
    refusal("ProvisionedThroughputExceededException"),
    refusal("SlowDown", 503),
    refusal("RequestTimeout"),
    refusal("ServiceUnavailableException"),
    refusal("InternalFailure"),
    refusal("ExpiredTokenException"),
    refusal("RequestTimeTooSkewed", 403),
    refusal("NobodyKnowsThisCode", 500),
    refusal("NobodyKnowsThisCode", 503),
    refusal("NobodyKnowsThisCode", 429),
    boto.ReadTimeoutError(endpoint_url=URL),
    boto.ConnectTimeoutError(endpoint_url=URL),
    boto.EndpointConnectionError(endpoint_url=URL),
    boto.ConnectionClosedError(endpoint_url=URL),
    boto.ProxyConnectionError(proxy_url=URL),
    boto.SSLError(endpoint_url=URL, error="certificate"),
    boto.ResponseStreamingError(error="cut off"),
    boto.IncompleteReadError(actual_bytes=1, expected_bytes=2),
    boto.HTTPClientError(error="anything"),
    TimeoutError(),
    ConnectionResetError(),
    BrokenPipeError(),
    InterruptedError(),
    PermissionError(errno.EACCES, "Permission denied"),
    FileNotFoundError(errno.ENOENT, "No such file or directory"),
    *(
        OSError(number, "")
        for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EMFILE, errno.EBUSY)
    ),
    *(OSError(number, "") for number in (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EROFS, errno.ESTALE)),
    # As Arrow tells of what happens in a bucket: without a number.
    OSError("When uploading part for key 'x': AWS Error SLOW_DOWN during UploadPart operation"),
    socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"),
    ssl.SSLError("handshake"),
    URLError("unreachable"),
    sqlite3.OperationalError("database is locked"),
    sqlalchemy.exc.OperationalError("UPDATE iceberg_tables", {}, sqlite3.OperationalError("database is locked")),
    iceberg.CommitFailedException("The table has changed."),
    iceberg.CommitStateUnknownException("Nobody knows."),
    iceberg.ServiceUnavailableError("503"),
    iceberg.ServerError("500"),
    iceberg.TooManyRequestsError("429"),
    iceberg.AuthorizationExpiredError("419"),
    DiskFull(*SAID),
    HomeNotWritable(*SAID),
    LandingConflict(*SAID),
    StateBusy(*SAID),
    StateCorrupt(*SAID),
    StateStoreUnavailable(*SAID),
    ArchiveUnavailable(*SAID),
]
NOBODY_KNOWS: list[BaseException] = [
    KeyError("payload"),
    ValueError("What is this?"),
    TypeError(),
    AssertionError(),
    RecursionError(),
    MemoryError(),
    ZeroDivisionError(),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
    Exception("Too large."),
    KeyboardInterrupt(),
    refusal("ValidationException"),
    refusal("AccessDenied", 403),
    refusal("InvalidParameterValue"),
    refusal("AWS.SimpleQueueService.NonExistentQueue"),
    refusal("", 200),
    boto.ClientError({}, "PutItem"),
    boto.ParamValidationError(report="a field"),
    boto.NoCredentialsError(),
    sqlite3.IntegrityError("UNIQUE constraint failed"),
    iceberg.ValidationError("A column is wrong."),
    iceberg.NoSuchTableError("orders"),
    QueueUnavailable(*SAID),
    TopicNameInvalid(*SAID),
    LeanOpsError(*SAID),
]


def name(error: BaseException) -> str:
    return f"{type(error).__name__} {error}"


@pytest.mark.parametrize("error", OUTSIDE, ids=name)
def test_what_the_outside_does_is_transient(error: Exception) -> None:
    assert classify(error) is Fault.TRANSIENT


@pytest.mark.parametrize("error", NOBODY_KNOWS, ids=name)
def test_anything_else_is_unknown(error: BaseException) -> None:
    assert classify(error) is Fault.UNKNOWN


def test_a_message_that_is_no_envelope_is_malformed() -> None:
    assert classify(EnvelopeMalformed("It has no payload.")) is Fault.MALFORMED


def test_every_code_that_boto_would_try_again_is_transient() -> None:
    codes = {*ThrottledRetryableChecker._THROTTLED_ERROR_CODES, *TransientRetryableChecker._TRANSIENT_ERROR_CODES}
    assert len(codes) > 10
    assert {code for code in codes if classify(refusal(code)) is not Fault.TRANSIENT} == set()


class Oddity(Exception):
    """An error whose response is none of AWS's."""

    response = "502 Bad Gateway"


def test_a_response_that_is_none_of_aws_says_nothing() -> None:
    assert classify(Oddity()) is Fault.UNKNOWN


# Errors that were raised from others


def caught(raising: Callable[[], None]) -> BaseException:
    try:
        raising()
    except Exception as error:  # noqa: BLE001 - which one it is, is the case
        return error
    raise AssertionError("It raises nothing.")


def from_a_refusal() -> None:
    try:
        raise refusal("Throttling")
    except boto.ClientError as error:
        raise QueueUnavailable(*SAID) from error


def from_far_below() -> None:
    try:
        from_a_refusal()
    except QueueUnavailable as error:
        raise RuntimeError("The batch failed.") from error


def while_handling_a_fault() -> None:
    try:
        raise DOWN
    except OSError:
        raise KeyError("not even an answer")  # noqa: B904 - that it was raised without `from` is the case


def from_none() -> None:
    try:
        raise DOWN
    except OSError:
        raise KeyError("of the message's own doing") from None


def from_another_than_was_handled() -> None:
    try:
        raise DOWN
    except OSError:
        raise KeyError("x") from ValueError("y")


def malformed_from_the_outside() -> None:
    raise EnvelopeMalformed("It has no payload.") from DOWN


def in_a_ring() -> None:
    first, second = KeyError("hen"), ValueError("egg")
    first.__cause__, second.__cause__ = second, first
    raise first


@pytest.mark.parametrize(
    ("raising", "fault"),
    [
        (from_a_refusal, Fault.TRANSIENT),
        (from_far_below, Fault.TRANSIENT),
        (while_handling_a_fault, Fault.TRANSIENT),
        (from_none, Fault.UNKNOWN),
        (from_another_than_was_handled, Fault.UNKNOWN),
        (malformed_from_the_outside, Fault.MALFORMED),
        (in_a_ring, Fault.UNKNOWN),
    ],
)
@pytest.mark.timeout(10)
def test_an_error_is_what_it_was_raised_from(raising: Callable[[], None], fault: Fault) -> None:
    assert classify(caught(raising)) is fault
