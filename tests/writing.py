"""A process that writes a file of messages, part by part, while tests drain it."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

# A process that writes a part of its input for each byte that it is sent, and says when it has.
WRITER = """
import os, sys
path, how = sys.argv[1:]
parts = sys.stdin.buffer.readline().decode().rstrip().split("|")
kept = None if how == "opens anew" else open(path, "ab", buffering=0)
for part in parts:
    print("ready", flush=True)
    if not sys.stdin.buffer.readline():
        break
    with open(path, "ab", buffering=0) if kept is None else kept.__class__(os.dup(kept.fileno()), "wb") as file:
        file.write(part.replace("~", "\\n").encode())
print("done", flush=True)
sys.stdin.buffer.readline()
"""


class Writer:
    """A writer in a process of its own. `~` stands for the end of a line."""

    def __init__(self, path: Path, how: str, parts: list[str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), how], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._send("|".join(parts))
        self._heard()

    def write(self) -> bool:
        """Have the next part written; False when it was the last."""
        self._send("")
        return self._heard() == "ready"

    def close(self) -> None:
        self._process.communicate("\n", timeout=30)

    def end(self) -> None:
        """Whatever it does."""
        with self._process:
            self._process.kill()

    def _send(self, line: str) -> None:
        assert self._process.stdin
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def _heard(self) -> str:
        assert self._process.stdout
        return self._process.stdout.readline().strip()


Writers = Callable[..., Writer]


@contextmanager
def writing() -> Iterator[Writers]:
    """Writers that end with the test."""
    begun: list[Writer] = []

    def begin(path: Path, parts: list[str], how: str = "keeps it open") -> Writer:
        begun.append(Writer(path, how, parts))
        return begun[-1]

    yield begin
    for writer in begun:
        writer.end()
