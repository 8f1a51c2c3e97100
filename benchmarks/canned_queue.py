"""An SQS that costs next to nothing: it hands out the same envelopes, ready made, until so many are gone.

`python -m benchmarks.canned_queue COUNT` prints its port. Moto looks through its whole queue for every ten messages, so
what moto can hand out says little about who asks.
"""

import json
import sys
from hashlib import md5
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from typing import Any

from benchmarks.landing import payload_of

URL = "http://127.0.0.1/000000000000/bench-orders"
_BATCHES = 500


class CannedQueue:
    """What is left to be handed out."""

    def __init__(self, count: int) -> None:
        self.left = count
        self.given = 0
        self.lock = Lock()
        self.batches = [_batch(number) for number in range(_BATCHES)]

    def answer(self, action: str, request: dict[str, Any]) -> bytes:
        match action:
            case "ReceiveMessage":
                with self.lock:
                    if self.left <= 0:
                        return b"{}"
                    self.left -= 10
                    self.given += 1
                    number = self.given
                head, tail = self.batches[number % _BATCHES]
                return head.replace(b"#", b"%07d" % number) + tail
            case "DeleteMessageBatch":
                return json.dumps({"Successful": [{"Id": each["Id"]} for each in request["Entries"]]}).encode()
            case "GetQueueUrl":
                return json.dumps({"QueueUrl": URL}).encode()
            case "ListQueues":
                return json.dumps({"QueueUrls": [URL]}).encode()
            case _:
                return json.dumps({"Attributes": {"ApproximateNumberOfMessages": str(max(0, self.left))}}).encode()


def _batch(number: int) -> tuple[bytes, bytes]:
    messages = []
    for place in range(10):
        moment = f"2026-01-{14 + place % 3}T{number % 24:02}:{place:02}:00Z"
        envelope = {"message_id": f"m-{number}-{place}", "publish_time": moment, "payload": payload_of(number)}
        body = json.dumps(envelope)
        messages.append(
            {
                "MessageId": f"#-{place}",
                "ReceiptHandle": f"#-{place}",
                "MD5OfBody": md5(body.encode()).hexdigest(),
                "Body": body,
                "Attributes": {"ApproximateReceiveCount": "1"},
            }
        )
    return json.dumps({"Messages": messages}).encode(), b""


def main(count: int) -> None:
    """Serve until the process is ended."""
    queue = CannedQueue(count)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        wbufsize = 1 << 16

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            answer = queue.answer(self.headers["X-Amz-Target"].rpartition(".")[2], json.loads(body or b"{}"))
            self.send_response(200)
            self.send_header("Content-Type", "application/x-amz-json-1.0")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main(int(sys.argv[1]))
