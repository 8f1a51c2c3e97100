"""The Firehose that takes messages to RAW. What it has no room for at the moment is put again."""

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from boto3.session import Session  # type: ignore[import-untyped]
from botocore.config import Config  # type: ignore[import-untyped]
from botocore.exceptions import BotoCoreError, ClientError  # type: ignore[import-untyped]
from tenacity import Retrying, retry_if_result, stop_before_delay, wait_random_exponential

from leanops.ingestion.faults import Fault, classify
from leanops_resources.whole_answers import only_whole_answers

_MOST_RECORDS = 500
# A call may have 4 MB, in which the records are written as base64.
_MOST_BYTES = 3_000_000
# Short beside the 30 s that a batch may take: there is time to try again.
_PATIENCE = Config(connect_timeout=2, read_timeout=5, retries={"mode": "standard", "total_max_attempts": 2})


def in_calls(records: Mapping[str, bytes]) -> Iterator[list[str]]:
    """The names of `records` in as few lists as there must be calls."""
    names: list[str] = []
    size = 0
    for name, record in records.items():
        if names and (len(names) == _MOST_RECORDS or size + len(record) > _MOST_BYTES):
            yield names
            names, size = [], 0
        names.append(name)
        size += len(record)
    if names:
        yield names


class Firehose:
    """A Firehose, until a deadline: nothing is tried again that could end behind it."""

    def __init__(self, name: str, deadline: float) -> None:
        self._name = name
        self._deadline = deadline

    @property
    def is_over(self) -> bool:
        """Whether the deadline has passed."""
        return time.monotonic() >= self._deadline

    def put(self, records: Sequence[bytes]) -> dict[int, Exception]:
        """Put records by one call, and again those that there was no room for; which were refused in the end, and why.

        Raises what refuses all of them for a reason that is not known to pass.
        """
        refused: dict[int, Exception] = {}
        busy: dict[int, Exception] = {}
        left = dict(enumerate(records))

        def attempt() -> bool:
            nonlocal busy, left
            faults = self._put(left)
            busy = {i: fault for i, fault in faults.items() if classify(fault) is Fault.TRANSIENT}
            refused.update({i: fault for i, fault in faults.items() if i not in busy})
            left = {i: left[i] for i in busy}
            return bool(busy)

        Retrying(
            retry=retry_if_result(bool),
            stop=stop_before_delay(max(0.0, self._deadline - time.monotonic())),
            wait=wait_random_exponential(0.2, max=5),
            retry_error_callback=lambda _: None,
        )(attempt)
        return refused | busy

    def put_all(self, records: Mapping[str, bytes]) -> dict[str, Exception]:
        """Put records by as many calls as they need; which were refused in the end, and why."""
        refused: dict[str, Exception] = {}
        for names in in_calls(records):
            try:
                faults = self.put([records[name] for name in names])
            except (BotoCoreError, ClientError) as error:
                faults = dict.fromkeys(range(len(names)), error)
            refused.update({names[i]: fault for i, fault in faults.items()})
        return refused

    def _put(self, records: Mapping[int, bytes]) -> dict[int, Exception]:
        try:
            answer = _client().put_record_batch(
                DeliveryStreamName=self._name, Records=[{"Data": record} for record in records.values()]
            )
        except (BotoCoreError, ClientError) as error:
            if classify(error) is Fault.TRANSIENT:
                return dict.fromkeys(records, error)
            raise
        return {
            i: ClientError({"Error": {"Code": each["ErrorCode"], "Message": each.get("ErrorMessage", "")}}, "PutRecord")
            for i, each in zip(records, answer["RequestResponses"], strict=True)
            if each.get("ErrorCode")
        }


@cache
def _client() -> Any:
    return only_whole_answers(Session().client("firehose", config=_PATIENCE))
