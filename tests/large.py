"""Topics and files that are taken for large, whatever they hold."""

import pytest


def have_own_jobs(patch: pytest.MonkeyPatch, have: bool = True) -> None:
    """Whether every topic is built and accounted for by a job of its own, as a large one is, a few rows at a time."""
    if have:
        patch.setattr("leanops.batch.topics.LARGE_BYTES", -1)
        patch.setattr("leanops.batch.write.SHARE_BYTES", 1_000)


def leave_deletions_to_spark(patch: pytest.MonkeyPatch, leave: bool = True) -> None:
    """Whether files are too large to be written again for some rows that are taken out of them."""
    if leave:
        patch.setattr("leanops.batch.write.REWRITTEN_BYTES", -1)
