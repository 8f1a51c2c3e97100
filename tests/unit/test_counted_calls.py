"""The benchmarks' counter of calls: in a process of its own, which is what it is made for."""

import multiprocessing
import subprocess
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from importlib.machinery import ModuleSpec
from pathlib import Path
from time import monotonic

import pytest

from benchmarks.calls import Calls, CallsOfTick, call_section
from benchmarks.instrumented.sitecustomize import file_kind, process_kind
from leanops.home import Home

BUILDS = """
import os, sys
from pathlib import Path
from leanops.home import Home
from leanops.names import OPS_DB
from leanops.tables import ensure_table
from leanops_resources.catalog import LocalCatalog
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField
import pyarrow as pa

schema = Schema(NestedField(1, "number", LongType()))
catalog = LocalCatalog(Home(Path(sys.argv[1]))).load()
table = ensure_table(catalog, (OPS_DB, "one"), schema, UNPARTITIONED_PARTITION_SPEC)
table.append(pa.table({"number": [1, 2]}))
if os.fork() == 0:
    table.scan().to_arrow()
    os._exit(0)
os.wait()
"""


def counted(home: Home, calls: Calls) -> Counter[str]:
    environment = {"PATH": "", **calls.environment()}
    environment["PYTHONPATH"] += f":{Path(__file__).parents[2]}"
    subprocess.run([sys.executable, "-c", BUILDS, str(home.path)], env=environment, check=True)
    found = calls.so_far()
    assert {process for process, _ in found} == {"other"}
    return Counter({call: count for (_, call), count in found.items()})


def test_loads_commits_reads_and_writes_of_a_process_and_its_forks_are_counted(home: Home, tmp_path: Path) -> None:
    found = counted(home, Calls(tmp_path / "calls"))
    # One is looked for and not there; the new one is loaded, and so is what a commit is made to.
    assert found["table loads"] == 3
    assert found["commits"] == 2
    # The metadata of a table that is created, and of one that is appended to; its manifest, and the list of that.
    assert found["metadata writes"] == 4
    assert found["data writes"] == 1
    # In the fork.
    assert found["data reads"] == 1


def test_a_call_takes_as_much_longer_as_it_is_told_to(home: Home, tmp_path: Path) -> None:
    begun = monotonic()
    found = counted(home, Calls(tmp_path / "calls", slow_ms=50))
    assert monotonic() - begun > 0.05 * found.total()


def test_a_process_that_another_one_of_python_started_is_a_run() -> None:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        assert pool.submit(process_kind).result(timeout=60) == "run"


def test_what_the_daemon_of_spark_forks_is_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    daemon = ModuleSpec("leanops_resources.spark.warm_daemon", None)
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", daemon, raising=False)
    assert process_kind() == "worker"


@pytest.mark.parametrize(
    ("location", "kind"),
    [
        ("file:///w/t/data/publish_day=2026-01-01/1.parquet", "data"),
        ("s3://b/t/metadata/00001-a.metadata.json", "metadata"),
        ("file:///w/t/metadata/snap-1.avro", "metadata"),
    ],
)
def test_rows_are_in_parquet_files_alone(location: str, kind: str) -> None:
    assert file_kind(location) == kind


def test_calls_are_told_per_topic_and_by_who_made_them() -> None:
    ticked = Counter({("run", "table loads"): 30, ("worker", "data reads"): 10, ("run", "metadata reads"): 5})
    section = call_section([CallsOfTick(10, Counter(), ticked)])
    by_process = {row[1]: row for row in section.rows}
    loads, reads = section.columns.index("table loads"), section.columns.index("file reads")
    assert by_process["tick: runs"][loads] == "3.0"
    assert by_process["tick: runs"][reads] == "0.5"
    assert by_process["tick: all"][reads] == "1.5"
    assert "Runs opened 0 data files" in section.note


def test_rows_that_go_through_a_run_are_told() -> None:
    section = call_section([CallsOfTick(10, Counter(), Counter({("run", "data reads"): 7}))])
    assert "Runs opened 7 data files, so that some rows went through" in section.note
