"""Which payload field becomes which column of Standardized.

A plan is an ordered list of (path, column). It only ever grows: `extended` gives the next free name to each new path,
in the order in which the paths first landed in RAW. So a column never changes its meaning, and a late collider can
never take a column over.
"""

import hashlib
import itertools
import json
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from leanops.names import SYSTEM_COLUMNS

Path = tuple[str, ...]

OVERFLOW_COLUMN = "overflow_json"
KEY_IN_PAYLOAD = "idempotency_key_in_payload"
"""Where the record's key stands while a payload is read, beside the key that may have come with the message."""

MAX_NAME_LENGTH = 120
DEFAULT_COLUMN_CAP = 1000

_TAKEN = frozenset(
    {*SYSTEM_COLUMNS, OVERFLOW_COLUMN, KEY_IN_PAYLOAD}
    # Iceberg's and Spark's metadata columns hide a table column of the same name.
    | {"_file", "_pos", "_spec_id", "_partition", "_deleted", "_metadata", "_row_id", "_last_updated_sequence_number"}
    | {"_change_type", "_change_ordinal", "_commit_snapshot_id"}
)
_UNSAFE = re.compile(r"[^a-z0-9_]")
_COMMENT = "payload field "


@dataclass(frozen=True)
class FlatColumn:
    """A path and the column that holds it; `comment` documents the way back."""

    path: Path
    name: str

    @property
    def comment(self) -> str:
        return _COMMENT + path_text(self.path)


def column_from_comment(name: str, comment: str | None) -> FlatColumn | None:
    """The column that its comment says it is, or None for a column that no payload field fills."""
    if comment is None or not comment.startswith(_COMMENT):
        return None
    return FlatColumn(path_from_text(comment.removeprefix(_COMMENT)), name)


@dataclass(frozen=True)
class FlattenPlan:
    """The columns of one topic, in the order in which their fields first landed."""

    columns: tuple[FlatColumn, ...] = ()
    cap: int = DEFAULT_COLUMN_CAP

    @property
    def is_full(self) -> bool:
        """Whether further fields go to the overflow column."""
        return len(self.columns) >= self.cap

    def extended(self, paths: Iterable[Path]) -> "FlattenPlan":
        """The plan with every new path named, in the given order, up to the cap; the rest stays in the overflow."""
        columns = list(self.columns)
        known = {column.path for column in columns}
        taken = {column.name for column in columns}
        for path in paths:
            if len(columns) >= self.cap:
                break
            if path in known:
                continue
            name = free_name(path, taken)
            known.add(path)
            taken.add(name)
            columns.append(FlatColumn(path, name))
        return FlattenPlan(tuple(columns), self.cap)


def column_name(path: Path) -> str:
    """The name a path would like: lower case, `_` between levels, nothing but a-z, 0-9 and `_`, no system column's."""
    name = "_".join(safe_name(level) for level in path)
    if name[:1].isdigit():
        name = f"_{name}"
    if name in _TAKEN:
        name = f"payload_{name}"
    return name if len(name) <= MAX_NAME_LENGTH else _marked(name, path)


def free_name(path: Path, taken: set[str]) -> str:
    """The path's own name, or with a mark made from the exact path when another path already has it."""
    wanted = name = column_name(path)
    for attempt in itertools.count():
        if name not in taken:
            return name
        name = _marked(wanted, path, attempt)
    raise AssertionError("unreachable")


def safe_name(level: str) -> str:
    """One field name made safe: accents dropped, other letters as their code point, all other signs as `_`."""
    lowered = unicodedata.normalize("NFKD", level.lower())
    plain = "".join(sign for sign in lowered if not unicodedata.combining(sign))
    return "".join(_safe_sign(sign) for sign in plain) or "empty"


@lru_cache(maxsize=100_000)
def path_text(path: Path) -> str:
    """A path as JSON text: the one form in which paths travel and are logged."""
    return json.dumps(path, ensure_ascii=False, separators=(",", ":"))


def path_from_text(text: str) -> Path:
    """The path that `path_text` wrote."""
    return tuple(json.loads(text))


def _safe_sign(sign: str) -> str:
    if not _UNSAFE.match(sign):
        return sign
    return f"u{ord(sign):04x}" if sign.isalnum() else "_"


def _marked(name: str, path: Path, attempt: int = 0) -> str:
    digest = hashlib.sha256(f"{path_text(path)}{attempt or ''}".encode()).hexdigest()[:10]
    return f"{name[: MAX_NAME_LENGTH - 12]}__{digest}"
