"""Topics that are taken for large, whatever they hold."""

import pytest


def have_own_jobs(patch: pytest.MonkeyPatch, have: bool = True) -> None:
    """Whether every topic is built and accounted for by a job of its own, as a large one is, a few rows at a time."""
    if have:
        patch.setattr("leanops.batch.topics.LARGE_BYTES", -1)
        patch.setattr("leanops.batch.write.SHARE_BYTES", 1_000)
        patch.setattr("leanops.ledger.shares.SHARE_ROWS", 3)
