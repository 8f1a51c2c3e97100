"""Spark's Python daemon with what the payload reader needs imported before it forks.

A new Python worker then costs a fork, not two seconds of imports. Spark puts its own pyspark.zip first on the path;
that has no byte code, so the installed package is preferred. Python has looked into the archives by then, and would
list them anew for every task, which took a fifth of the workers' time: so they are forgotten.
"""

import importlib
import sys

if __name__ == "__main__":
    sys.path[:] = [entry for entry in sys.path if not entry.endswith(("pyspark.zip", ".jar"))]
    for entry in [entry for entry in sys.path_importer_cache if entry.endswith((".zip", ".jar"))]:
        del sys.path_importer_cache[entry]
    for library in ("msgspec", "numpy", "pyarrow", "leanops.standardized.worker", "leanops.curated.worker"):
        importlib.import_module(library)
    importlib.import_module("pyspark.daemon").manager()
