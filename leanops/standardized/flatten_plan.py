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
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from leanops.names import RESERVED_COLUMNS

Path = tuple[str, ...]

MAX_NAME_LENGTH = 120
DEFAULT_COLUMN_CAP = 1000
MAX_SPELLINGS = 50
"""So many fields of one plain name have columns where the cap would leave no room for them."""

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
class BoundFields:
    """The fields that the columns of a contract are bound to: all of some plain names, and some by their paths."""

    names: frozenset[str] = frozenset()
    paths: frozenset[Path] = frozenset()

    def __contains__(self, path: Path) -> bool:
        return path in self.paths or column_name(path) in self.names

    def reach(self, path: Path) -> bool:
        """Whether a column is bound to the field, or to an object that it is in."""
        return any(path[:level] in self for level in range(1, len(path) + 1))


@dataclass(frozen=True)
class FlattenPlan:
    """The columns of one topic, in the order in which their fields first landed.

    The first fields to land have columns, as many as the cap says, and so has every field that the contract is `bound`
    to, whenever it lands. One field may fill several columns. The one that has the record's `key` has a column only if
    the contract's columns need it.
    """

    columns: tuple[FlatColumn, ...] = ()
    cap: int = DEFAULT_COLUMN_CAP
    bound: BoundFields = BoundFields()
    key: Path | None = None

    @property
    def is_full(self) -> bool:
        """Whether further fields go to the overflow column, but for those that the contract is bound to."""
        return len(self.columns) >= self.cap

    def has_room_for(self, path: Path) -> bool:
        """Whether a field that is not in the plan yet gets a column."""
        return not self.is_full or self._is_exempt(path, self._spellings)

    def extended(self, paths: Iterable[Path]) -> "FlattenPlan":
        """The plan with every new path named, in the given order, while there is room; the rest stays in overflow."""
        columns, spellings = list(self.columns), Counter(self._spellings)
        known = {column.path for column in columns}
        taken = {column.name for column in columns}
        for path in paths:
            if path in known or (len(columns) >= self.cap and not self._is_exempt(path, spellings)):
                continue
            name = free_name(path, taken)
            known.add(path)
            taken.add(name)
            spellings[column_name(path)] += 1
            columns.append(FlatColumn(path, name))
        return replace(self, columns=tuple(columns))

    def _is_exempt(self, path: Path, spellings: Counter[str]) -> bool:
        """Whether the cap does not hold for a field."""
        return path in self.bound and spellings[column_name(path)] < MAX_SPELLINGS

    @cached_property
    def _spellings(self) -> Counter[str]:
        """How many columns each plain name has."""
        return Counter(column_name(column.path) for column in self.columns)


@lru_cache(maxsize=100_000)
def column_name(path: Path) -> str:
    """A path's plain name: lower case, `_` between levels, nothing but a-z, 0-9 and `_`, and none of our own names."""
    name = "_".join(safe_name(level) for level in path)
    if name[:1].isdigit():
        name = f"_{name}"
    if name in RESERVED_COLUMNS:
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
