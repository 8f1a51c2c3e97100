"""An AWS that cannot be reached, or breaks off: what every client of it has to tell by name."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import pytest


def no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")


def no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{probe.getsockname()[1]}")


def no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "localhost:9000")


def no_such_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nobody")


UNREACHABLE = [no_credentials, no_server, no_address, no_such_profile]


@contextmanager
def an_answer_that_breaks_off(content: bytes, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The only server there is promises an object of a thousand bytes, once, and sends fewer."""

    class BreaksOff(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.send_header("ETag", '"x"')
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), BreaksOff) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
        thread = Thread(target=server.handle_request)
        thread.start()
        yield
        thread.join(timeout=10)
