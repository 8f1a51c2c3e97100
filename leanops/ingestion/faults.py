"""What kind of fault an error is, and so what becomes of the message that met it.

| fault | what | what becomes of the message |
|---|---|---|
| malformed | the message itself is wrong | a dead letter at once: it would be wrong again |
| transient | the outside throttles, times out, is busy, full or gone | tried again, with growing pauses and jitter |
| unknown | anything else | goes back to its queue, and is a dead letter after `MOST_RECEIVES` deliveries |
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import Any

from leanops.errors import (
    ArchiveUnavailable,
    DiskFull,
    HomeNotWritable,
    LandingConflict,
    StateBusy,
    StateCorrupt,
    StateStoreUnavailable,
)
from leanops.raw.envelope import EnvelopeMalformed

MOST_RECEIVES = 5
"""A message that has failed for an unknown reason at so many deliveries is a dead letter."""

# No message is to blame for what a disk or a network does, whatever it is: a time-out is an OSError, too.
_TRANSIENT = (
    OSError,
    ArchiveUnavailable,
    DiskFull,
    HomeNotWritable,
    LandingConflict,
    StateBusy,
    StateCorrupt,
    StateStoreUnavailable,
)
# The classes of botocore, PyIceberg, databases and the state store, by name: a Lambda does not import them all.
_TRANSIENT_NAMES = {
    "AuthorizationExpiredError",
    "CommitFailedException",
    "CommitStateUnknownException",
    "ConnectionError",
    "HTTPClientError",
    "IncompleteReadError",
    "LockLost",
    "OperationalError",
    "ServerError",
    "ServiceUnavailableError",
    "TooManyRequestsError",
    "WaitingForLockException",
}
_TRANSIENT_CODES = {
    "BandwidthLimitExceeded",
    "EC2ThrottledException",
    "ExpiredToken",
    "ExpiredTokenException",
    "InternalError",
    "InternalFailure",
    "KmsThrottled",
    "LimitExceededException",
    "OverLimit",
    "PriorRequestNotComplete",
    "ProvisionedThroughputExceededException",
    "RequestExpired",
    "RequestLimitExceeded",
    "RequestThrottled",
    "RequestThrottledException",
    "RequestTimeTooSkewed",
    "RequestTimeout",
    "RequestTimeoutException",
    "ServiceUnavailable",
    "ServiceUnavailableException",
    "SlowDown",
    "ThrottledException",
    "Throttling",
    "ThrottlingException",
    "TooManyRequestsException",
    "TransactionInProgressException",
}


class Fault(StrEnum):
    """The three kinds of faults."""

    MALFORMED = "malformed"
    TRANSIENT = "transient"
    UNKNOWN = "unknown"


def classify(error: BaseException) -> Fault:
    """The kind of fault that `error` is, by itself or by what it was raised from."""
    for each in _causes(error):
        if isinstance(each, EnvelopeMalformed):
            return Fault.MALFORMED
        if _is_transient(each):
            return Fault.TRANSIENT
    return Fault.UNKNOWN


def _is_transient(error: BaseException) -> bool:
    if isinstance(error, _TRANSIENT) or _TRANSIENT_NAMES & {each.__name__ for each in type(error).__mro__}:
        return True
    response: Any = getattr(error, "response", None)
    if not isinstance(response, dict):
        return False
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return response.get("Error", {}).get("Code") in _TRANSIENT_CODES or status == 429 or status >= 500


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """The error, what it was raised from or while handling, and so on; each once, for they can form a ring."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ if error.__suppress_context__ else error.__context__
