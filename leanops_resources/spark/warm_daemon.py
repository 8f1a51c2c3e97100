"""Spark's Python daemon with what the payload reader needs imported before it forks.

A new Python worker then costs a fork, not two seconds of imports. Spark puts its own pyspark.zip first on the path;
that has no byte code, so the installed package is preferred.
"""

import importlib
import sys

if __name__ == "__main__":
    sys.path[:] = [entry for entry in sys.path if not entry.endswith(("pyspark.zip", ".jar"))]
    for library in ("msgspec", "numpy", "pyarrow"):
        importlib.import_module(library)
    importlib.import_module("pyspark.daemon").manager()
