"""The payloads of a topic: its contract's fields with plausible values, nested where names suggest it."""

import json
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

from leanops.contracts.model import Contract
from leanops.injector.values import Value, is_moment, misfits, text_of, value_of
from leanops.standardized.flatten_plan import column_name

Path = tuple[str, ...]

WITHOUT_CONTRACT = Contract.model_validate(
    {
        "table_name": "any",
        "envelope_columns": [{"name": "idempotency_key", "source": "_metadata.idempotencyKeyResource"}],
        "payload_columns": [
            {"name": "event_timestamp", "type": "TIMESTAMP", "cde": True},
            {"name": "subject_id", "type": "STRING", "cde": True},
            {"name": "text", "type": "STRING"},
            {"name": "amount", "type": "DECIMAL(18,2)"},
        ],
    }
)
"""What messages look like of which nobody has said what they look like."""

_KEY = "idempotency_key"
_DRIFT_FIELDS = ("field_1", "field_2", "field_3")
_DRAWER = 512
_BLANKS = ("null", '""', '"   "')


class _Field(NamedTuple):
    """A field of the payload, and how its value is made up."""

    name: str
    path: Path
    value: Value
    is_moment: bool = False

    @property
    def is_id(self) -> bool:
        """Whether all versions of a record have the same value, and other records others."""
        return self.name.endswith("id")


class PayloadWriter:
    """Writes the payloads of one topic."""

    def __init__(self, contract: Contract) -> None:
        self._key_path = contract.key_path
        paths = field_paths(contract)
        sources = {column.name: column.path for column in contract.envelope_columns if column.name != _KEY}
        fields = [_Field(name, path, text_of(name)) for name, path in sources.items()]
        written = {*sources.values(), self._key_path}
        columns = []
        for column in contract.payload_columns:
            if paths[column.name] not in written:
                written.add(paths[column.name])
                columns.append(column)
                fields.append(_Field(column.name, paths[column.name], value_of(column), is_moment(column)))
        # Most values are taken out of a drawer that is filled once.
        drawn = [field for field in fields if not (field.is_id or field.is_moment)]
        made_up = [field for field in fields if field.is_id or field.is_moment]
        places = {field.name: place for place, field in enumerate([*drawn, *made_up])}
        self._drawers = [([field.value(n, "") for n in range(_DRAWER)], _shift(places[field.name])) for field in drawn]
        self._made_up = [(field.value, field.is_id, _shift(places[field.name])) for field in made_up]
        self._paths = [(places[field.name], field.path) for field in fields]
        self._cdes = [places[column.name] for column in columns if column.cde]
        self._misfits = [(places[column.name], text) for column in columns for text in misfits(column)]
        self._templates: dict[int | None, tuple[str, Sequence[int]]] = {}
        known = (*contract.column_names, *(path[0].lower() for path in written if path))
        self._drift = next(name for name in _names("drift") if not any(each.startswith(name) for each in known))

    @property
    def has_key(self) -> bool:
        """Whether the record's key stands in the payload. If not, it comes with the message."""
        return self._key_path is not None

    def write(self, key: str, mixed: int, record_mixed: int, moment: str) -> str:
        """A payload with nothing wrong."""
        return self._text(None, self._values(key, mixed, record_mixed, moment))

    def write_blank(self, key: str, mixed: int, record_mixed: int, moment: str) -> str:
        """A payload in which a Critical Data Element is null, missing or blank."""
        values = self._values(key, mixed, record_mixed, moment)
        broken, how = self._cdes[mixed % len(self._cdes)], mixed // 64 % (len(_BLANKS) + 1)
        if how == len(_BLANKS):
            return self._text(broken, values)
        values[broken] = _BLANKS[how]
        return self._text(None, values)

    def write_misfit(self, key: str, mixed: int, record_mixed: int, moment: str) -> str:
        """A payload with a value that its column's type cannot hold."""
        values = self._values(key, mixed, record_mixed, moment)
        broken, text = self._misfits[mixed % len(self._misfits)]
        values[broken] = text
        return self._text(None, values)

    def with_drift(self, payload: str, mixed: int) -> tuple[str, str]:
        """The payload with a field that the contract does not know, and the column that it becomes."""
        field = _DRIFT_FIELDS[mixed % len(_DRIFT_FIELDS)]
        return f'{payload[:-1]},"{self._drift}":{{"{field}":{mixed % 100}}}}}', f"{self._drift}_{field}"

    def _values(self, key: str, mixed: int, record_mixed: int, moment: str) -> list[str]:
        """The text of every field, and of the key at the end."""
        texts = [drawer[mixed >> shift & _DRAWER - 1] for drawer, shift in self._drawers]
        texts += [value((record_mixed if is_id else mixed) >> shift, moment) for value, is_id, shift in self._made_up]
        texts.append(f'"{key}"')
        return texts

    def _text(self, omitted: int | None, values: Sequence[str]) -> str:
        if omitted not in self._templates:
            self._templates[omitted] = self._template(omitted)
        template, order = self._templates[omitted]
        return template % tuple([values[index] for index in order])

    def _template(self, omitted: int | None) -> tuple[str, Sequence[int]]:
        """The payload's text with a gap for each value, and which value goes into which gap."""
        tree: dict[str, Any] = {}
        if self._key_path:
            _place(tree, self._key_path, len(self._paths))
        for place, path in self._paths:
            if place != omitted:
                _place(tree, path, place)
        return _written(tree), list(_leaves(tree))


