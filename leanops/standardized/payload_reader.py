"""A batch of payloads read into columns: strict, exact, and about as fast as a bare `from_json`.

Most rows look alike. The plan is compiled into one msgspec decoder that takes a payload apart in a single C call and
hands out the exact text of every known leaf. What that decoder does not take, or what cannot be proven free of names
given twice, is walked object by object in Python. Both ways yield the same raw texts, so there is one place where a
text becomes a column's value.

This runs inside Spark's Python workers.
"""

from __future__ import annotations

import gc
import itertools
import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import astuple

from leanops.blank import is_blank
from leanops.standardized.flatten_plan import FlattenPlan, Path, column_name, path_text
from leanops.standardized.payload_error import MAX_DEPTH, PayloadError, depth_exceeds_limit, diagnosis, duplicate_name
from leanops.standardized.text_arrays import Measured, Text, bitmap, is_utf8, lengths_of, string_array, text_array

_BLANKS = b" \t\r\n"
_OBJECT, _NULL = b"{"[0], b"n"[0]
BOUND_MARK = "+"
_read_members = msgspec.json.Decoder(dict[str, Raw]).decode


@dataclass(frozen=True)
class FlatPayload:
    """One payload walked leaf by leaf: the raw JSON text of each field of the plan, and of each leaf unknown to it."""

    known: dict[int, bytes]
    unknown: dict[Path, bytes]
    columnless: list[Path]
    """Objects none of whose leaves the plan knows."""


@dataclass
class _Node:
    """One object of the plan: its leaves and the objects below it, with the msgspec struct that reads it."""

    leaves: dict[str, int] = field(default_factory=dict)
    objects: dict[str, _Node] = field(default_factory=dict)
    struct: Any = None
    blank: Any = None

    def compile(self) -> None:
        """Make the struct. Names that msgspec cannot take, and leaves that are objects too, are read the slow way."""
        for name in [name for name in self.objects if name in self.leaves or not _is_struct_name(name)]:
            del self.objects[name]
        for name in [name for name in self.leaves if not _is_struct_name(name)]:
            del self.leaves[name]
        for node in self.objects.values():
            node.compile()
        names = [*self.leaves, *self.objects]
        fields: list[tuple[str, Any, Any]] = [(f"f{i}", Raw, Raw(b"")) for i in range(len(self.leaves))]
        fields += [
            (f"f{len(self.leaves) + i}", node.struct | None | UnsetType, UNSET)
            for i, node in enumerate(self.objects.values())
        ]
        rename = {f"f{i}": name for i, name in enumerate(names)}
        self.struct = msgspec.defstruct("Payload", fields, rename=rename, forbid_unknown_fields=True, gc=False)
        self.blank = self.struct()


