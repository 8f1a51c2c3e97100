"""Run every benchmark and write what was measured to `benchmarks/results.md`."""

import os
import platform
import subprocess
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from benchmarks import definitions, landing, payloads
from benchmarks.report import Section

BENCHMARKS: tuple[Callable[[Path], Section], ...] = (definitions.measure, landing.measure, payloads.measure)
RESULTS = Path(__file__).with_name("results.md")


def main() -> None:
    """Measure, print, write."""
    for name in [name for name in os.environ if name.startswith("LEANOPS_")]:
        del os.environ[name]
    text = [_heading()]
    for measure in BENCHMARKS:
        with tempfile.TemporaryDirectory() as folder:
            text.append(str(measure(Path(folder))))
        print(text[-1], flush=True)
    RESULTS.write_text("\n".join(text))
    print(f"Written to {RESULTS}.")


def _heading() -> str:
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True).stderr.splitlines()[0]
    versions = ", ".join(f"{name} {version(name)}" for name in ("dagster", "pyspark", "pyiceberg", "msgspec"))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"# Benchmark results\n\n{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores, {memory:.0f} GB, "
        f"Python {platform.python_version()}, {java}, {versions}. Written by `make bench`.\n"
    )


if __name__ == "__main__":
    main()
