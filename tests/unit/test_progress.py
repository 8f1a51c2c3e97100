"""Progress is seen on a terminal, and nowhere else."""

import io
import os
import sys
from contextlib import suppress

import pytest

from leanops.progress import at_stage, progress


def all_of(terminal: int) -> str:
    """What was written to a terminal that nobody has open any more."""
    written = b""
    with suppress(OSError):
        while part := os.read(terminal, 4096):
            written += part
    os.close(terminal)
    return written.decode()


def test_the_bar_on_a_terminal_says_what_is_done_now_whatever_becomes_of_stderr(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen, terminal = os.openpty()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    with os.fdopen(terminal, "w") as stderr, open(os.devnull, "w") as log:  # noqa: PTH123 - of no folder
        monkeypatch.setattr(sys, "stderr", stderr)
        with progress("Looking for what has landed"):
            # As Dagster does while a step is at work.
            os.dup2(log.fileno(), stderr.fileno())
            at_stage("Building curated of 3 topics", 3, 12)
    assert "Building curated of 3 topics" in all_of(seen)
    at_stage("Drawing up 6 ledgers", 6, 12)


def test_a_log_has_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    log = io.StringIO()
    monkeypatch.setattr(sys, "stderr", log)
    with progress("Looking for what has landed"):
        at_stage("Building curated of 3 topics", 3, 12)
    assert not log.getvalue()
