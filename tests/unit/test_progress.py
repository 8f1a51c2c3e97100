"""Progress is seen on a terminal, and nowhere else."""

import io
import sys

import pytest

from leanops.progress import at_stage, progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_bar_on_a_terminal_says_what_is_done_now(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    with progress("Looking for what has landed"):
        at_stage("Building curated of 3 topics", 3, 12)
    assert "Building curated of 3 topics" in terminal.getvalue()
    written = terminal.getvalue()
    at_stage("Drawing up 6 ledgers", 6, 12)
    assert terminal.getvalue() == written


def test_a_log_has_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    log = io.StringIO()
    monkeypatch.setattr(sys, "stderr", log)
    with progress("Looking for what has landed"):
        at_stage("Building curated of 3 topics", 3, 12)
    assert not log.getvalue()
