"""What has been injected into a home, and what its tables must hold: the files under `injected/`."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
from pydantic import BaseModel

from leanops.errors import disk_faults_named
from leanops.injector.expectation import Expectation
from leanops.injector.injection import Injection


class _Injections(BaseModel):
    injections: tuple[Injection, ...] = ()


class History:
    """The injections, in their order; and beside them the expectation of each topic, over all of them."""

    def __init__(self, folder: Path) -> None:
        self._injections = folder / "injections.json"
        self._expected = folder / "expected"

    def injections(self) -> tuple[Injection, ...]:
        """All of them, from the first."""
        if not self._injections.exists():
            return ()
        return _Injections.model_validate_json(self._injections.read_bytes()).injections

    def add(self, injection: Injection) -> None:
        """Note an injection behind the others."""
        noted = _Injections(injections=(*self.injections(), injection))
        self._write(self._injections, noted.model_dump_json(indent=1).encode())

    def expect(self, expectation: Expectation) -> None:
        """Note what the tables of a topic must hold now."""
        self._write(self._expected / f"{expectation.topic}.json", msgspec.json.encode(expectation))

    def expectations(self) -> Iterator[Expectation]:
        """What the tables must hold, by topic, one at a time in memory."""
        for path in sorted(self._expected.glob("[!.]*.json")):
            yield msgspec.json.decode(path.read_bytes(), type=Expectation)

    def _write(self, path: Path, content: bytes) -> None:
        with disk_faults_named(path.parent):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            draft = path.with_name(f".{path.name}")
            draft.write_bytes(content)
            draft.replace(path)