class PayloadReader:
    """Reads batches of payloads by one plan."""

    def __init__(self, plan: FlattenPlan) -> None:
        self._plan = plan
        paths = [*(column.path for column in plan.columns), *([plan.key] if plan.key else [])]
        self._index = {path: i for i, path in enumerate(dict.fromkeys(paths))}
        self._root = _Node()
        for path, i in self._index.items():
            node = self._root
            for level in path[:-1]:
                node = node.objects.setdefault(level, _Node())
            node.leaves[path[-1]] = i
        self._root.compile()
        self._read = msgspec.json.Decoder(self._root.struct).decode

    def read(self, payloads: pa.Array) -> pa.StructArray:
        """The batch as a struct: the error, paths new to the plan, what has no column, the key, a text per column."""
        # Thousands of short-lived tuples would set the collector off again and again; nothing here makes cycles.
        gc.disable()
        try:
            return self._read_batch(payloads)
        finally:
            gc.enable()

    def walk(self, payload: bytes) -> FlatPayload:
        """One payload, leaf by leaf: the definition that the fast way must agree with."""
        known: dict[int, bytes] = {}
        unknown: dict[Path, bytes] = {}
        leaves, objects = members(payload)
        placed: set[Path] = set()
        for path, text in leaves:
            field = self._index.get(path)
            if field is None:
                unknown[path] = text
            else:
                known[field] = text
                placed.update(path[:level] for level in range(1, len(path)))
        return FlatPayload(known, unknown, [path for path in objects if path not in placed])

    def _read_batch(self, payloads: pa.Array) -> pa.StructArray:
        rows: list[bytes | None] = payloads.to_pylist()
        structs, slow = self._decode(rows, check_utf8=not is_utf8(payloads))
        fields: list[list[Text]] = [[]] * len(self._index)
        objects = _collect(self._root, structs, fields)
        fields = [texts or [b""] * len(rows) for texts in fields]
        fates = _Fates(len(rows))
        self._read_slowly(slow, rows, fields, fates)
        measured = [Measured.of(texts) for texts in fields]
        account = objects.accounted(measured)
        doubtful = self._doubtful(payloads, rows, account, fields, measured, slow)
        fates.note_hollow(account.hollow, {*slow, *doubtful})
        if doubtful:
            for texts, i in itertools.product(fields, doubtful):
                texts[i] = b""
            self._read_slowly(doubtful, rows, fields, fates)
            measured = [Measured.of(texts) for texts in fields]
        arrays = dict(zip(self._index, map(text_array, fields, measured), strict=True))
        key = arrays[self._plan.key] if self._plan.key else pa.nulls(len(rows), pa.string())
        columns = [arrays[column.path] for column in self._plan.columns]
        return pa.StructArray.from_arrays(
            [*fates.arrays(), key, *columns], names=[*_Fates.NAMES, "key", *(f"c{i}" for i in range(len(columns)))]
        )

    def _decode(self, rows: Sequence[bytes | None], *, check_utf8: bool) -> tuple[list[Any], list[int]]:
        read, blank = self._read, self._root.blank
        structs: list[Any] = []
        slow: list[int] = []
        for i, payload in enumerate(rows):
            # Deeper than MAX_DEPTH takes at least two brackets a level.
            if payload is None or check_utf8 or (len(payload) > 2 * MAX_DEPTH and depth_exceeds_limit(payload)):
                structs.append(blank)
                slow.append(i)
                continue
            try:
                structs.append(read(payload))
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                structs.append(blank)
                slow.append(i)
        return structs, slow

    def _read_slowly(
        self, chosen: Sequence[int], rows: Sequence[bytes | None], fields: Sequence[list[Text]], fates: _Fates
    ) -> None:
        plan = self._plan
        for i in chosen:
            try:
                flat = self.walk(_required(rows[i]))
            except PayloadError as error:
                fates.refuse(i, error)
                continue
            for index, text in flat.known.items():
                fields[index][i] = text
            columnless = flat.columnless
            if flat.unknown:
                fates.overflow[i] = overflow_text(flat.unknown)
                if new := [path for path in flat.unknown if plan.has_room_for(path)]:
                    fates.new_paths[i] = "\n".join(new_path_text(path, plan) for path in new).encode()
                columnless += (path for path in flat.unknown if path in plan.bound and not plan.has_room_for(path))
            if columnless:
                fates.objects[i] = columnless_text(tuple(columnless))

    def _doubtful(
        self,
        payloads: pa.Array,
        rows: Sequence[bytes | None],
        account: _Account,
        fields: Sequence[Sequence[Text]],
        measured: Sequence[Measured],
        slow: Sequence[int],
    ) -> list[int]:
        """Rows of the fast way that hold an object where the plan has a leaf, or that may give a name twice.

        A compact payload without doubles is exactly as long as its leaves, names and punctuation: anything else only
        makes it longer. Where blanks do that, the names are counted instead: every name is followed by `":`, once
        blanks are gone.
        """
        holds_object = np.zeros(len(rows), bool)
        for measure in measured:
            holds_object |= measure.first == _OBJECT
        longer = lengths_of(payloads) != account.length
        holds_object[slow] = longer[slow] = False
        doubtful = set(np.flatnonzero(holds_object).tolist())
        for i in np.flatnonzero(longer).tolist():
            leaf_texts = b" ".join([texts[i] for texts in fields])
            if _names_in(_required(rows[i])) != account.names[i] + _names_in(leaf_texts):
                doubtful.add(i)
        return sorted(doubtful)


