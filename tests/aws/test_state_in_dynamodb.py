"""What is DynamoDB's own. The suite that every state store passes is in test_state_stores.py."""

import json
import time
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from io import BytesIO
from typing import Any

import boto3
import pytest
from botocore.awsrequest import AWSResponse
from botocore.config import Config
from botocore.exceptions import ReadTimeoutError
from botocore.httpsession import URLLib3Session

from leanops.errors import StateStoreUnavailable
from leanops.ingestion.breaker import Breaker
from leanops_resources.state import dynamodb_table
from leanops_resources.state.dynamodb import DynamoStateStore
from leanops_resources.state.store import IDEMPOTENCY_TTL, LOCK_TTL, Delivery, Gate, GateStatus, Lock, Table
from tests.aws_faults import UNREACHABLE

NAME = "state-of.one_platform"
START = datetime(2026, 1, 31, 8, 15, 0, 250_000, tzinfo=UTC)
DAY = START.date()
QUICKLY = 10


class Body(BytesIO):
    """An answer's body, as botocore reads it."""

    def stream(self, **_: Any) -> Iterator[bytes]:
        yield self.read()


@pytest.fixture
def own_client(aws: object) -> Iterator[None]:
    """The client is made by this test, and used by no other."""
    dynamodb_table._client.cache_clear()
    yield
    dynamodb_table._client.cache_clear()


@pytest.fixture
def store(own_client: None) -> DynamoStateStore:
    made = DynamoStateStore(NAME, lambda: START)
    made.create_table()
    return made


def delivery(delivery_id: str = "d1", messages: dict[date, int] | None = None, replays: int = 0) -> Delivery:
    dead_letters = tuple(f"{number:032}" for number in range(replays))
    return Delivery(delivery_id, "orders", "the queue", Table.RAW, messages or {DAY: 3}, dead_letters)


def instead_of_sending(operation: str, act: Callable[[Any], AWSResponse | None]) -> None:
    dynamodb_table._client().meta.events.register(
        f"before-send.dynamodb.{operation}", lambda request, **_: act(request)
    )


def its_first_answer_is_lost(operation: str) -> None:
    """The first such request is carried out, and nobody hears of it."""
    sent: list[object] = []

    def send_and_hear_nothing(request: Any) -> None:
        if not sent:
            sent.append(URLLib3Session().send(request))
            raise ReadTimeoutError(endpoint_url=request.url)

    instead_of_sending(operation, send_and_hear_nothing)


def it_is_refused(operation: str, code: str, times: int, **more: Any) -> list[object]:
    """So many such requests are answered by an error. The list grows with each of them."""
    refused: list[object] = []

    def refuse(request: Any) -> AWSResponse | None:
        if len(refused) == times:
            return None
        refused.append(request)
        body = json.dumps({"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": "no", **more})
        return AWSResponse(request.url, 500 if code.startswith("Internal") else 400, {}, Body(body.encode()))

    instead_of_sending(operation, refuse)
    return refused


def asked(operation: str) -> list[dict[str, Any]]:
    """The list grows with each such request, and holds what it asks for."""
    seen: list[dict[str, Any]] = []
    dynamodb_table._client().meta.events.register(
        f"provide-client-params.dynamodb.{operation}", lambda params, **_: seen.append(params)
    )
    return seen


# The table


def test_the_table_is_made_as_the_documentation_says_and_once(store: DynamoStateStore) -> None:
    store.set_gate("orders", Gate(True, GateStatus.READY))
    store.create_table()
    client = boto3.client("dynamodb")
    table = client.describe_table(TableName=NAME)["Table"]
    assert table["KeySchema"] == [
        {"AttributeName": "pk", "KeyType": "HASH"},
        {"AttributeName": "sk", "KeyType": "RANGE"},
    ]
    (index,) = table["LocalSecondaryIndexes"]
    assert (index["IndexName"], index["KeySchema"][1]["AttributeName"]) == ("open", "open")
    assert table["BillingModeSummary"]["BillingMode"] == "PAY_PER_REQUEST"
    ttl = client.describe_time_to_live(TableName=NAME)["TimeToLiveDescription"]
    assert ttl == {"TimeToLiveStatus": "ENABLED", "AttributeName": "expires_at"}
    assert store.gates() == {"orders": Gate(True, GateStatus.READY)}