def field_paths(contract: Contract) -> dict[str, Path]:
    """The field that fills each payload column: its source, or one of its plain name, the envelope's if that is one."""
    own = {column_name(column.path): column.path for column in contract.envelope_columns}
    firsts = {path[0] for path in own.values()}
    names = [column.name for column in contract.payload_columns]
    nested = dict(zip(names, column_paths(names), strict=True))
    return {
        column.name: column.path or own.get(column.name) or _clear_of(firsts, nested[column.name])
        for column in contract.payload_columns
    }


def unwritable(contract: Contract) -> Iterator[str]:
    """Why no payload could keep a contract: one value cannot be of two types, nor a field a value and an object."""
    paths = field_paths(contract)
    sharing: dict[Path, list[str]] = {column.path: [column.name] for column in contract.envelope_columns}
    for column in contract.payload_columns:
        others = sharing.setdefault(paths[column.name], [])
        if others and column.type.name != "STRING":
            yield f"{column.name} is no STRING, and is filled from the same field as {others[0]}."
        others.append(column.name)
    objects = {path[:level]: path for path in sharing for level in range(1, len(path))}
    named = {column_name(path): below for path, below in objects.items()}
    for column in contract.payload_columns:
        below = objects.get(paths[column.name]) if column.path else named.get(column.name)
        if below:
            yield f"the field of {column.name} is an object, for {'.'.join(below)} is below it."


def column_paths(names: Sequence[str]) -> list[Path]:
    """A path for each column that flattens to its name: columns whose first word is the same share an object."""
    firsts = Counter(name.partition("_")[0] for name in names)
    shared = {first for first, count in firsts.items() if count > 1 and first not in names}
    paths: dict[str, Path] = {name: (name,) for name in names}
    for first in shared:
        inner = [name for name in names if name.partition("_")[0] == first]
        rests = [name.removeprefix(f"{first}_") for name in inner]
        # A name with two underscores in a row, or at its end, would not flatten to itself.
        if all(rest.strip("_") == rest != "" for rest in rests):
            paths |= {name: (first, *path) for name, path in zip(inner, column_paths(rests), strict=True)}
    return [paths[name] for name in names]


def _shift(place: int) -> int:
    """Which bits of a message's number a field looks at, so that fields have different values."""
    return place * 7 % 48


def _clear_of(taken: Collection[str], path: Path) -> Path:
    """A field that the envelope has is not the payload's: in upper case it is another, and flattens to the same."""
    return (path[0].upper(), *path[1:]) if path[0] in taken else path


def _names(name: str) -> Iterator[str]:
    while True:
        yield name
        name += "_more"


def _place(tree: dict[str, Any], path: Path, leaf: int) -> None:
    """Put a leaf where its path says, unless another field is in its way."""
    for step in path[:-1]:
        inner = tree.setdefault(step, {})
        if not isinstance(inner, dict):
            return
        tree = inner
    tree.setdefault(path[-1], leaf)


def _written(tree: dict[str, Any]) -> str:
    inner = (
        f"{json.dumps(name).replace('%', '%%')}:{_written(each) if isinstance(each, dict) else '%s'}"
        for name, each in tree.items()
    )
    return f"{{{','.join(inner)}}}"


def _leaves(tree: dict[str, Any]) -> Iterator[int]:
    for each in tree.values():
        if isinstance(each, dict):
            yield from _leaves(each)
        else:
            yield each
