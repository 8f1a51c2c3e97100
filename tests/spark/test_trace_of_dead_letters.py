"""The story of a message that was a dead letter is told from when it came, and goes on in RAW once it was replayed."""

import pytest
from pyspark.sql import SparkSession

from leanops.contracts.manifest import Topic
from leanops.home import Home
from leanops.ledger.trace import trace
from tests.draining import envelope
from tests.replaying import Letters

TOPICS = [Topic(name="orders", contract=None), Topic(name="payments", contract=None)]


@pytest.fixture
def letters(shared_home: Home) -> Letters:
    return Letters(shared_home)


def test_a_dead_letter_is_part_of_its_messages_story(letters: Letters, shared_spark: SparkSession) -> None:
    def told(name: str, *only: str, topics: list[Topic] = TOPICS) -> list[tuple[str, str]]:
        events = trace(shared_spark, letters.catalog, topics, name, only)
        return [(event.topic, event.what) for event in events]

    body = b'{"message_id": "m1", "publish_time": "never", "payload": {}}'
    [each] = letters.bury(body)
    letters.bury(body, topic="payments")
    assert [topic for topic, _ in told("m1")] == ["orders"] * 4 + ["payments"] * 4
    assert [topic for topic, _ in told("m1", "payments")] == ["payments"] * 4
    # A topic may have nothing but dead letters.
    assert told("m1", topics=[]) == told("m1")
    assert told("good0", "orders")[0][1].startswith("good0, published 2025-03-01T12:00:00.000Z, landed in RAW")

    letters.replay([each], {each: envelope("m1")})
    came, archived, replayed, landed, waits = (what for _, what in told("m1", "orders"))
    assert came.startswith(f"came from landing/orders and became dead letter {each} at ")
    assert archived.startswith(f"its body, {len(body)} bytes as they came, was put to ")
    assert replayed.startswith("was brought to RAW as m1 at ")
    assert landed.startswith("m1, published 2025-03-01T12:00:00.000Z, landed in RAW as number 2 by snapshot ")
    assert waits == "waits in RAW until the topic has an active contract"
    assert [topic for topic, _ in told("m1")] == ["orders"] * 5 + ["payments"] * 4
    assert [what for _, what in told(each)] == [came, archived, replayed]