def test_only_idempotency_keys_are_removed_by_dynamodb_and_never_before_they_expire(store: DynamoStateStore) -> None:
    every_call(store)
    client = boto3.client("dynamodb")
    found = [item for page in client.get_paginator("scan").paginate(TableName=NAME) for item in page["Items"]]
    removed = {item["pk"]["S"]: int(item["expires_at"]["N"]) for item in found if "expires_at" in item}
    assert list(removed) == ["claim#k"]
    assert removed["claim#k"] >= (START + IDEMPOTENCY_TTL).timestamp()


def test_everything_is_read_as_it_is_now(store: DynamoStateStore) -> None:
    reads = [asked("GetItem"), asked("Query")]
    every_call(store)
    assert all(reads)
    assert all(read["ConsistentRead"] is True for each in reads for read in each)


def test_more_than_a_page_holds_is_read_to_its_end(store: DynamoStateStore) -> None:
    pages, long = asked("Query"), "x" * 100_000
    topics = [f"topic_{number:02}" for number in range(13)]
    for topic in topics:
        store.set_gate(topic, Gate(True, GateStatus.READY, long))
        store.save_breaker(topic, Breaker(reason=long))
        store.track_error(topic, topic, "malformed", long)
        store.open_delivery(Delivery(topic, topic, long, Table.RAW, {DAY: 1}))
    assert list(store.gates()) == list(store.breakers()) == topics
    assert [error.topic for error in store.open_errors()] == topics
    assert [each.topic for each in store.open_deliveries()] == topics
    assert [error.topic for error in store.open_errors("topic_12")] == ["topic_12"]
    assert len(pages) == 5 * 2


def test_errors_that_were_resolved_are_not_read_again(store: DynamoStateStore) -> None:
    store.track_errors((f"e{number}", "orders", "malformed", "x") for number in range(20))
    for number in range(19):
        store.resolve_error(f"e{number}")
    found = list(store._table.query("error", index="open"))
    assert [item["error_id"] for item in found] == ["e19"]
    assert len(list(store._table.query("error"))) == 20


# Limits


