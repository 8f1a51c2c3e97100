"""One DynamoDB table: read consistently, written on conditions, its faults by name.

A request whose answer was lost is sent again, and may find its own work done. So every change leaves a token of its own
in the item: who is refused and finds that token there has been let in before. Transactions have theirs from botocore.
"""

import random
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from decimal import Decimal
from functools import cache
from typing import Any, NamedTuple
from uuid import uuid4

from boto3.dynamodb.types import TypeDeserializer, TypeSerializer  # type: ignore[import-untyped]
from boto3.session import Session  # type: ignore[import-untyped]
from botocore.config import Config  # type: ignore[import-untyped]
from botocore.exceptions import BotoCoreError, ClientError  # type: ignore[import-untyped]

from leanops.errors import StateStoreUnavailable

OPEN = "open"
"""An item with a text in this attribute is in the index of the same name; others are not."""
EXPIRES_AT = "expires_at"
"""DynamoDB removes an item some time after this second. Nobody judges by that whether something has expired."""

_PATIENCE = Config(connect_timeout=3, read_timeout=5, retries={"mode": "standard", "total_max_attempts": 4})
_TRANSACTION_TRIES = 8
_FIRST_PAUSE_SECONDS = 0.05
_WORTH_ANOTHER_TRY = {"TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"}
_THROTTLED = {"ProvisionedThroughputExceededException", "ThrottlingException", "RequestLimitExceeded"}
_HINT = (
    "Check the credentials, AWS_DEFAULT_REGION and AWS_ENDPOINT_URL, and that they allow what docs/settings.md lists "
    "under State in DynamoDB."
)

Item = dict[str, Any]
"""Attributes by name: texts, whole numbers, truth values and None."""


class Key(NamedTuple):
    """What an item is found by."""

    pk: str
    sk: str


