"""The same messages into an Iceberg table by dlt, merged by key. Runs in an environment of its own.

`dlt_job.py MESSAGES WORK ROUNDS` prints one line of JSON: the versions, the seconds of each round's loads, and the file
of the last round's rows as plain Parquet. Written as dlt's guides do: JSON is read by dlt's own module, rows are
yielded by the page, and a message whose JSON is broken is skipped, for otherwise the load would fail as a whole.
"""

import json
import os
import sys
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

PAGE = 10_000


def main(messages: Path, work: Path, rounds: int) -> None:
    """Load a small table for warmth, then both halves into a new table in each round."""
    os.environ |= {"DLT_DATA_DIR": str(work / "dlt"), "RUNTIME__DLTHUB_TELEMETRY": "false"}
    import pyarrow.parquet as pq
    from dlt.common.libs.pyiceberg import get_iceberg_tables  # type: ignore[import-not-found]

    _load_both(messages / "warm", work, "warm")
    seconds = []
    for number in range(rounds):
        taken, pipeline = _load_both(messages / "messages", work, f"round_{number}")
        seconds.append(taken)
    rows = work / "rows.parquet"
    pq.write_table(get_iceberg_tables(pipeline, "messages")["messages"].scan().to_arrow(), rows)
    versions = {name: version(name) for name in ("dlt", "pyiceberg")}
    print(json.dumps({"versions": versions, "seconds": seconds, "rows": str(rows)}))


def _load_both(messages: Path, work: Path, name: str) -> tuple[list[float], Any]:
    import dlt  # type: ignore[import-not-found]

    lake = dlt.destinations.filesystem(bucket_url=(work / "lake").as_uri())
    pipeline = dlt.pipeline(name, destination=lake, dataset_name=name, pipelines_dir=str(work / "pipelines"))
    merged = dlt.resource(
        _pages,
        name="messages",
        primary_key="idempotency_key",
        write_disposition={"disposition": "merge", "strategy": "upsert"},
        table_format="iceberg",
        # A list as JSON in its row's column, as the other tables have it, and not as rows of a table of its own.
        columns={"items": {"data_type": "json"}, "publish_time": {"data_type": "timestamp"}},
    )
    seconds = []
    for half in ("first", "second"):
        begun = time.perf_counter()
        pipeline.run(merged(messages / f"{half}.ndjson")).raise_on_failed_jobs()
        seconds.append(time.perf_counter() - begun)
    return seconds, pipeline


def _pages(file: Path) -> Iterator[list[dict[str, Any]]]:
    """The latest version of each key: `upsert` does not look for keys that come twice, and PyIceberg refuses them."""
    from dlt.common.json import json as fast  # type: ignore[import-not-found]

    latest: dict[str, dict[str, Any]] = {}
    with file.open("rb") as lines:
        for line in lines:
            envelope = fast.loadb(line)
            try:
                payload = fast.loads(envelope["payload"])
            except ValueError:
                continue
            key = payload["_metadata"]["idempotencyKeyResource"]
            if key not in latest or latest[key]["publish_time"] < envelope["publish_time"]:
                row = {name: envelope[name] for name in ("message_id", "publish_time", "ingestion_ts")}
                latest[key] = {**payload, **row, "idempotency_key": key}
    rows = list(latest.values())
    for first in range(0, len(rows), PAGE):
        yield rows[first : first + PAGE]


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
