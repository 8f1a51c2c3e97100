"""A proxy in front of a server that speaks like AWS, which can be told what goes wrong with the next requests."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock, Thread
from typing import Any, NamedTuple
from urllib.parse import urlsplit


class Answer(NamedTuple):
    """What is said to a request; None instead of one closes the connection."""

    status: int
    body: bytes
    cut_off: bool = False
    """Whether the connection breaks off in the middle of it."""


@dataclass
class Request:
    """A request on its way, with what is asked for."""

    operation: str
    body: dict[str, Any]
    send: Callable[[dict[str, Any]], Answer]
    """Ask the server behind the proxy."""


Act = Callable[[Request], Answer | None]


@dataclass
class Fault:
    """Something that goes wrong with some requests of a kind."""

    operation: str
    act: Act
    after: int
    times: int


@dataclass
class Proxy:
    """Where requests go wrong as they are told to. It remembers all of them."""

    url: str = ""
    requests: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    released: Event = field(default_factory=Event)
    """Set when a test is over, for requests that hang."""
    _faults: list[Fault] = field(default_factory=list)
    _lock: Any = field(default_factory=Lock)

    def fail(self, operation: str, act: Act, after: int = 0, times: int = 1) -> None:
        """Let so many of the next requests of a kind go wrong, when some have gone well."""
        self._faults.append(Fault(operation, act, after, times))

    def forget(self) -> None:
        """Begin anew, for the next test."""
        self.released.set()
        self.released = Event()
        self.requests.clear()
        self._faults.clear()

    def asked(self, operation: str) -> list[dict[str, Any]]:
        return [body for name, body in self.requests if name == operation]

    def answer(self, request: Request) -> Answer | None:
        with self._lock:
            self.requests.append((request.operation, request.body))
            act = self._next(request.operation)
        return act(request) if act else request.send(request.body)

    def _next(self, operation: str) -> Act | None:
        for fault in self._faults:
            if fault.operation == operation and fault.times:
                if fault.after:
                    fault.after -= 1
                    return None
                fault.times -= 1
                return fault.act
        return None

    def hangs(self, _: Request) -> None:
        """Nobody answers."""
        self.released.wait(timeout=60)


def refuses(code: str, status: int = 400) -> Act:
    """The server says no, and does nothing."""
    body = json.dumps({"__type": f"com.amazonaws#{code}", "message": f"It is {code}."}).encode()
    return lambda _: Answer(status, body)


def loses_the_answer(request: Request) -> None:
    """The server does it, and nobody hears of it."""
    request.send(request.body)


def cuts_the_answer_off(request: Request) -> Answer:
    """The connection breaks off in the middle of the answer."""
    return request.send(request.body)._replace(cut_off=True)


def refuses_entries(count: int, sender_fault: bool) -> Act:
    """The first entries of a batch fail, and are not done."""

    def act(request: Request) -> Answer:
        entries = request.body["Entries"]
        said = json.loads(request.send({**request.body, "Entries": entries[count:]}).body) if entries[count:] else {}
        failed = [
            {"Id": entry["Id"], "SenderFault": sender_fault, "Code": "InternalError", "Message": "Not now."}
            for entry in entries[:count]
        ]
        return Answer(200, json.dumps({"Successful": [], **said, "Failed": failed}).encode())

    return act


def refuses_records(refused: Callable[[bytes], bool], code: str) -> Act:
    """A Firehose has no place for some records of a batch."""
    from base64 import b64decode

    def act(request: Request) -> Answer:
        records = request.body["Records"]
        wrong = {place for place, record in enumerate(records) if refused(b64decode(record["Data"]))}
        others = [record for place, record in enumerate(records) if place not in wrong]
        said = json.loads(request.send({**request.body, "Records": others}).body)["RequestResponses"] if others else []
        taken = iter(said)
        responses = [
            {"ErrorCode": code, "ErrorMessage": "Slow down."} if place in wrong else next(taken)
            for place in range(len(records))
        ]
        return Answer(200, json.dumps({"FailedPutCount": len(wrong), "RequestResponses": responses}).encode())

    return act


@contextmanager
def proxy_to(upstream: str) -> Iterator[Proxy]:
    """A proxy to the server at `upstream`, while it lasts."""
    proxy = Proxy()
    host = urlsplit(upstream).netloc

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            target = self.headers.get("X-Amz-Target", "")
            request = Request(target.rpartition(".")[2], json.loads(content), self._send)
            said = proxy.answer(request)
            if said is None:
                self.close_connection = True
                return
            self.close_connection = self.close_connection or said.cut_off
            self.send_response(said.status)
            self.send_header("Content-Type", "application/x-amz-json-1.0")
            self.send_header("Content-Length", str(len(said.body)))
            # Who was asked may no longer wait for the answer.
            with suppress(ConnectionError):
                self.end_headers()
                self.wfile.write(said.body[: len(said.body) // 2] if said.cut_off else said.body)

        def _send(self, body: dict[str, Any]) -> Answer:
            connection = HTTPConnection(host, timeout=30)
            try:
                content = json.dumps(body).encode()
                headers = {**dict(self.headers.items()), "Content-Length": str(len(content))}
                connection.request("POST", self.path, content, headers)
                answer = connection.getresponse()
                return Answer(answer.status, answer.read())
            finally:
                connection.close()

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    proxy.url = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield proxy
    finally:
        proxy.released.set()
        server.shutdown()
        thread.join(timeout=10)
        server.server_close()
