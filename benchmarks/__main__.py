"""Run every benchmark, or those that are named, and write what was measured to `benchmarks/results.md`.

`python -m benchmarks engine landing` measures these two; the other sections of the results stay as they are.
"""

import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from benchmarks import (
    aged,
    cluster,
    definitions,
    engine,
    fleet,
    ingestion,
    landing,
    ledger,
    maintenance,
    one_topic,
    payloads,
    peers,
    wide,
)
from benchmarks.engine_data import SHRINK
from benchmarks.report import Section

Measure = Callable[[Path], Section | tuple[Section, ...]]

BENCHMARKS: Mapping[str, tuple[Measure, ...]] = {
    "definitions": (definitions.measure,),
    "landing": (landing.measure,),
    "ingestion": (ingestion.measure_folder, ingestion.measure_queues),
    "payloads": (payloads.measure,),
    "engine": (engine.measure_against_bare_job,),
    "large_table": (engine.measure_large_table,),
    "small_ticks": (engine.measure_small_ticks,),
    "wide": (wide.measure,),
    "ledger": (ledger.measure_ledger,),
    "trace": (ledger.measure_trace,),
    "memory": (engine.measure_memory,),
    "maintenance": (maintenance.measure,),
    "fleet": (fleet.measure,),
    "aged": (aged.measure,),
    "fleet_slow": (fleet.measure_slow,),
    "one_topic": (one_topic.measure,),
    "cluster": (cluster.measure,),
    "peers": (peers.measure,),
}
BUSY = 1.5
RESULTS = Path(__file__).with_name("results.md")


def main(names: list[str]) -> None:
    """Measure, print, write."""
    if unknown := set(names) - set(BENCHMARKS):
        sys.exit(f"There is no benchmark {', '.join(sorted(unknown))}. There are: {', '.join(BENCHMARKS)}.")
    for name in [name for name in os.environ if name.startswith("LEANOPS_")]:
        del os.environ[name]
    if (load := os.getloadavg()[0]) > BUSY:
        print(f"The machine is busy already (a load of {load:.1f}): what follows is too slow.", file=sys.stderr)
    # Told to end, a benchmark still stops its Spark server and removes its tables.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("told to end"))
    for measure in (each for name in names or BENCHMARKS for each in BENCHMARKS[name]):
        with tempfile.TemporaryDirectory() as folder:
            measured = measure(Path(folder))
        for section in measured if isinstance(measured, tuple) else (measured,):
            print(section, flush=True)
            if SHRINK == 1:
                _keep(section)
    print(f"Written to {RESULTS}." if SHRINK == 1 else "Not written: the tables were smaller than they should be.")


def _keep(section: Section) -> None:
    """Write a section into the results, in the place of the one that has its title."""
    _, *kept = re.split(r"^(?=## )", RESULTS.read_text(), flags=re.MULTILINE)
    sections = {text.partition("\n")[0]: text.rstrip("\n") + "\n" for text in kept}
    sections[f"## {section.title}"] = str(section)
    RESULTS.write_text("\n".join([_heading(), *sections.values()]))


def _heading() -> str:
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True).stderr.splitlines()[0]
    versions = ", ".join(f"{name} {version(name)}" for name in ("dagster", "pyspark", "pyiceberg", "msgspec"))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"# Benchmark results\n\n{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores, {memory:.0f} GB, "
        f"Python {platform.python_version()}, {java}, {versions}. Written by `make bench`.\n"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
