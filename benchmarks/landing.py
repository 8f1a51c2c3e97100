"""How fast envelopes land in RAW, from file to commit, against reading the same file with Python's own JSON."""

import json
import time
from datetime import date
from pathlib import Path

from benchmarks.report import Section
from leanops.home import Home
from leanops.raw.landing import land_file
from leanops_resources.catalog import LocalCatalog

MESSAGES = 200_000


def measure(folder: Path) -> Section:
    """Land a file of messages over three days, once for warmth and once for the clock."""
    file = folder / "messages.ndjson"
    write_messages(file, MESSAGES)
    home = Home(folder / "home").prepare()
    catalog = LocalCatalog(home).load()
    land_file(catalog, "warm", file, date(2025, 1, 1))
    begun = time.perf_counter()
    land_file(catalog, "orders", file, date(2025, 1, 1))
    landed = time.perf_counter() - begun
    begun = time.perf_counter()
    with file.open() as lines:
        for line in lines:
            json.loads(line)
    plain = time.perf_counter() - begun
    return Section(
        "Landing",
        ("what", "seconds", "messages a second", "ratio"),
        [
            ("json.loads of every line, nothing else", f"{plain:.2f}", f"{MESSAGES / plain:,.0f}", "1.00"),
            ("leanops land, checked, committed", f"{landed:.2f}", f"{MESSAGES / landed:,.0f}", f"{landed / plain:.2f}"),
        ],
        f"{MESSAGES:,} messages of about 350 bytes on three publish days. A file is read twice: once to find every bad "
        "line, once to land.",
    )


def write_messages(file: Path, count: int) -> None:
    """Envelopes with payloads of about 350 bytes."""
    with file.open("w") as lines:
        for number in range(count):
            payload = payload_of(number)
            moment = f"2026-01-{14 + number % 3}T{number % 24:02}:{number % 60:02}:00Z"
            lines.write(json.dumps({"message_id": f"m-{number}", "publish_time": moment, "payload": payload}) + "\n")


def payload_of(number: int) -> dict[str, object]:
    """A payload of 14 fields, nested two levels deep."""
    return {
        "_metadata": {"idempotencyKeyResource": f"order/{number}", "correlationId": f"c-{number % 1000}"},
        "event": {
            "timestamp": "2026-01-14T08:15:00.123Z",
            "userId": f"u-{number % 5000}",
            "eventType": "purchase",
            "metadata": {"ipAddress": "203.0.113.7", "deviceId": f"d-{number % 700}", "userAgent": "Mozilla/5.0"},
        },
        "amount": number / 100,
        "currency": "EUR",
        "quantity": number % 9,
        "gift": number % 2 == 0,
        "items": [{"sku": "kettle", "qty": 1}],
        "note": "thank you",
        "sessionId": f"s-{number % 9000}",
    }
