"""Contracts of as many topics as a benchmark asks for."""

import json
from pathlib import Path

TYPES = ("STRING", "BIGINT", "DECIMAL(18,2)", "TIMESTAMP", "BOOLEAN", "DOUBLE", "DATE")


def write_contracts(folder: Path, count: int) -> None:
    """`count` topics of 20 payload columns each."""
    for number in range(count):
        name = f"topic_{number:04}"
        contract = {
            "table_name": name,
            "version": 1,
            "owners": [f"team:team_{number % 30}"],
            "envelope_columns": [{"name": "idempotency_key", "source": "_metadata.idempotencyKeyResource"}],
            "payload_columns": [
                {"name": f"field_{place:02}", "type": TYPES[place % len(TYPES)], "cde": place < 3}
                for place in range(20)
            ],
        }
        file = folder / name / "active" / "schema.json"
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps(contract, indent=1))
