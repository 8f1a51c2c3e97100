"""Which sources a deployment drains: its queues where it has any, else the landing folder of its home."""

from pathlib import Path

from leanops.home import Home
from leanops.settings import STILL_SECONDS
from leanops_resources.sources.source import Sources


def sources_of(home: Path, queue_prefix: str | None, still_seconds: float = STILL_SECONDS) -> Sources:
    """The sources of a home, or the queues whose names begin so."""
    if queue_prefix is None:
        from leanops_resources.sources.folder import LandingFolder

        return LandingFolder(Home(home).prepare().landing, still_seconds)

    from leanops_resources.sources.sqs import SqsQueues

    return SqsQueues(queue_prefix)