def test_the_longest_delivery_keeps_to_the_limits_of_a_transaction(store: DynamoStateStore) -> None:
    transactions = asked("TransactWriteItems")
    quarter = {date(2026, 7, 1) + timedelta(days=number): 1 for number in range(92)}
    others = {date(2001 + number // 4, 1 + number % 4 * 3, 1): 1 for number in range(98)}
    store.open_delivery(delivery(messages=quarter | others))
    assert store.count_delivery("d1")
    (transaction,) = transactions
    assert len(transaction["TransactItems"]) == 100
    assert max(len(each["Update"]["UpdateExpression"]) for each in transaction["TransactItems"][1:]) < 4096
    assert store.received("orders") == dict(sorted((quarter | others).items()))


def test_a_delivery_that_could_not_be_counted_at_once_is_not_opened(store: DynamoStateStore) -> None:
    many = {date(2001 + number // 4, 1 + number % 4 * 3, 1): 1 for number in range(100)}
    with pytest.raises(StateStoreUnavailable, match="100 quarters of years") as caught:
        store.open_delivery(delivery(messages=many))
    assert caught.value.hint
    assert store.open_deliveries() == []


def test_what_is_too_large_for_an_item_is_told_and_not_written(store: DynamoStateStore) -> None:
    for write in (
        lambda: store.set_gate("orders", Gate(True, GateStatus.READY, "x" * 500_000)),
        lambda: store.track_error("e1", "orders", "malformed", "x" * 500_000),
        lambda: store.open_delivery(delivery(replays=15_000)),
    ):
        with pytest.raises(StateStoreUnavailable, match="400 KB"):
            write()
    # Of what is changed and not put, this server leaves an empty item where DynamoDB leaves none.
    assert store.gates() == {}
    store.open_delivery(delivery("d2", replays=10_000))
    assert store.count_delivery("d2")


# Answers that are lost


def test_a_key_whose_claim_was_not_answered_is_claimed(store: DynamoStateStore) -> None:
    its_first_answer_is_lost("UpdateItem")
    assert store.claim("k")
    assert not store.claim("k")


def test_a_lock_whose_acquisition_was_not_answered_is_held(store: DynamoStateStore) -> None:
    its_first_answer_is_lost("UpdateItem")
    assert store.acquire("orders", "a") == Lock("orders", "a", 1, START + LOCK_TTL)
    assert store.acquire("orders", "a") is None


def test_a_lock_whose_renewal_or_release_was_not_answered_is_renewed_or_released(store: DynamoStateStore) -> None:
    lock = store.acquire("orders", "a")
    assert lock
    its_first_answer_is_lost("UpdateItem")
    renewed = store.renew(lock, timedelta(hours=1))
    assert store.holder("orders") == renewed
    its_first_answer_is_lost("UpdateItem")
    store.release(renewed)
    assert store.holder("orders") is None


def test_an_error_whose_tracking_was_not_answered_is_counted_once(store: DynamoStateStore) -> None:
    its_first_answer_is_lost("UpdateItem")
    assert store.track_error("e1", "orders", "malformed", "x").occurrences == 1
    its_first_answer_is_lost("UpdateItem")
    assert store.resolve_error("e1")


def test_a_delivery_whose_opening_was_not_answered_is_open_once(store: DynamoStateStore) -> None:
    its_first_answer_is_lost("UpdateItem")
    store.open_delivery(delivery("d1"))
    its_first_answer_is_lost("UpdateItem")
    store.open_delivery(delivery("d2"))
    assert [each.delivery_id for each in store.open_deliveries()] == ["d1", "d2"]


def test_a_delivery_whose_count_was_not_answered_is_counted_once(store: DynamoStateStore) -> None:
    store.open_delivery(delivery())
    requests = asked("TransactWriteItems")
    its_first_answer_is_lost("TransactWriteItems")
    # DynamoDB knows a request by its token and answers as it did before; this server does not.
    store.count_delivery("d1")
    assert len(requests) == 1
    assert store.received("orders") == {DAY: 3}
    assert store.open_deliveries() == []


# Refusals


def test_a_server_that_fails_for_a_moment_is_asked_again(store: DynamoStateStore) -> None:
    refused = it_is_refused("GetItem", "InternalServerError", times=2)
    assert store.gate("orders") is None
    assert len(refused) == 2


def test_transactions_that_meet_are_tried_again(store: DynamoStateStore) -> None:
    store.open_delivery(delivery())
    reasons = [{"Code": "None"}, {"Code": "TransactionConflict", "Message": "ongoing"}]
    refused = it_is_refused("TransactWriteItems", "TransactionCanceledException", 2, CancellationReasons=reasons)
    assert store.count_delivery("d1")
    assert len(refused) == 2
    assert store.received("orders") == {DAY: 3}


@pytest.mark.parametrize(("reason", "tries"), [("TransactionConflict", 8), ("ValidationError", 1)])
def test_a_transaction_that_is_refused_for_good_is_told_and_has_done_nothing(
    reason: str, tries: int, store: DynamoStateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.open_delivery(delivery())
    monkeypatch.setattr(dynamodb_table, "_FIRST_PAUSE_SECONDS", 0)
    reasons = [{"Code": "None"}, {"Code": reason, "Message": "no"}]
    refused = it_is_refused("TransactWriteItems", "TransactionCanceledException", 100, CancellationReasons=reasons)
    with pytest.raises(StateStoreUnavailable, match="TransactionCanceledException"):
        store.count_delivery("d1")
    assert len(refused) == tries
    assert store.open_deliveries() == [delivery()]
    assert store.received("orders") == {}


@pytest.mark.parametrize("code", ["ProvisionedThroughputExceededException", "ThrottlingException"])
def test_a_table_that_throttles_for_good_is_told_by_name(
    code: str, store: DynamoStateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    dynamodb_table._client.cache_clear()
    once = Config(retries={"mode": "standard", "total_max_attempts": 1})
    monkeypatch.setattr(dynamodb_table, "_PATIENCE", once)
    it_is_refused("UpdateItem", code, times=1)
    with pytest.raises(StateStoreUnavailable, match="on demand") as caught:
        store.claim("k")
    assert f"The table {NAME} in DynamoDB answered {code}: no." == caught.value.problem
    assert store.claim("k")


CALLS: dict[str, Callable[[DynamoStateStore], object]] = {
    "save_checkpoint": lambda store: store.save_checkpoint("orders", "standardized", 1, 2),
    "checkpoint": lambda store: store.checkpoint("orders", "standardized"),
    "acquire": lambda store: store.acquire("orders", "a"),
    "renew": lambda store: store.renew(Lock("orders", "a", 1, START)),
    "acquire_many": lambda store: store.acquire_many(["orders", "events"], "a"),
    "renew_many": lambda store: store.renew_many([Lock("orders", "a", 1, START)]),
    "release_many": lambda store: store.release_many([Lock("orders", "a", 1, START)]),
    "holder": lambda store: store.holder("orders"),
    "release": lambda store: store.release(Lock("orders", "a", 1, START)),
    "set_gate": lambda store: store.set_gate("orders", Gate(True, GateStatus.READY)),
    "gate": lambda store: store.gate("orders"),
    "gates": lambda store: store.gates(),
    "claim": lambda store: store.claim("k"),
    "track_error": lambda store: store.track_error("e1", "orders", "malformed", "x"),
    "track_errors": lambda store: store.track_errors([("e2", "orders", "malformed", "x")]),
    "open_errors": lambda store: store.open_errors(),
    "resolve_error": lambda store: store.resolve_error("e1"),
    "open_delivery": lambda store: store.open_delivery(delivery()),
    "note_deliveries": lambda store: store.note_deliveries([delivery("d2"), delivery("d3")]),
    "open_deliveries": lambda store: store.open_deliveries(),
    "count_delivery": lambda store: store.count_delivery("d1"),
    "count_deliveries": lambda store: store.count_deliveries(["d2", "d3"]),
    "drop_delivery": lambda store: store.drop_delivery("d1"),
    "received": lambda store: store.received("orders"),
    "received_by_topic": lambda store: store.received_by_topic(["orders", "events"]),
    "save_breaker": lambda store: store.save_breaker("orders", Breaker()),
    "save_breakers": lambda store: store.save_breakers({"orders": Breaker(), "events": Breaker()}),
    "breaker": lambda store: store.breaker("orders"),
    "breakers": lambda store: store.breakers(),
}


def every_call(store: DynamoStateStore) -> None:
    for call in CALLS.values():
        call(store)


@pytest.mark.usefixtures("own_client")
# Of a transaction this server gives it as the reason of a cancellation.
@pytest.mark.parametrize("name", [name for name in CALLS if name != "drop_delivery"])
def test_a_table_that_is_not_there_is_named_with_how_to_create_it(name: str) -> None:
    with pytest.raises(StateStoreUnavailable) as caught:
        CALLS[name](DynamoStateStore("nowhere"))
    assert caught.value.problem == "There is no table nowhere in DynamoDB, or not yet."
    assert 'Store("nowhere").create_table()' in caught.value.hint
    assert "LEANOPS_STATE" in caught.value.hint


@pytest.mark.usefixtures("own_client")
def test_a_table_with_another_key_is_told_by_name() -> None:
    boto3.client("dynamodb").create_table(
        TableName="other",
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
    )
    with pytest.raises(StateStoreUnavailable, match=r"The table other in DynamoDB answered ValidationException"):
        DynamoStateStore("other").gate("orders")


def test_credentials_that_are_not_known_are_told_by_name(store: DynamoStateStore, aws: Any) -> None:
    aws.tell("reset-auth", "0")
    try:
        with pytest.raises(StateStoreUnavailable, match="credentials") as caught:
            store.gates()
        assert caught.value.problem.startswith(f"The table {NAME} in DynamoDB answered ")
        assert "The security token included in the request is invalid." in caught.value.problem
    finally:
        aws.tell("reset-auth", "inf")


def no_region(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_DEFAULT_REGION")


@pytest.mark.usefixtures("own_client")
@pytest.mark.parametrize("spoil", [*UNREACHABLE, no_region])
def test_a_table_that_cannot_be_reached_is_told_by_name_and_soon(
    spoil: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil(monkeypatch)
    began = time.monotonic()
    with pytest.raises(StateStoreUnavailable, match="AWS_ENDPOINT_URL") as caught:
        DynamoStateStore(NAME).gates()
    assert "cannot be reached: " in caught.value.problem
    assert time.monotonic() - began < QUICKLY
