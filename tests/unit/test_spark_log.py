"""The log of a server that runs for months."""

from pathlib import Path

import pytest

from leanops_resources.spark import keeper


def test_a_log_that_has_grown_long_begins_anew_and_the_last_one_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper, "_LOG_BYTES", 20)
    log = tmp_path / "spark.log"
    with log.open("ab", buffering=0) as written:
        for number in range(7):
            written.write(b"line %d\n" % number)
            keeper.keep_short(log)
    assert log.read_text() == "line 6\n"
    assert (tmp_path / "spark.log.1").read_text() == "line 3\nline 4\nline 5\n"
