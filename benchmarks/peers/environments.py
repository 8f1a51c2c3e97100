"""A virtual environment for each peer, with its own pins, in the user's cache; made once for each set of pins."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_HERE = Path(__file__).parent
_OURS = ("LEANOPS_", "PYSPARK_", "PYTHON", "SPARK_", "VIRTUAL_ENV")
"""What the environment of this process says that is not for a peer's."""


@dataclass(frozen=True)
class Result:
    """What a peer's job has measured: of each round, the seconds of each load."""

    versions: dict[str, str]
    seconds: list[list[float]]
    rows: Path


@dataclass(frozen=True)
class Environment:
    """A virtual environment, and a folder beside it for what else a peer keeps there."""

    folder: Path

    @classmethod
    def of(cls, peer: str) -> "Environment":
        """The environment of a peer's pins; made if there is none, or one that was not finished."""
        pins = _HERE / f"{peer}-requirements.txt"
        digest = hashlib.sha256(f"{sys.version} {pins.read_text()}".encode()).hexdigest()[:12]
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        environment = cls(cache / "leanops-bench" / f"peers-{peer}-{digest}")
        ready = environment.folder / "ready"
        if not ready.exists():
            shutil.rmtree(environment.folder, ignore_errors=True)
            _uv("venv", "--python", sys.executable, str(environment.folder / "venv"))
            _uv("pip", "install", "--python", str(environment.python), "--requirement", str(pins))
            ready.touch()
        return environment

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "venv" / "bin" / "python"

    def run(self, job: str, *arguments: object) -> Result:
        """Run one of the scripts beside this file; its last line says what it has measured."""
        own = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}
        command = [str(self.python), str(_HERE / f"{job}.py"), *map(str, arguments)]
        done = subprocess.run(command, env=own, capture_output=True, text=True, errors="replace", check=False)
        if done.returncode:
            raise RuntimeError(f"{job} failed:\n{done.stderr[-4000:]}")
        said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return Result(said["versions"], said["seconds"], Path(said["rows"]))


def _uv(*arguments: str) -> None:
    subprocess.run([str(Path(sys.executable).with_name("uv")), "--quiet", *arguments], check=True)
