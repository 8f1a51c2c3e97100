"""The steps from RAW to Standardized on real Spark, against the oracle."""

import json
import random
from datetime import UTC, datetime

import pytest
from pyspark.sql import SparkSession

from leanops.standardized.flatten_plan import KEY_IN_PAYLOAD, FlatColumn, FlattenPlan
from leanops.standardized.transform import (
    first_copies,
    latest_versions,
    map_envelope,
    new_paths,
    parse_errors,
    read_payloads,
    readable,
)
from tests import oracle
from tests.cases.payloads import CASES
from tests.oracle import Message

RAW = (
    "message_id string, topic_name string, json_payload string, ingestion_ts long, publish_time timestamp, "
    "idempotency_key string, landing_seq long"
)
KEY_PATH = ("_metadata", "idempotencyKeyResource")
ENVELOPE = (FlatColumn(KEY_PATH, KEY_IN_PAYLOAD),)
FIELDS = ["a", "A", "a_b", "b", "message_id", "größe", "", "x.y", "a`b", 'q"x', "0k"]
VALUES = [1, "x", 'q"uo\\te', None, True, 1.5, [1, {"a": 2}], {}, "2024-01-01T10:00:00Z", 10**30, "\u2028", " "]


def test_a_payload_is_read_or_refused_with_its_reason(spark: SparkSession) -> None:
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    rows = [(f"m{place}", "t", case.payload, 1, moment, None, place) for place, case in enumerate(CASES)]
    read = spark.createDataFrame(rows, RAW).transform(read_payloads, FlattenPlan().extended([("a",)]))
    found = {row.landing_seq: row for row in read.select("landing_seq", "error_kind", "json_payload").collect()}
    for place, case in enumerate(CASES):
        kind = found[place].error_kind
        assert (kind is None) == (case.valid and case.rule is None), case.name
        assert case.rule is None or kind == case.rule, case.name
        assert kind is None or found[place].json_payload == case.payload, case.name


def random_message(rnd: random.Random, seq: int) -> Message:
    def members() -> dict[str, object]:
        return {rnd.choice([*FIELDS, f"k{rnd.randrange(40)}"]): rnd.choice(VALUES) for _ in range(rnd.randrange(3))}

    body: dict[str, object] = {**members(), rnd.choice(FIELDS): {**members(), rnd.choice(FIELDS): members()}}
    if rnd.random() < 0.8:
        body["_metadata"] = {"idempotencyKeyResource": rnd.choice([f"key{rnd.randrange(60)}", "", " ", None])}
    separators = rnd.choice([(",", ":"), (", ", ": "), (" , ", " : ")])
    text = json.dumps(body, ensure_ascii=rnd.random() < 0.5, separators=separators)
    if rnd.random() < 0.05:
        text = rnd.choice([text[:-1], text + "x", text.replace(":", "", 1), "[]", ""])
    return Message(
        message_id=f"m{rnd.randrange(170)}",
        payload=text,
        publish_time=datetime(2026, 1, rnd.randrange(1, 4), rnd.randrange(24), tzinfo=UTC),
        ingestion_ts=rnd.randrange(3),
        landing_seq=seq,
        idempotency_key=rnd.choice([None, None, f"key{rnd.randrange(60)}"]),
    )


SEEDS = [*range(6), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(6, 60))]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_history_becomes_what_the_oracle_says(spark: SparkSession, seed: int) -> None:
    rnd = random.Random(seed)
    messages = [random_message(rnd, seq) for seq in range(200)]
    start = FlattenPlan(ENVELOPE, cap=rnd.choice((6, 12, 1000)))
    expected = oracle.standardized(messages, {"idempotency_key": KEY_PATH}, start)

    rows = [
        (
            each.message_id,
            "t",
            each.payload,
            each.ingestion_ts,
            each.publish_time,
            each.idempotency_key,
            each.landing_seq,
        )
        for each in messages
    ]
    firsts = spark.createDataFrame(rows, RAW).transform(first_copies)
    plan = start.extended(new_paths(firsts.transform(read_payloads, start), start))
    assert plan == expected.plan

    read = firsts.transform(read_payloads, plan)
    assert {row.message_id for row in read.transform(parse_errors).collect()} == expected.refused
    flat = read.transform(readable).transform(map_envelope).transform(latest_versions)
    found = {row.idempotency_key: row.asDict() for row in flat.collect()}
    assert found.keys() == expected.rows.keys()
    for key, row in expected.rows.items():
        overflow = oracle.leaves((found[key]["overflow_json"] or "{}").encode())
        assert overflow == row.pop("overflow")
        row.pop(KEY_IN_PAYLOAD)
        for name, value in row.items():
            if value == oracle.ARRAY:
                assert json.loads(found[key][name]) == [1, {"a": 2}]
            else:
                assert found[key][name] == value, (key, name)