class _Account(NamedTuple):
    """What a batch's objects at one node of the plan would be like, written without blanks and without doubles."""

    length: np.ndarray
    names: np.ndarray
    has_leaf: np.ndarray
    hollow: list[tuple[Path, np.ndarray]]
    """The objects below, and in which rows they are there and have no leaf."""


@dataclass(frozen=True)
class _Objects:
    """The objects that a batch holds at one node of the plan: None where the payload says null, UNSET if nothing."""

    node: _Node
    values: Sequence[Any]
    children: list[_Objects]

    def accounted(self, measured: Sequence[Measured], path: Path = ()) -> _Account:
        """Each object's length, its number of names, and whether it and those below it have leaves."""
        length, names = (np.zeros(len(self.values), np.int64) for _ in range(2))
        has_leaf, hollow = np.zeros(len(self.values), bool), list[tuple[Path, np.ndarray]]()
        for name, index in self.node.leaves.items():
            present = measured[index].lengths > 0
            length += measured[index].lengths + present * (len(name.encode()) + 4)
            names += present
            has_leaf |= present & (measured[index].first != _NULL)
        for name, child in zip(self.node.objects, self.children, strict=True):
            below = child.accounted(measured, (*path, name))
            present, is_object = child.are_not(UNSET), child.are_not(None)
            length += present * (np.where(is_object, below.length, len(b"null")) + len(name.encode()) + 4)
            names += present + below.names
            has_leaf |= below.has_leaf
            hollow += [((*path, name), present & is_object & ~below.has_leaf), *below.hollow]
        return _Account(np.where(length == 0, len(b"{}"), length + 1), names, has_leaf, hollow)

    def are_not(self, absent: Any) -> np.ndarray:
        """Which of the objects are something else than `absent`."""
        if absent not in self.values:
            return np.ones(len(self.values), bool)
        return np.fromiter((value is not absent for value in self.values), bool, len(self.values))


def _collect(node: _Node, structs: Sequence[Any], columns: list[list[Text]]) -> _Objects:
    """Put the raw texts of every leaf under the node into its column."""
    members = list(zip(*[astuple(struct or node.blank) for struct in structs], strict=True))
    members = members or [()] * (len(node.leaves) + len(node.objects))
    for index, texts in zip(node.leaves.values(), members, strict=False):
        columns[index] = list(texts)
    children = [
        _collect(child, values, columns)
        for child, values in zip(node.objects.values(), members[len(node.leaves) :], strict=True)
    ]
    return _Objects(node, structs, children)


def members(payload: bytes) -> tuple[list[tuple[Path, bytes]], list[Path]]:
    """Every leaf of a payload with its raw JSON text, and every object but itself, in the order written.

    Nulls and empty objects are no leaves.
    """
    _refuse_unreadable(payload)
    is_compact = True
    pending: list[tuple[Path, bytes]] = [((), payload.strip(_BLANKS))]
    leaves: list[tuple[Path, bytes]] = []
    objects: list[Path] = []
    while pending:
        path, text = pending.pop()
        if text[0] == _OBJECT:
            objects.append(path)
            below = [(name, bytes(raw)) for name, raw in _read_members(text).items()]
            is_compact = is_compact and len(text) == _compact_length(below)
            pending.extend(((*path, name), member) for name, member in reversed(below))
        elif text[0] != _NULL:
            leaves.append((path, text))
    if not is_compact and duplicate_name(payload) is not None:
        raise diagnosis(payload)
    return leaves, objects[1:]


def overflow_text(unknown: dict[Path, bytes]) -> bytes:
    """The leaves as one JSON object, nested as they were in the payload, each value in its own text."""
    tree: dict[str, Any] = {}
    for path, text in unknown.items():
        node = tree
        for level in path[:-1]:
            node = node.setdefault(level, {})
        node[path[-1]] = Raw(text)
    return msgspec.json.encode(tree)


