"""Tables that are taken for large, whatever they hold."""

import sys

import pytest

from leanops.commits import REWRITTEN_BYTES
from leanops.few_rows import LOCAL_BYTES


def build_in_spark(patch: pytest.MonkeyPatch) -> None:
    """No number of rows is small: builds and ledgers are left to Spark."""
    for name, module in list(sys.modules.items()):
        for limit in ("SMALL", "LOCAL_ROWS"):
            if name.startswith("leanops.") and hasattr(module, limit):
                patch.setattr(module, limit, -1)


def take_for_large(patch: pytest.MonkeyPatch, are_large: bool) -> None:
    """Whether few rows find tables that are too large to be brought here, and files too large to be written again."""
    patch.setattr("leanops.few_rows._size", lambda _: LOCAL_BYTES + 1 if are_large else 0)
    patch.setattr("leanops.commits.REWRITTEN_BYTES", -1 if are_large else REWRITTEN_BYTES)
