"""Drain all that waits in a home or in queues, and say what it took: `python -m benchmarks.drain_once HOME [PREFIX]`.

A process of its own, so that its memory and its time on the processor are the drain's alone.
"""

import json
import resource
import sys
import time
from datetime import UTC, date, datetime
from pathlib import Path

from leanops.home import Home
from leanops_assets.raw.drain import Intake, drain
from leanops_resources.catalog import LocalCatalog
from leanops_resources.dlq_archive import dlq_archive
from leanops_resources.sources.sources import sources_of
from leanops_resources.state.sqlite import SqliteStateStore


def main(home: Home, prefix: str | None) -> None:
    """Drain once, and print what was measured as JSON."""
    sources = sources_of(home.path, prefix)
    intake = Intake(
        LocalCatalog(home).load(),
        SqliteStateStore(home.state),
        dlq_archive(home.dlq_archive),
        date(2025, 1, 1),
        lambda: datetime.now(UTC),
    )
    before = resource.getrusage(resource.RUSAGE_SELF)
    begun = time.perf_counter()
    drained = drain(intake, [sources.of(topic) for topic in sources.topics()], "the benchmark")
    seconds = time.perf_counter() - begun
    after = resource.getrusage(resource.RUSAGE_SELF)
    assert all(each.problem is None and each.skipped is None for each in drained), drained
    figures = {
        "messages": sum(each.landed.total() for each in drained),
        "topics": len(drained),
        "commits": sum(each.commits for each in drained),
        "seconds": seconds,
        "core_seconds": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "megabytes": (after.ru_maxrss - before.ru_maxrss) / 1024,
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main(Home(Path(sys.argv[1])).prepare(), sys.argv[2] if len(sys.argv) > 2 else None)
