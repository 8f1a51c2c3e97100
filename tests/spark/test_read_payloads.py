"""Reading payloads on real Spark: what is JSON by the letter of RFC 8259, and what is not."""

from datetime import UTC, datetime

from pyspark.sql import SparkSession

from leanops.standardized.flatten_plan import FlattenPlan
from leanops.standardized.transform import read_payloads
from tests.cases.payloads import CASES

RAW = (
    "message_id string, topic string, json_payload string, ingestion_ts long, publish_time timestamp, "
    "idempotency_key string, landing_seq long"
)


def test_a_payload_is_read_or_refused_with_its_reason(spark: SparkSession) -> None:
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    rows = [(f"m{place}", "t", case.payload, 1, moment, None, place) for place, case in enumerate(CASES)]
    read = read_payloads(spark.createDataFrame(rows, RAW), {"t": FlattenPlan().extended([("a",)])})
    found = {row.landing_seq: row for row in read.select("landing_seq", "error_kind", "json_payload").collect()}
    for place, case in enumerate(CASES):
        kind = found[place].error_kind
        assert (kind is None) == (case.valid and case.rule is None), case.name
        assert case.rule is None or kind == case.rule, case.name
        assert kind is None or found[place].json_payload == case.payload, case.name