@lru_cache(maxsize=10_000)
def columnless_text(paths: tuple[Path, ...]) -> bytes:
    """Fields that have no column, by the name that a column of theirs would have, as one JSON object."""
    by_name: dict[str, list[Path]] = {}
    for path in sorted(paths):
        by_name.setdefault(column_name(path), []).append(path)
    return msgspec.json.encode(by_name)


def new_path_text(path: Path, plan: FlattenPlan) -> str:
    """A path that the plan does not know, marked if the contract is bound to it."""
    return f"{BOUND_MARK if path in plan.bound else ''}{path_text(path)}"


def _refuse_unreadable(payload: bytes) -> None:
    try:
        payload.decode("utf-8")
        if not depth_exceeds_limit(payload):
            _read_members(payload)
            return
    except (msgspec.MsgspecError, UnicodeDecodeError):
        pass
    raise diagnosis(payload)


def _compact_length(members: Sequence[tuple[str, bytes]]) -> int:
    """How long an object is without blanks and with no name given twice."""
    return 1 + sum(len(name.encode()) + 4 + len(text) for name, text in members) if members else 2


class _Fates:
    """What a batch says of its rows beside their columns."""

    NAMES = ("error_kind", "error_reason", "error_position", "new_paths", "overflow", "objects")

    def __init__(self, total: int) -> None:
        self.total = total
        self.errors: dict[int, PayloadError] = {}
        self.new_paths: dict[int, bytes] = {}
        self.overflow: dict[int, bytes] = {}
        self.objects: dict[int, bytes] = {}

    def refuse(self, row: int, error: PayloadError) -> None:
        self.errors[row] = error

    def note_hollow(self, hollow: Sequence[tuple[Path, np.ndarray]], others: Collection[int]) -> None:
        """Note where rows have objects without leaves, but for `others`, of which it is known already."""
        found: dict[int, list[Path]] = {}
        for path, is_hollow in hollow:
            for row in np.flatnonzero(is_hollow).tolist():
                found.setdefault(row, []).append(path)
        self.objects |= {row: columnless_text(tuple(paths)) for row, paths in found.items() if row not in others}

    def arrays(self) -> list[pa.Array]:
        kinds = {row: error.kind.encode() for row, error in self.errors.items()}
        reasons = {row: error.reason.encode("utf-8", "replace") for row, error in self.errors.items()}
        positions = np.zeros(self.total, np.int32)
        has_position = np.zeros(self.total, bool)
        for row, error in self.errors.items():
            if error.position is not None:
                positions[row], has_position[row] = error.position, True
        position = pa.Array.from_buffers(pa.int32(), self.total, [bitmap(has_position), pa.py_buffer(positions)])
        return [
            self._sparse(kinds),
            self._sparse(reasons),
            position,
            self._sparse(self.new_paths),
            self._sparse(self.overflow),
            self._sparse(self.objects),
        ]

    def _sparse(self, texts: dict[int, bytes]) -> pa.Array:
        lengths = np.zeros(self.total, np.int64)
        valid = np.zeros(self.total, bool)
        for row, text in texts.items():
            lengths[row], valid[row] = len(text), True
        return string_array(lengths, valid, b"".join(texts[row] for row in sorted(texts)))


def _names_in(text: bytes) -> int:
    return text.translate(None, _BLANKS).count(b'":')


def _is_struct_name(name: str) -> bool:
    return json.dumps(name, ensure_ascii=False) == f'"{name}"'


def _required(payload: bytes | None) -> bytes:
    if payload is None:
        raise diagnosis(None)
    return payload


@lru_cache(maxsize=64)
def reader_for(plan: FlattenPlan) -> PayloadReader:
    """The plan's reader, compiled once in each worker."""
    return PayloadReader(plan)


def record_keys(in_payload: pa.Array, beside: pa.Array, message_ids: pa.Array) -> pa.Array:
    """A record's key is the one in its payload, else the one that came with the message, else the message's id."""
    return pc.coalesce(*(pc.if_else(is_blank(keys), None, keys) for keys in (in_payload, beside)), message_ids)
