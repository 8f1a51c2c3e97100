"""Counts what a process asks of the catalog and of the tables' files, and makes each call take longer where told to.

Python imports this at its start in every process that has this folder on its PYTHONPATH: runs are processes that
Dagster's daemon launches, and files are read by workers that Spark starts. PyIceberg's classes are wrapped when they
are imported, not before. `BENCH_CALLS` names a folder, in which each call appends a byte to the file of its kind: that
holds over forks, and for processes that are killed. `BENCH_SLOW_MS` is what each call takes more.
"""

import functools
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

CATALOG_CALLS = {
    "load_table": "table loads",
    "commit_table": "commits",
    "create_table": "commits",
    "register_table": "commits",
    "drop_table": "other catalog calls",
    "list_tables": "other catalog calls",
    "list_namespaces": "other catalog calls",
    "namespace_exists": "other catalog calls",
    "create_namespace": "other catalog calls",
}
FILE_CALLS = {"open": "reads", "create": "writes", "exists": "looks", "__len__": "looks"}
"""By the method of a file. What is asked of data files is counted apart from what is asked of metadata."""

_WORKERS = "leanops_resources.spark.warm_daemon"


def process_kind() -> str:
    """Whether this is a run, a Python worker of Spark, or something else, such as the code server with its sensors."""
    main = getattr(sys.modules["__main__"], "__spec__", None)
    if main and main.name == _WORKERS:
        return "worker"
    return "run" if multiprocessing.parent_process() else "other"


def file_kind(location: str) -> str:
    """Rows are in Parquet files; all else is metadata."""
    return "data" if location.endswith(".parquet") else "metadata"


@functools.cache
def call_file(call: str, process: int) -> int:  # noqa: ARG001 - a fork may be of another kind than its parent
    """The file of a kind of call, opened once in each process: half of what noting a call takes."""
    path = f"{os.environ['BENCH_CALLS']}/{process_kind()}.{call}"
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def called(call: str) -> None:
    """Note a call, and wait for as long as each takes more."""
    if "BENCH_CALLS" in os.environ:
        os.write(call_file(call, os.getpid()), b".")
    if slow := float(os.environ.get("BENCH_SLOW_MS", "0")):
        time.sleep(slow / 1000)


def wrap(owner: type, method: str, call: Callable[..., str]) -> None:
    """Have each call of a method noted, as what `call` makes of its arguments."""
    original = getattr(owner, method)

    @functools.wraps(original)
    def noted(*arguments: Any, **named: Any) -> Any:
        called(call(*arguments))
        return original(*arguments, **named)

    setattr(owner, method, noted)


def wrap_files(module: ModuleType) -> None:
    """Note what is asked of PyIceberg's files."""
    for method, call in FILE_CALLS.items():
        wrap(module.PyArrowFile, method, lambda file, *_, call=call: f"{file_kind(file.location)} {call}")
    wrap(module.PyArrowFileIO, "delete", lambda *_: "deletes")


def wrap_catalog(module: ModuleType) -> None:
    """Note what is asked of the platform's catalog."""
    for method, call in CATALOG_CALLS.items():
        wrap(module.QuickCatalog, method, lambda *_, call=call: call)


class _WrapsOnImport(MetaPathFinder):
    """Finds nothing by itself: what others find of these modules is wrapped once it is loaded."""

    wrapped = {"pyiceberg.io.pyarrow": wrap_files, "leanops_resources.sql_catalog": wrap_catalog}  # noqa: RUF012

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self.wrapped:
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        found = next((spec for each in others if (spec := each.find_spec(fullname, path, target))), None)
        if found and found.loader:
            self._wrap_after(found.loader, self.wrapped[fullname])
        return found

    @staticmethod
    def _wrap_after(loader: Loader, wrapper: Callable[[ModuleType], None]) -> None:
        load = loader.exec_module

        def load_and_wrap(module: ModuleType) -> None:
            load(module)
            wrapper(module)

        loader.exec_module = load_and_wrap  # type: ignore[method-assign]


if "BENCH_CALLS" in os.environ or "BENCH_SLOW_MS" in os.environ:
    sys.meta_path.insert(0, _WrapsOnImport())
