"""From bytes to the JSON object that they are, or to one exact sentence why they are none."""

import json
from collections import Counter
from typing import Any

from leanops.errors import NotAllowed, quoted

_ENCODINGS = {"utf-16": "UTF-16", "utf-32": "UTF-32"}
_MAX_DIGITS = 100


def json_object(content: bytes) -> dict[str, Any]:
    """The JSON object that `content` is, or `NotAllowed` with what it is instead."""
    text = _text(content)
    try:
        document = json.loads(
            text, object_pairs_hook=_unique_keys, parse_int=_whole_number, parse_constant=_no_constant
        )
        json.dumps(document, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        raise _not_json(text, error) from None
    except RecursionError:
        raise NotAllowed(
            "the file is nested deeper than any contract",
            found="something nested very deeply",
            allowed="an object with lists of columns",
        ) from None
    except UnicodeEncodeError as error:
        half = ascii(error.object[error.start])
        raise NotAllowed(
            f"the file has half a character, {half}, which no text can hold", found=half, allowed="whole characters"
        ) from None
    if not isinstance(document, dict):
        raise NotAllowed("a contract is a JSON object", found=shown(document), allowed="a JSON object")
    return document


def _text(content: bytes) -> str:
    encoding = json.detect_encoding(content)
    if encoding == "utf-8-sig":
        raise NotAllowed(
            "the file begins with a byte order mark, which is no part of JSON",
            found="UTF-8 with a byte order mark (EF BB BF)",
            allowed="UTF-8 without a byte order mark",
            fix="save it as UTF-8 without BOM",
        )
    if name := _ENCODINGS.get(encoding[:6]):
        raise NotAllowed(
            f"the file is {name}, not UTF-8", found=name, allowed="UTF-8", fix="save it as UTF-8 without BOM"
        )
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        byte = content[error.start]
        line = content.count(b"\n", 0, error.start) + 1
        # From here on Latin-1 and Windows-1252 are the same, and letters.
        letter = f", which is {chr(byte)!r} in Latin-1" if byte >= 0xC0 else ""
        raise NotAllowed(
            f"the file is not UTF-8 at byte {error.start}, in line {line}: there is 0x{byte:02X}{letter}",
            found=f"the byte 0x{byte:02X}{letter}",
            allowed="UTF-8",
            fix="save it as UTF-8 without BOM",
        ) from None


def _not_json(text: str, error: json.JSONDecodeError) -> NotAllowed:
    if not text.strip():
        return NotAllowed("not JSON: the file is empty", found="nothing", allowed="a JSON object")
    rest = text[error.pos : error.pos + 20]
    return NotAllowed(
        f"not JSON: {error.msg.removesuffix(' at')} at line {error.lineno}, column {error.colno}",
        found=quoted(rest) if rest else "the end of the file",
        allowed="JSON (RFC 8259)",
        fix=_json_fix(text, error.pos),
    )


def _json_fix(text: str, place: int) -> str | None:
    """What people are used to from other languages."""
    rest = text[place : place + 2]
    if rest[:1] == "'":
        return "write names and texts in double quotes"
    if rest in ("//", "/*") or rest[:1] == "#":
        return "take the comment away: JSON has none"
    if rest[:1] in ("}", "]") and text[:place].rstrip()[-1:] == ",":
        return "take the comma before it away"
    return None


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    counts = Counter(key for key, _ in pairs)
    if repeated := sorted(key for key, count in counts.items() if count > 1):
        names = ", ".join(ascii(key[:60]) for key in repeated[:10])
        raise NotAllowed(
            f"not a contract: the key {names} stands twice in one object",
            found=f"{names} twice",
            allowed="each key once",
            fix="take one of the two away",
        )
    return dict(pairs)


def _whole_number(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise NotAllowed(
            f"the file has a number of {len(digits):,} digits, {digits[:10]}…, and no contract needs one",
            found=f"{digits[:10]}…",
            allowed=f"numbers of at most {_MAX_DIGITS} digits",
        )
    return int(digits)


def _no_constant(name: str) -> None:
    raise NotAllowed(f"not JSON: {name} is no value that JSON knows", found=name, allowed="JSON (RFC 8259)")


def shown(value: Any) -> str:
    """A value as JSON, in short."""
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
    except RecursionError:
        return "something nested very deeply"
    return text if len(text) <= 60 else text[:57] + "…"
