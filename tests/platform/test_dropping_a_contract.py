"""A contract is dropped into a folder while the UI runs, and its topic is in the graph. Nobody touches a console."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest

from leanops.home import Home
from tests.faults.test_dev import free_port
from tests.platform.test_contract_life import TOPIC, VERSION_1

PATIENCE_SECONDS = 240


def assets(port: int) -> set[str]:
    """What the UI shows in its graph; nothing while it is not up."""
    query = json.dumps({"query": "{ assetNodes { assetKey { path } } }"}).encode()
    request = Request(f"http://127.0.0.1:{port}/graphql", query, {"Content-Type": "application/json"})
    try:
        with urlopen(request, timeout=30) as answer:
            nodes = json.load(answer)["data"]["assetNodes"]
    except (URLError, ConnectionError, TimeoutError):
        return set()
    return {"/".join(node["assetKey"]["path"]) for node in nodes}


def wait_for(port: int, asset: str, dev: subprocess.Popen[bytes]) -> None:
    give_up = time.monotonic() + PATIENCE_SECONDS
    while asset not in assets(port):
        assert dev.poll() is None
        assert time.monotonic() < give_up, f"{asset} is not in the graph"
        time.sleep(0.5)


@pytest.mark.long
@pytest.mark.timeout(3 * PATIENCE_SECONDS)
def test_a_contract_that_is_dropped_is_in_the_graph_by_itself(home: Home, tmp_path: Path) -> None:
    schemas, port = tmp_path / "schemas", free_port()
    pending = schemas / TOPIC / "pending"
    pending.mkdir(parents=True)
    environment = {**os.environ, "LEANOPS_PORT": str(port), "LEANOPS_SCHEMAS": str(schemas)}
    with (tmp_path / "said").open("w") as said:
        leanops = Path(sys.executable).with_name("leanops")
        dev = subprocess.Popen([leanops, "dev"], env=environment, stdout=said, stderr=said)
        try:
            wait_for(port, f"raw/{TOPIC}", dev)
            assert f"curated/{TOPIC}" not in assets(port)
            (pending / "schema.json").write_text(json.dumps(VERSION_1))
            wait_for(port, f"curated/{TOPIC}", dev)
        finally:
            dev.send_signal(signal.SIGINT)
            dev.wait(60)
    assert json.loads((schemas / TOPIC / "active" / "schema.json").read_text()) == VERSION_1
    assert home.catalog.exists()
