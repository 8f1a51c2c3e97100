"""From the bytes of a scenario file to a scenario, or to every problem of it at once, each with its JSON path."""

import json
import re
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from leanops.contracts.json_text import shown
from leanops.errors import NotAllowed, Problem, ScenarioInvalid, quoted
from leanops.injector.scenario import DAY_RULE, MOST_MESSAGES, Day, Scenario, Shares, Topic
from leanops.names import TOPIC_RULE

HINT = "docs/injector.md says what a scenario may hold."
_SHARE = "a number from 0 to 1"
_RATE = "a number above 0 and up to 1,000,000"
ALLOWED = {
    "description": "a text",
    "seed": "a whole number from 0 on",
    "topics": "a list of one topic or more",
    "topics[]": "an object with the keys name and contract",
    "topics[].name": TOPIC_RULE,
    "topics[].contract": "a topic that has an active contract, a contract file ending in .json, or null",
    "rate": _RATE,
    "seconds": _RATE,
    "days": "a list of one day or more",
    "days[]": "an object with at least the key day",
    "days[].day": DAY_RULE,
    "days[].rate": _RATE,
    "days[].seconds": _RATE,
    "late_by_days": "a whole number from 1 on",
    **{
        f"{place}shares": f"an object with any of the keys {', '.join(Shares.model_fields)}"
        for place in ("", "days[].")
    },
    **{f"{place}shares.{name}": _SHARE for place in ("", "days[].") for name in Shares.model_fields},
}
"""What may stand at each place of a scenario."""

_LISTS: dict[str, type[BaseModel]] = {"topics": Topic, "days": Day}


def read_scenario(content: bytes, where: str) -> Scenario:
    """The scenario in `content`, or `ScenarioInvalid` with all that is wrong in the file `where`."""
    try:
        document = _document(content)
        scenario = Scenario.model_validate(document)
    except NotAllowed as refusal:
        raise invalid(
            where, [Problem("$", f"{refusal.message}.", found=refusal.found, allowed=refusal.allowed)]
        ) from None
    except ValidationError as error:
        errors = (each for each in error.errors(include_url=False) if not _is_echo(each))
        raise invalid(where, [_problem(each) for each in errors]) from None
    if problems := list(_rule_problems(scenario)):
        raise invalid(where, problems)
    return scenario


def invalid(where: str, problems: Sequence[Problem]) -> ScenarioInvalid:
    """All that is wrong with a scenario."""
    return ScenarioInvalid(where, problems, HINT)


def _document(content: bytes) -> dict[str, Any]:
    try:
        document = json.loads(content, object_pairs_hook=_unique_keys)
    except json.JSONDecodeError as error:
        raise NotAllowed(
            f"not JSON: {error.msg} at line {error.lineno}, column {error.colno}", allowed="JSON (RFC 8259)"
        ) from None
    except UnicodeDecodeError as error:
        raise NotAllowed(f"the file is not UTF-8 at byte {error.start}", allowed="UTF-8") from None
    if not isinstance(document, dict):
        raise NotAllowed("a scenario is a JSON object", found=shown(document), allowed="a JSON object")
    return document


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys = [key for key, _ in pairs]
    if repeated := sorted({key for key in keys if keys.count(key) > 1}):
        raise NotAllowed(f"{', '.join(map(quoted, repeated))} stands twice in one object", allowed="each key once")
    return dict(pairs)


def _is_echo(error: ErrorDetails) -> bool:
    """A list whose every item was refused counts as empty; what was wrong with the items is said already."""
    return error["type"] == "too_short" and bool(error["input"])


def _problem(error: ErrorDetails) -> Problem:
    location, found = error["loc"], shown(error["input"])
    path = "$" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    allowed = ALLOWED.get(re.sub(r"\[\d+\]", "[]", path).removeprefix("$."))
    match error["type"]:
        case "extra_forbidden":
            key, known = str(location[-1]), _known_keys(location)
            return Problem(path, "unknown key.", _nearest(key, known), found=shown(key), allowed=", ".join(known))
        case "missing":
            return Problem(path, "required, but missing.", f"Add it: {allowed}.", found="nothing", allowed=allowed)
        case "value_error":
            return Problem(path, f"{error['ctx']['error'].message}.", found=found, allowed=allowed)
        case _:
            return Problem(path, f"it must be {allowed}, found {found}.", found=found, allowed=allowed)


def _known_keys(location: tuple[int | str, ...]) -> list[str]:
    if "shares" in location[:-1]:
        return list(Shares.model_fields)
    return list((_LISTS[str(location[0])] if len(location) > 1 else Scenario).model_fields)


def _nearest(key: str, known: Sequence[str]) -> str:
    match = get_close_matches(key[:60].lower(), known, n=1, cutoff=0.5)
    return f"Did you mean {match[0]!r}?" if match else f"Known here: {', '.join(known)}."


def _rule_problems(scenario: Scenario) -> Iterator[Problem]:
    """The rules that span several keys."""
    names = [topic.name for topic in scenario.topics]
    for index, name in enumerate(names):
        if name in names[:index]:
            yield Problem(
                f"$.topics[{index}].name",
                f"{quoted(name)} stands here twice.",
                "Take one of the two away.",
                found=shown(name),
                allowed="each topic once",
            )
    for index, day in enumerate(scenario.days):
        path, messages = f"$.days[{index}]", scenario.messages_of(day)
        if messages < 1:
            yield Problem(
                path,
                "rate and seconds give no message.",
                "Raise one of them.",
                found=f"{scenario.rate_of(day)} a second for {day.seconds or scenario.seconds} seconds",
                allowed="one message at least",
            )
            continue
        counts = scenario.counts_of(day)
        special = sum(counts.values()) + counts["out_of_order"]
        if special >= messages:
            yield Problem(
                f"{path}.shares" if day.shares else "$.shares",
                f"the shares take {special:,} of the day's {messages:,} messages, and one must be a new record.",
                "Lower them.",
                found=f"{special:,} messages",
                allowed=f"at most {messages - 1:,} messages; out_of_order takes two each",
            )
    total = sum(map(scenario.messages_of, scenario.days))
    if total > MOST_MESSAGES:
        yield Problem(
            "$.days",
            f"each topic would get {total:,} messages.",
            "Lower rate or seconds.",
            found=f"{total:,} messages",
            allowed=f"at most {MOST_MESSAGES:,}",
        )
