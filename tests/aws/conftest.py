"""What tests of the AWS side may ask for: a server that speaks like AWS, and calls that begin at the same moment."""

import os
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Barrier, Lock
from typing import Any

import pytest
from moto.server import ThreadedMotoServer


@dataclass(frozen=True)
class Server:
    """A server that speaks like AWS, in this process."""

    url: str

    def tell(self, what: str, body: str = "") -> None:
        request = urllib.request.Request(f"{self.url}/moto-api/{what}", body.encode(), {"Content-Type": "text/plain"})
        urllib.request.urlopen(request, timeout=10).close()


@pytest.fixture(scope="session")
def aws_server() -> Iterator[Server]:
    started = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    started.start()
    wsgi, lock = started._server, Lock()
    assert wsgi
    app = wsgi.app

    def one_request_at_a_time(*request: Any) -> Any:
        # AWS decides on a condition and writes in one; this server does the one after the other.
        with lock:
            return app(*request)

    wsgi.app = one_request_at_a_time
    yield Server("http://{}:{}".format(*started.get_host_and_port()))
    started.stop()
    wsgi.server_close()


@pytest.fixture(scope="module")
def aws_server_of_module(aws_server: Server) -> Iterator[Server]:
    """The same server. The clients that this process keeps do not outlive a file of tests: others have servers too."""
    yield aws_server
    from leanops_resources import s3
    from leanops_resources.state import dynamodb_table

    s3.client.cache_clear()
    dynamodb_table._client.cache_clear()


@pytest.fixture
def aws(aws_server_of_module: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Server:
    """The server, empty, as the only AWS that the environment knows."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ENDPOINT_URL", aws_server_of_module.url)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "no config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "no credentials"))
    aws_server_of_module.tell("reset")
    return aws_server_of_module


@pytest.fixture
def together() -> Callable[[Sequence[Callable[[], Any]]], list[Any]]:
    """What calls come back with, in order, when all begin at the same moment, each in a thread of its own."""

    def run(calls: Sequence[Callable[[], Any]]) -> list[Any]:
        start = Barrier(len(calls))

        def begin(call: Callable[[], Any]) -> Any:
            start.wait(timeout=30)
            return call()

        with ThreadPoolExecutor(len(calls)) as pool:
            return [future.result(timeout=60) for future in [pool.submit(begin, call) for call in calls]]

    return run
