"""A dead letter as a row of `iceberg_raw_db.dlq_errors`, made here and in the Lambdas, which know no tables."""

from datetime import datetime
from hashlib import sha256
from typing import Any

from leanops.ingestion.processor import DeadLetter


def dead_letter_row(
    letter: DeadLetter, body_archive: str, source: str, delivery_id: str, received: datetime
) -> dict[str, Any]:
    """What is known of a dead letter that nobody has looked at yet."""
    return {
        "dead_letter_id": letter.dead_letter_id,
        "topic_name": letter.message.topic,
        "day": letter.day,
        "message_id": letter.message_id,
        "idempotency_key": letter.idempotency_key,
        "received": received,
        "fault": letter.fault.value,
        "reason": letter.reason,
        "receives": letter.message.receives,
        "source": source,
        "handle": letter.message.handle,
        "body_archive": body_archive,
        "body_bytes": len(letter.message.body),
        "body_sha256": sha256(letter.message.body).hexdigest(),
        "delivery_id": delivery_id,
        "replays": 0,
    }
