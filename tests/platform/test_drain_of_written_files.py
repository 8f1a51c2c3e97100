"""`leanops drain` beside somebody who writes a file of the landing folder."""

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from leanops.home import Home
from leanops.names import Layer, table
from leanops.tables import find_table
from leanops_resources.catalog import LocalCatalog
from tests.conftest import Said
from tests.writing import Writers, writing

Leanops = Callable[..., Said]
LINES = 400


@pytest.fixture
def writers() -> Iterator[Writers]:
    with writing() as begin:
        yield begin


@pytest.fixture
def path(home: Home, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LEANOPS_LANDING_STILL_SECONDS", "0.2")
    (home.landing / "orders").mkdir()
    return home.landing / "orders" / "a.ndjson"


def envelope(number: int) -> str:
    fields = {"message_id": str(number), "publish_time": "2026-01-14T00:00:00Z", "payload": {"n": number}}
    return json.dumps(fields)


def landed(home: Home) -> Counter[str]:
    held = find_table(LocalCatalog(home).load(), table(Layer.RAW, "orders"))
    return Counter(held.scan(selected_fields=("message_id",)).to_arrow()["message_id"].to_pylist() if held else ())


def test_of_a_file_that_is_drained_half_way_every_message_lands(
    home: Home, path: Path, leanops: Leanops, writers: Writers
) -> None:
    parts = ["".join(f"{envelope(n)}~" for n in part) for part in (range(200), range(200, LINES))]
    writer = writers(path, parts)
    writer.write()
    said = leanops("drain")
    assert (said.exit_code, said.err) == (0, "")
    assert landed(home).total() == 200
    writer.write()
    writer.close()
    assert leanops("drain").exit_code == 0
    assert landed(home) == Counter(str(n) for n in range(LINES))
    assert list(path.parent.iterdir()) == []


def test_a_file_that_goes_on_being_written_is_named(home: Home, path: Path, leanops: Leanops) -> None:
    ended = threading.Event()

    def write_on() -> None:
        with path.open("ab", buffering=0) as file:
            while not ended.wait(0.01):
                file.write(b"\n")

    writing_on = threading.Thread(target=write_on)
    writing_on.start()
    while not path.exists():
        ended.wait(0.01)
    try:
        said = leanops("drain")
    finally:
        ended.set()
        writing_on.join()
    assert f"warning: {path} is being written: it is taken when it has been still for 0.2 s" in said.err
    assert "Nothing waits." in said.out