class ItemTable:
    """A table of items with a `pk` and an `sk`. Nothing is asked of it before the first call."""

    def __init__(self, name: str) -> None:
        self._name = name

    def create(self) -> None:
        """Make the table, unless it is there, and wait until it can be used."""
        names = ("pk", "sk", OPEN)
        with self._asking() as db:
            with suppress(db.exceptions.ResourceInUseException):
                db.create_table(
                    TableName=self._name,
                    BillingMode="PAY_PER_REQUEST",
                    AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in names],
                    KeySchema=_key_schema("sk"),
                    LocalSecondaryIndexes=[
                        {"IndexName": OPEN, "KeySchema": _key_schema(OPEN), "Projection": {"ProjectionType": "ALL"}}
                    ],
                )
            db.get_waiter("table_exists").wait(TableName=self._name, WaiterConfig={"Delay": 2, "MaxAttempts": 60})
            ttl = db.describe_time_to_live(TableName=self._name)["TimeToLiveDescription"]
            if ttl["TimeToLiveStatus"] not in {"ENABLING", "ENABLED"}:
                db.update_time_to_live(
                    TableName=self._name,
                    TimeToLiveSpecification={"Enabled": True, "AttributeName": EXPIRES_AT},
                )

    def get(self, key: Key) -> Item | None:
        """The item, if there is one."""
        with self._asking() as db:
            found = db.get_item(TableName=self._name, Key=_wired(key._asdict()), ConsistentRead=True).get("Item")
        return _plain(found) if found else None

    def query(self, pk: str, index: str | None = None) -> Iterator[Item]:
        """All items of a `pk`, by `sk`; or those of them that are in the index."""
        where = {"IndexName": index} if index else {}
        with self._asking() as db:
            pages = db.get_paginator("query").paginate(
                TableName=self._name,
                KeyConditionExpression="pk = :pk",
                ExpressionAttributeValues=_wired({":pk": pk}),
                ConsistentRead=True,
                **where,
            )
            for page in pages:
                yield from map(_plain, page["Items"])

    def put(self, key: Key, item: Mapping[str, Any]) -> None:
        """Write an item over whatever is there."""
        with self._asking() as db:
            db.put_item(TableName=self._name, Item=_wired({**key._asdict(), **item}))

    def change(
        self, key: Key, what: str, values: Mapping[str, Any], *, only_if: str | None = None, then: str = ""
    ) -> Item | None:
        """The item after the change, or None if the condition does not hold. One that is not there is made.

        Attributes are written `#name`, since many plain names are reserved words, and values `:name`.
        """
        token = uuid4().hex
        update = f"SET #token = :token, {what} {then}".strip()
        condition = "(attribute_not_exists(#token) OR #token <> :token)" + (f" AND ({only_if})" if only_if else "")
        with self._asking() as db:
            try:
                answer = db.update_item(
                    TableName=self._name,
                    Key=_wired(key._asdict()),
                    UpdateExpression=update,
                    ConditionExpression=condition,
                    ExpressionAttributeNames={f"#{name}": name for name in re.findall(r"#(\w+)", update + condition)},
                    ExpressionAttributeValues=_wired({f":{name}": v for name, v in {**values, "token": token}.items()}),
                    ReturnValues="ALL_NEW",
                    ReturnValuesOnConditionCheckFailure="ALL_OLD",
                )
            except db.exceptions.ConditionalCheckFailedException as refusal:
                found = _plain(refusal.response.get("Item", {}))
                return found if found.get("token") == token else None
        return _plain(answer["Attributes"])

    def remove_and_add(self, key: Key, amounts: Mapping[Key, Mapping[str, int]]) -> bool:
        """Remove an item and add to numbers of others, all at once. False, and nothing is done, if it is not there."""
        removal = {"TableName": self._name, "Key": _wired(key._asdict()), "ConditionExpression": "attribute_exists(pk)"}
        writes = [{"Delete": removal}, *({"Update": self._addition(each, to)} for each, to in amounts.items())]
        tries = 0
        while True:
            tries += 1
            with self._asking() as db:
                try:
                    db.transact_write_items(TransactItems=writes)
                except db.exceptions.TransactionCanceledException as cancelled:
                    reasons = {reason["Code"] for reason in cancelled.response["CancellationReasons"]} - {"None"}
                    if "ConditionalCheckFailed" in reasons:
                        return False
                    if tries == _TRANSACTION_TRIES or not reasons <= _WORTH_ANOTHER_TRY:
                        raise
                else:
                    return True
            time.sleep(random.uniform(0, _FIRST_PAUSE_SECONDS * 2**tries))  # noqa: S311 - nobody guards by it

    def _addition(self, key: Key, amounts: Mapping[str, int]) -> dict[str, Any]:
        numbered = list(enumerate(amounts.items()))
        return {
            "TableName": self._name,
            "Key": _wired(key._asdict()),
            "UpdateExpression": "ADD " + ", ".join(f"#{number} :{number}" for number, _ in numbered),
            "ExpressionAttributeNames": {f"#{number}": name for number, (name, _) in numbered},
            "ExpressionAttributeValues": _wired({f":{number}": amount for number, (_, amount) in numbered}),
        }

    @contextmanager
    def _asking(self) -> Iterator[Any]:
        """The client. What it cannot do is told by a named error."""
        try:
            yield _client()
        except ClientError as error:
            raise self._named(error) from error
        except BotoCoreError as error:
            raise self._unavailable(f"cannot be reached: {error}") from error

    def _named(self, error: ClientError) -> StateStoreUnavailable:
        code, message = (error.response["Error"].get(part, "") for part in ("Code", "Message"))
        if code == "ResourceNotFoundException":
            return StateStoreUnavailable(
                f"There is no table {self._name} in DynamoDB, or not yet.",
                "Create it, as docs/settings.md says under State in DynamoDB, with python -c 'from "
                "leanops_resources.state.dynamodb import DynamoStateStore as Store; "
                f'Store("{self._name}").create_table()\', or point LEANOPS_STATE at one that exists.',
            )
        answered = f"answered {code}: {message}"
        if code in _THROTTLED:
            return self._unavailable(answered, "Bill it on demand, or give it more capacity; then run the same again.")
        if "size" in message.lower() and "exceeded" in message.lower():
            return self._unavailable(
                answered, "Nothing was written: an item holds 400 KB. Do the same for less at a time."
            )
        return self._unavailable(answered)

    def _unavailable(self, what: str, hint: str = _HINT) -> StateStoreUnavailable:
        return StateStoreUnavailable(f"The table {self._name} in DynamoDB {what.strip().rstrip('.')}.", hint)


@cache
def _client() -> Any:
    """One for the process, whatever the thread: it takes longer to make than most requests."""
    try:
        return Session().client("dynamodb", config=_PATIENCE)
    except ValueError as error:
        raise StateStoreUnavailable(f"DynamoDB cannot be reached: {error}.", _HINT) from error


def _key_schema(sort_key: str) -> list[dict[str, str]]:
    return [{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": sort_key, "KeyType": "RANGE"}]


def _wired(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values as DynamoDB takes them."""
    serialize = TypeSerializer().serialize
    return {name: serialize(value) for name, value in values.items()}


def _plain(values: Mapping[str, Any]) -> Item:
    """Values as DynamoDB gives them, as Python's own. Every number here is a whole one."""
    found = {name: TypeDeserializer().deserialize(value) for name, value in values.items()}
    return {name: int(value) if isinstance(value, Decimal) else value for name, value in found.items()}
