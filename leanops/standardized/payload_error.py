"""Why a payload is not one JSON object, in words its producer can act on.

Only payloads that were already refused come here, so this may be slow: Python's own parser says what is wrong and
where.
"""

import json
import re
from collections import Counter
from typing import Any, NoReturn

MAX_DEPTH = 200

_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_CONSTANT = re.compile(r'"(?:[^"\\]|\\.)*"|(-?Infinity|NaN)', re.DOTALL)
_SURROGATE = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\\\|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
)
_NO_BRACKETS = bytes(set(range(256)) - set(b"{}[]"))
_KINDS = {dict: "object", list: "array", str: "string", bool: "boolean", type(None): "null"}


class PayloadError(ValueError):
    """A payload's kind of error, a sentence, and the character at which it was seen, where there is one place."""

    def __init__(self, kind: str, reason: str, position: int | None = None) -> None:
        super().__init__(reason)
        self.kind = kind
        self.reason = reason
        self.position = position


class _ConstantRefused(Exception):
    pass


class _Number(str):
    """A number as it was written."""


class _Members(list[tuple[str, Any]]):
    """An object's members as they were written, doubles included."""


def depth_exceeds_limit(payload: bytes) -> bool:
    """Whether objects and arrays lie deeper than MAX_DEPTH, counted outside strings."""
    if payload.count(b"{") + payload.count(b"[") <= MAX_DEPTH:
        return False
    depth = deepest = 0
    for sign in _STRING.sub(b"", payload).translate(None, _NO_BRACKETS):
        depth += 1 if sign in b"{[" else -1
        deepest = max(deepest, depth)
    return deepest > MAX_DEPTH


def duplicate_name(payload: bytes) -> str | None:
    """The first name that an object of a valid payload gives twice; objects in arrays stay text and do not count."""
    open_objects = [json.loads(payload, object_pairs_hook=_Members, parse_int=str, parse_float=str)]
    while open_objects:
        members = open_objects.pop()
        name, times = Counter(name for name, _ in members).most_common(1)[0] if members else ("", 0)
        if times > 1:
            return name
        open_objects.extend(value for _, value in members if isinstance(value, _Members))
    return None


def diagnosis(payload: bytes | None) -> PayloadError:
    """What is wrong with a payload that was refused."""
    if payload is None or not payload.strip(b" \t\r\n"):
        return PayloadError("empty", "the payload is empty")
    try:
        text = payload.decode("utf-8")
    except UnicodeDecodeError as error:
        return PayloadError("not_utf8", f"byte {error.start} is not UTF-8: {error.reason}", error.start)
    if text.startswith("\ufeff"):
        return PayloadError("byte_order_mark", "the payload starts with a byte order mark; send it without", 0)
    if depth_exceeds_limit(payload):
        return PayloadError("too_deep", f"objects and arrays are nested deeper than {MAX_DEPTH} levels")
    try:
        value = json.loads(text, parse_int=_Number, parse_float=_Number, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        message = error.msg.removesuffix(" at")
        return PayloadError(_kind(error), f"{message} at line {error.lineno}, column {error.colno}", error.pos)
    except _ConstantRefused as refused:
        match = next(found for found in _CONSTANT.finditer(text) if found.group(1))
        return PayloadError("not_json", f"{refused} is not a JSON number", match.start(1))
    if not isinstance(value, dict):
        return PayloadError(
            "not_an_object", f"the payload is a JSON {_KINDS.get(type(value), 'number')}, it must be an object", 0
        )
    for found in _SURROGATE.finditer(text):
        if found.group(1):
            return PayloadError(
                "lone_surrogate",
                f"{found.group(1)} is half of a surrogate pair, which no text can hold",
                found.start(1),
            )
    name = duplicate_name(payload)
    if name is not None:
        return PayloadError("duplicate_name", f"an object gives the name {json.dumps(name, ensure_ascii=False)} twice")
    return PayloadError("not_json", "the payload could not be read as JSON")


def _kind(error: json.JSONDecodeError) -> str:
    if error.msg == "Extra data":
        return "trailing_data"
    if error.msg.startswith("Unterminated string") or error.pos >= len(error.doc.rstrip()):
        return "truncated"
    return "not_json"


def _refuse_constant(token: str) -> NoReturn:
    raise _ConstantRefused(token)
