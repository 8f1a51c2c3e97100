"""From the bytes of a contract file to a contract, or to every problem of it at once, each with its JSON path."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from leanops.contracts.model import MAX_COLUMNS, Contract, EnvelopeColumn, PayloadColumn, Thresholds
from leanops.errors import ContractInvalid, Problem, TopicNameInvalid
from leanops.names import topic_name

MAX_BYTES = 2 * 1024 * 1024
_COLUMN_LISTS: dict[str, type[BaseModel]] = {"envelope_columns": EnvelopeColumn, "payload_columns": PayloadColumn}
_PARTS: dict[str, type[BaseModel]] = {**_COLUMN_LISTS, "thresholds": Thresholds}


def read_contract(content: bytes, topic: str, where: str) -> Contract:
    """The contract of `topic` in `content`, or `ContractInvalid` with all that is wrong in the file `where`."""
    try:
        document = _document(content)
    except ValueError as error:
        raise _invalid(where, [Problem("$", str(error))]) from None

    problems = list(_rule_problems(document, topic))
    try:
        contract = Contract.model_validate(document)
    except ValidationError as error:
        problems = [_problem(each) for each in error.errors(include_url=False) if not _is_echo(each)] + problems
    if problems:
        raise _invalid(where, sorted(problems, key=lambda problem: problem.path))
    return contract


def _invalid(where: str, problems: Sequence[Problem]) -> ContractInvalid:
    return ContractInvalid(where, problems, "docs/contracts.md says what a contract may hold.")


def _document(content: bytes) -> dict[str, Any]:
    if len(content) > MAX_BYTES:
        raise ValueError(f"the file has {len(content):,} bytes; a contract has at most {MAX_BYTES:,}.")
    try:
        document = json.loads(content.decode("utf-8"), object_pairs_hook=_unique_keys)
    except UnicodeDecodeError as error:
        raise ValueError(f"the file is not UTF-8 at byte {error.start}.") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} at line {error.lineno}, column {error.colno}.") from None
    except RecursionError:
        raise ValueError("the file is nested deeper than any contract.") from None
    try:
        json.dumps(document, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("the file is nested deeper than any contract.") from None
    except UnicodeEncodeError as error:
        raise ValueError(
            f"the file has half a character, {error.object[error.start]!a}, which no text can hold."
        ) from None
    if not isinstance(document, dict):
        raise ValueError("a contract is a JSON object.")
    return document


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    counts = Counter(key for key, _ in pairs)
    if repeated := sorted(key for key, count in counts.items() if count > 1):
        raise ValueError(f"not a contract: the key {', '.join(map(repr, repeated))} stands twice in one object.")
    return dict(pairs)


def _rule_problems(document: dict[str, Any], topic: str) -> Iterator[Problem]:
    """The rules that span several keys, tolerant of whatever else is wrong."""
    table = document.get("table_name")
    try:
        topic_name(topic)
    except TopicNameInvalid as error:
        yield Problem("$.table_name", error.problem, error.hint)
    if isinstance(table, str) and table != topic:
        yield Problem("$.table_name", f"{table!r} is not the topic of this folder.", f"Write {topic!r}.")

    seen: dict[str, str] = {}
    for key in _COLUMN_LISTS:
        columns = document.get(key)
        for index, column in enumerate(columns[: MAX_COLUMNS + 1] if isinstance(columns, list) else ()):
            name = column.get("name") if isinstance(column, dict) else None
            if not isinstance(name, str):
                continue
            path = f"$.{key}[{index}].name"
            if (first := seen.setdefault(name.lower(), path)) != path:
                yield Problem(path, f"{name!r} is the name of another column already, at {first}.")


def _problem(error: ErrorDetails) -> Problem:
    path = "$" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error["loc"])
    match error["type"]:
        case "extra_forbidden":
            return Problem(path, "unknown key.", _nearest_key(error["loc"]))
        case "missing":
            return Problem(path, "required, but missing.")
        case "value_error":
            return Problem(path, f"{error['ctx']['error']}.".replace("?.", "?"))
        case _:
            return Problem(path, f"{error['msg'][0].lower()}{error['msg'][1:]}, found {_shown(error['input'])}.")


def _is_echo(error: ErrorDetails) -> bool:
    """A list whose every item was refused counts as empty; what was wrong with the items is said already."""
    return error["type"] == "too_short" and bool(error["input"])


def _shown(value: Any) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
    except RecursionError:
        return "something nested very deeply"
    return text if len(text) <= 60 else text[:57] + "…"


def _nearest_key(location: tuple[int | str, ...]) -> str:
    model = _PARTS.get(str(location[0]), Contract) if len(location) > 1 else Contract
    known = list(model.model_fields)
    match = get_close_matches(str(location[-1]).lower(), known, n=1, cutoff=0.5)
    return f"Did you mean {match[0]!r}?" if match else f"Known here: {', '.join(known)}."
