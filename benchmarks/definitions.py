"""How long the asset graph of 700 topics takes to load, in a fresh process, as a code location does it."""

import json
import os
import subprocess
import sys
from pathlib import Path

from benchmarks.report import Section
from benchmarks.topics import write_contracts

LOAD = """
import json, resource, time
begun = time.perf_counter()
marks = {}
def mark(name):
    marks[name] = time.perf_counter() - begun
import dagster
from dagster._core.remote_representation.external_data import RepositorySnap
from dagster_shared.serdes import serialize_value
mark("dagster imported")
from leanops_assets.definitions import defs
definitions = defs()
mark("definitions built")
repository = definitions.get_repository_def()
repository.load_all_definitions()
mark("graph resolved")
snapshot = serialize_value(RepositorySnap.from_def(repository))
mark("snapshot made")
marks["assets"] = len(repository.asset_graph.get_all_asset_keys())
marks["snapshot MB"] = len(snapshot) / 2**20
marks["memory MB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps(marks))
"""


def measure(folder: Path) -> Section:
    """Load 350 topics, then 700."""
    rows = []
    for count in (350, 700):
        contracts = folder / f"contracts-{count}"
        write_contracts(contracts, count)
        environment = {**os.environ, "LEANOPS_HOME": str(folder / f"home-{count}"), "LEANOPS_SCHEMAS": str(contracts)}
        loaded = subprocess.run(
            [sys.executable, "-c", LOAD], env=environment, capture_output=True, text=True, check=True
        )
        marks = json.loads(loaded.stdout.splitlines()[-1])
        rows.append((count, *(_shown(value) for value in marks.values())))
    columns = (
        "topics",
        *(f"{name}, s" if name not in ("assets", "snapshot MB", "memory MB") else name for name in marks),
    )
    ratio = float(rows[1][4]) / float(rows[0][4])
    return Section(
        "Loading the definitions",
        columns,
        rows,
        f"Seconds since the process began; the target is 10 s for 700 topics. Twice the topics took {ratio:.2f} x the "
        "time. The snapshot is what the code location hands to the webserver (its limit is 100 MB).",
    )


def _shown(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.1f}"
