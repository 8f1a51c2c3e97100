"""From the bytes of a contract file to a contract, or to every problem of it at once, each with its JSON path."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from leanops.contracts.column_types import ALL_TYPES
from leanops.contracts.json_text import json_object, shown
from leanops.contracts.model import (
    MAX_COLUMNS,
    MAX_HORIZON_DAYS,
    MAX_OWNERS,
    MAX_VERSION,
    NAME_RULE,
    OWNER_RULE,
    SOURCE_RULE,
    Contract,
    EnvelopeColumn,
    PayloadColumn,
    Thresholds,
)
from leanops.errors import ContractInvalid, NotAllowed, Problem, TopicNameInvalid, quoted
from leanops.names import TOPIC_NAME, TOPIC_RULE, topic_name

MAX_BYTES = 2 * 1024 * 1024
EDITORS_KEY = "$schema"
"""Editors are told by it which JSON Schema a file follows. It says nothing of the topic."""

ALLOWED = {
    "table_name": TOPIC_RULE,
    "version": f"a whole number from 1 to {MAX_VERSION}",
    "description": "a text",
    "owners": f"a list of at most {MAX_OWNERS} owners, each {OWNER_RULE}",
    "owners[]": OWNER_RULE,
    "envelope_columns": f"a list of at most {MAX_COLUMNS:,} columns",
    "envelope_columns[]": "an object with the keys name and source",
    "envelope_columns[].name": NAME_RULE,
    "envelope_columns[].source": SOURCE_RULE,
    "payload_columns": f"a list of 1 to {MAX_COLUMNS:,} columns",
    "payload_columns[]": "an object with at least the keys name and type",
    "payload_columns[].name": NAME_RULE,
    "payload_columns[].source": SOURCE_RULE,
    "payload_columns[].type": ALL_TYPES,
    "payload_columns[].format": "a text, such as dd.MM.yyyy",
    "payload_columns[].cde": "true or false",
    "payload_columns[].default": "a text, whatever the type is",
    "payload_columns[].description": "a text",
    "thresholds": "an object with any of the keys cde_percent, silent_hours and duplicates_within_days",
    "thresholds.cde_percent": "a number above 0 and up to 100",
    "thresholds.silent_hours": "a number above 0",
    "thresholds.duplicates_within_days": f"a whole number from 1 to {MAX_HORIZON_DAYS:,}",
}
"""What may stand at each place of a contract."""

_COLUMN_LISTS: dict[str, type[BaseModel]] = {"envelope_columns": EnvelopeColumn, "payload_columns": PayloadColumn}
_PARTS: dict[str, type[BaseModel]] = {**_COLUMN_LISTS, "thresholds": Thresholds}
_MAX_UNKNOWN_KEYS = 20
_PLAIN_KEY = re.compile(r"[A-Za-z_$][A-Za-z0-9_$-]{0,59}")


def read_contract(content: bytes, topic: str | None, where: str) -> Contract:
    """The contract of `topic` in `content`, or `ContractInvalid` with all that is wrong in the file `where`.

    Where no folder says of which topic a file is, `topic` is None, and the file's own `table_name` counts.
    """
    try:
        document = _document(content)
    except NotAllowed as refusal:
        raise _invalid(where, [_problem_of(refusal, "$")]) from None

    if topic is None:
        topic = _own_topic(document)
    problems = list(_rule_problems(document, topic))
    try:
        contract = Contract.model_validate({key: value for key, value in document.items() if key != EDITORS_KEY})
    except ValidationError as error:
        # What is said of the topic already is not said again of the name that repeats it.
        told = {problem.path for problem in problems} & {"$.table_name"}
        errors = [each for each in error.errors(include_url=False) if not _is_echo(each)]
        problems += [problem for problem in _told(errors, topic) if problem.path not in told]
    if problems:
        raise _invalid(where, sorted(problems, key=_place))
    return contract


def own_topic(content: bytes) -> str | None:
    """The topic that a contract file says it is of, if it can be read that far."""
    try:
        return _own_topic(_document(content))
    except NotAllowed:
        return None


def _own_topic(document: dict[str, Any]) -> str | None:
    table = document.get("table_name")
    return table if isinstance(table, str) else None


def _invalid(where: str, problems: Sequence[Problem]) -> ContractInvalid:
    return ContractInvalid(where, problems, "docs/contracts.md says what a contract may hold.")


def _place(problem: Problem) -> str:
    """Sorts columns by their number, and not `[10]` before `[2]`."""
    return re.sub(r"\d+", lambda number: number[0].zfill(8), problem.path)


def _document(content: bytes) -> dict[str, Any]:
    if len(content) > MAX_BYTES:
        # Stores hand over no more than it takes to know this, so the true size is not known here.
        raise NotAllowed(
            f"the file is too large: a contract has at most {MAX_BYTES:,} bytes",
            found=f"more than {MAX_BYTES:,} bytes",
            allowed=f"at most {MAX_BYTES:,} bytes",
        )
    return json_object(content)


def _rule_problems(document: dict[str, Any], topic: str | None) -> Iterator[Problem]:
    """The rules that span several keys, tolerant of whatever else is wrong."""
    if topic is not None:
        yield from _topic_problems(document.get("table_name"), topic)

    if not isinstance(link := document.get(EDITORS_KEY, ""), str):
        yield Problem(
            f"$.{EDITORS_KEY}",
            f"it must be a text, found {shown(link)}.",
            found=shown(link),
            allowed="a text: where the JSON Schema of contracts is",
        )

    seen: dict[str, tuple[str, str]] = {}
    for key in _COLUMN_LISTS:
        columns = document.get(key)
        for index, column in enumerate(columns if isinstance(columns, list) and len(columns) <= MAX_COLUMNS else ()):
            name = column.get("name") if isinstance(column, dict) else None
            if not isinstance(name, str):
                continue
            path = f"$.{key}[{index}].name"
            first, spelt = seen.setdefault(name.lower(), (path, name))
            if first != path:
                case = "" if spelt == name else ": names that differ in case alone are the same"
                yield Problem(
                    path,
                    f"{quoted(name)} is the name of another column already, at {first}{case}.",
                    fix="Take one of the two away, or give it another name.",
                    found=shown(name),
                    allowed="a name that no other column has, in whatever case",
                )


def _topic_problems(table: object, topic: str) -> Iterator[Problem]:
    try:
        topic_name(topic)
    except TopicNameInvalid as error:
        yield Problem("$.table_name", error.problem, fix=error.hint, found=shown(topic), allowed=TOPIC_RULE)
        return
    if isinstance(table, str) and TOPIC_NAME.fullmatch(table) and table != topic:
        yield Problem(
            "$.table_name",
            f"{table!r} is not the topic of this folder.",
            fix=f"Write {topic!r}.",
            found=shown(table),
            allowed=shown(topic),
        )


def _told(errors: Sequence[ErrorDetails], topic: str | None) -> Iterator[Problem]:
    """Each fault on its own, but for a crowd of unknown keys in one object: those are not misspelt."""
    unknown = Counter(each["loc"][:-1] for each in errors if each["type"] == "extra_forbidden")
    crowded = {place: count for place, count in unknown.items() if count > _MAX_UNKNOWN_KEYS}
    for place, count in crowded.items():
        allowed = ", ".join(_known_keys((*place, "")))
        yield Problem(
            _path(place), f"{count:,} unknown keys. Known here: {allowed}.", found=f"{count:,} keys", allowed=allowed
        )
    for each in errors:
        if each["type"] != "extra_forbidden" or each["loc"][:-1] not in crowded:
            yield _problem(each, topic)


def _problem(error: ErrorDetails, topic: str | None) -> Problem:
    location, value = error["loc"], error["input"]
    path = _path(location)
    allowed = ALLOWED.get(re.sub(r"\[\d+\]", "[]", path).removeprefix("$."))
    right_topic = f"Write {topic!r}." if location == ("table_name",) and topic else None
    match error["type"]:
        case "extra_forbidden":
            key, known = str(location[-1]), _known_keys(location)
            return Problem(
                path, "unknown key.", fix=_nearest_key(key, known), found=shown(key), allowed=", ".join(known)
            )
        case "missing":
            return Problem(
                path, "required, but missing.", fix=_example(location, topic), found="nothing", allowed=allowed
            )
        case "value_error":
            return _problem_of(error["ctx"]["error"], path, shown(value), allowed, right_topic)
        case kind:
            found = shown(value)
            fix = right_topic or _same_in_its_kind(kind, path, value)
            return Problem(path, f"it must be {allowed}, found {found}.", fix=fix, found=found, allowed=allowed)


def _problem_of(
    refusal: NotAllowed, path: str, found: str | None = None, allowed: str | None = None, fix: str | None = None
) -> Problem:
    """What a rule refused, at its place; what the rule itself knows of it comes first."""
    return Problem(
        path,
        f"{refusal.message}.",
        fix=fix or (_sentence(refusal.fix) if refusal.fix else None),
        found=refusal.found or found,
        allowed=refusal.allowed or allowed,
    )


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}" + ("" if text[-1] == "?" else ".")


def _path(location: tuple[int | str, ...]) -> str:
    return "$" + "".join(_step(part) for part in location)


def _step(part: int | str) -> str:
    if isinstance(part, int):
        return f"[{part}]"
    return f".{part}" if _PLAIN_KEY.fullmatch(part) else f"[{shown(part)}]"


def _is_echo(error: ErrorDetails) -> bool:
    """A list whose every item was refused counts as empty; what was wrong with the items is said already."""
    return error["type"] == "too_short" and bool(error["input"])


def _model(location: tuple[int | str, ...]) -> type[BaseModel]:
    return _PARTS.get(str(location[0]), Contract) if len(location) > 1 else Contract


def _known_keys(location: tuple[int | str, ...]) -> list[str]:
    model = _model(location)
    return [*model.model_fields, *([EDITORS_KEY] if model is Contract else [])]


def _nearest_key(key: str, known: Sequence[str]) -> str:
    match = get_close_matches(key[:60].lower(), known, n=1, cutoff=0.5)
    return f"Did you mean {match[0]!r}?" if match else f"Known here: {', '.join(known)}."


def _example(location: tuple[int | str, ...], topic: str | None) -> str | None:
    key = str(location[-1])
    if key == "table_name" and topic:
        return f"Add it: {json.dumps(key)}: {json.dumps(topic)}."
    examples = _model(location).model_fields[key].examples
    return f"Add it, such as {json.dumps(key)}: {json.dumps(examples[0])}." if examples else None


def _same_in_its_kind(kind: str, path: str, value: object) -> str | None:
    """What was meant, where quotes or brackets are all that is wrong."""
    match kind, value:
        case "string_type", bool() | int() | float() if path.endswith(".default"):
            return f"Write {json.dumps(json.dumps(value))}."
        case "int_type" | "float_type", str() if re.fullmatch(r"[1-9][0-9]{0,8}", value):
            return f"Write {value}."
        case "bool_type", str() if value.lower() in ("true", "false"):
            return f"Write {value.lower()}."
        case ("tuple_type", {"name": _}) | ("tuple_type", str()) if path == "$.owners" or isinstance(value, dict):
            return f"Put it into a list: [{shown(value)}]."
        case _:
            return None
