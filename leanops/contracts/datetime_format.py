"""The formats of DATE and TIMESTAMP columns: which there are, and which moment a text in one says.

A format is a pattern as Spark takes it: Java's `DateTimeFormatter`, less what Spark's `DateTimeFormatterHelper` refuses
(weeks, narrow names, letters that cannot be read). It is accepted if

1. **Spark can read what it writes.** Letters and their counts are Java's. Java reads a number without a fixed width
   (`d`, `yyyy`) to its last digit, so no other digit follows it, unless by numbers of fixed width up to the next sign
   (`yyyyMMdd`); and it takes an optional section wherever it can, so what follows must not begin in the same way.
2. **Nothing is lost or made up.** A format has year, month and day, each part once, and no smaller part without the
   larger one. A DATE has no time of day. Two digits of a year, an hour of twelve without AM or PM and the name of a
   zone each mean more than one moment.

What only the linter knows is here; no JVM is asked. The tests ask Spark about every letter and count.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from functools import lru_cache

from leanops.errors import NotAllowed, quoted

EPOCH_FORMATS = {"epoch_seconds": 1_000_000, "epoch_millis": 1_000, "epoch_micros": 1}
"""Numbers since 1970, and how many microseconds each counts."""
MAX_LENGTH = 100
MAX_SECTIONS = 4

_MONTHS = "January|February|March|April|May|June|July|August|September|October|November|December"
_SHORT_MONTHS = "Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec"
_MONTH_NUMBERS = {
    name: number for names in (_MONTHS, _SHORT_MONTHS) for number, name in enumerate(names.split("|"), start=1)
}
_TWO_DIGITS = {1: "(?:0|[1-9][0-9]?)", 2: "[0-9]{2}"}
_FROM_ONE = {1: "[1-9][0-9]?", 2: "[0-9]{2}"}
_MONTH = {**_FROM_ONE, 3: f"(?:{_SHORT_MONTHS})", 4: f"(?:{_MONTHS})"}
_OFFSETS = {
    1: "[+-][0-9]{2}(?:[0-9]{2})?",
    2: "[+-][0-9]{4}",
    3: "[+-][0-9]{2}:[0-9]{2}",
    4: "[+-][0-9]{4}(?:[0-9]{2})?",
    5: "[+-][0-9]{2}:[0-9]{2}(?::[0-9]{2})?",
}
_LONG_GMT = "GMT(?:[+-][0-9]{2}:[0-9]{2})?"
_FORMS: dict[str, dict[int, str]] = {
    "G": {**dict.fromkeys((1, 2, 3), "AD"), 4: "Anno Domini"},
    "y": {
        1: "[1-9][0-9]{0,3}",
        3: "(?:(?!000)[0-9]{3}|[1-9][0-9]{3})",
        4: "(?!0000)[0-9]{4}",
        5: "0(?!0000)[0-9]{4}",
        6: "00(?!0000)[0-9]{4}",
    },
    "M": _MONTH,
    "L": _MONTH,
    "d": _FROM_ONE,
    "D": {1: "[1-9][0-9]{0,2}", 2: "(?:[0-9]{2}|[1-9][0-9]{2})", 3: "[0-9]{3}"},
    **dict.fromkeys("HkKhms", _TWO_DIGITS),
    "S": {count: f"[0-9]{{{min(count, 6)}}}{'0' * (count - 6)}" for count in range(1, 10)},
    "a": {1: "(?:AM|PM)"},
    "X": {count: f"(?:Z|{form})" for count, form in _OFFSETS.items()},
    "x": _OFFSETS,
    "Z": {**dict.fromkeys((1, 2, 3), _OFFSETS[2]), 4: _LONG_GMT, 5: f"(?:Z|{_OFFSETS[5]})"},
    "O": {1: "GMT(?:[+-][0-9]{1,2}(?::[0-9]{2})?)?", 4: _LONG_GMT},
}
"""Every letter and how often it may stand, with the form of what it writes: years 1 to 9999, and up to microseconds."""

_PARTS = {
    **dict.fromkeys("ML", "month"),
    **dict.fromkeys("HkKh", "hour"),
    **dict.fromkeys("XxZO", "zone"),
    "G": "era",
    "y": "year",
    "d": "day",
    "D": "day of the year",
    "m": "minute",
    "s": "second",
    "S": "fraction",
    "a": "half of the day",
}
_READ = ("year", "month", "day", "day of the year", "hour", "half of the day", "minute", "second", "fraction", "zone")
_TIME_PARTS = ("hour", "minute", "second", "fraction", "half of the day")
_NUMBERS = "yMLdDHkKhms"
_CLOCKS = {"H": range(24), "k": range(1, 25), "K": range(12), "h": range(1, 13)}
_OFFSET = re.compile(r"(?:GMT)?([+-])([0-9]{1,2}):?([0-9]{2})?:?([0-9]{2})?")
_FURTHEST_ZONE = timedelta(hours=18)

_NO_WEEKS = "Spark reads no weeks, quarters or days of the week"
_NO_NAMES = "the name of a zone means more than one moment when clocks go back, and its abbreviation more than one zone"
_REFUSED = {
    "Y": "Y is the year of a week; the year is y",
    "u": "the year is y",
    **dict.fromkeys("wWecEFqQ", _NO_WEEKS),
    **dict.fromkeys("zvV", _NO_NAMES),
    **dict.fromkeys("ABnNp", "Spark does not take this letter"),
    "g": "a number of days is no date",
}
# What other tools write for the same, outermost first.
_REWRITES = (
    (r"Y", "y"),
    (r"(?<!y)yy(?!y)", "yyyy"),
    (r"D", "d"),
    (r"(?<=[HhkK]:)MM", "mm"),
    (r"(?<=:)SS(?!S)", "ss"),
    (r"(?<!:)mm(?!:)", "MM"),
    (r"T", "'T'"),
    (r"f", "S"),
    (r"(?<![A-Za-z])t+(?![A-Za-z])", "a"),
    (r"h+", "HH"),
    (r"[zvV]+", "XXX"),
    (r"u", "y"),
)
_STRFTIME = {"Y": "yyyy", "m": "MM", "d": "dd", "H": "HH", "M": "mm", "S": "ss", "f": "SSSSSS", "b": "MMM", "B": "MMMM"}
_STRFTIME |= {"z": "XX", "I": "hh", "p": "a", "j": "DDD", "T": "HH:mm:ss", "F": "yyyy-MM-dd"}
_TOKEN = re.compile(r"'(?P<quoted>[^']*)'|(?P<letter>[A-Za-z])(?P=letter)*|(?P<sign>[\[\]])|(?P<other>.)", re.DOTALL)


@dataclass(frozen=True)
class _Field:
    letter: str
    count: int

    @property
    def run(self) -> str:
        return self.letter * self.count

    @property
    def is_number(self) -> bool:
        return self.letter in _NUMBERS and not (self.letter in "ML" and self.count > 2)

    @property
    def has_fixed_width(self) -> bool:
        """Whether Java takes so many digits for it and no more, also when other digits stand before it."""
        if self.letter == "S":
            return self.count == 1
        return self.is_number and self.letter != "y" and self.count == (3 if self.letter == "D" else 2)

    @property
    def is_greedy(self) -> bool:
        return self.is_number and not self.has_fixed_width


@dataclass(frozen=True)
class _Section:
    """What may be left out: `[…]`."""

    items: tuple["_Item", ...]


_Item = str | _Field | _Section
_BORDER = ""
"""Where a section begins or ends: numbers on its two sides are not read as one."""


def check_format(layout: str, type_name: str) -> None:
    """Refuse a format that a DATE or TIMESTAMP cannot have, with the reason and the nearest one that it can have."""
    reason = _problem(layout, type_name)
    if reason is None:
        return
    epochs = f", or {', '.join(EPOCH_FORMATS)}" if type_name == "TIMESTAMP" else ""
    nearest = _nearest(layout, type_name)
    raise NotAllowed(
        f"{quoted(layout)} is no format of a {type_name}: {reason}",
        allowed=f"a pattern with year, month and day, such as dd.MM.yyyy{epochs}",
        fix=f"write {quoted(nearest)}" if nearest else None,
    )


def is_format(layout: str, type_name: str) -> bool:
    """Whether a DATE or TIMESTAMP can be written so."""
    return _problem(layout, type_name) is None


def read_moment(text: str, layout: str) -> datetime | None:
    """The moment in UTC that a text of this format says, or None: it has another form, or says February 30th.

    Years are 1 to 9999, in UTC too; zones are at most 18 hours away. What the text does not say is zero.
    """
    form, places, clock = _reader(layout)
    found = form.fullmatch(text)
    if found is None:
        return None
    year, month, day, day_of_year, hour, half, minute, second, fraction, zone = found.group(*places)
    try:
        moment = datetime(
            int(year),
            _MONTH_NUMBERS.get(month) or int(month or 1),
            int(day or 1),
            _hour(int(hour), clock, half) if hour else 0,
            int(minute or 0),
            int(second or 0),
            int(f"{fraction:0<6.6}") if fraction else 0,
            UTC,
        )
        if day_of_year:
            moment += timedelta(days=int(day_of_year) - 1)
            if moment.year != int(year):
                return None
        return moment - _offset(zone) if zone else moment
    except (ValueError, OverflowError):
        return None


@lru_cache(maxsize=10_000)
def _reader(layout: str) -> tuple[re.Pattern[str], list[int], range]:
    """The form of the texts that are written in a format, its groups in the order of `_READ`, and the hour's clock.

    The last group is empty: it stands for each part that the format has not.
    """
    items = _parse(layout)
    letters = list(_letters(items))
    parts = [_PARTS[letter] for letter in letters]
    places = [(parts.index(part) if part in parts else len(parts)) + 1 for part in _READ]
    clock = next((_CLOCKS[letter] for letter in letters if letter in _CLOCKS), range(24))
    return re.compile(f"{''.join(map(_form, items))}()"), places, clock


def _form(item: _Item) -> str:
    if isinstance(item, _Section):
        return f"(?:{''.join(map(_form, item.items))})?"
    return re.escape(item) if isinstance(item, str) else f"({_FORMS[item.letter][item.count]})"


def _hour(hour: int, clock: range, half: str | None) -> int:
    """The hour of the day. AM or PM beside an hour of 24 must agree with it."""
    of_day = hour % len(clock) + (12 if half == "PM" and len(clock) == 12 else 0)
    if hour not in clock or (half and (half == "PM") != (of_day >= 12)):
        raise ValueError("there is no such hour")
    return of_day


@lru_cache
def _offset(zone: str) -> timedelta:
    found = _OFFSET.fullmatch(zone)
    if found is None:  # Z or GMT
        return timedelta()
    hours, minutes, seconds = map(int, found.groups(default="0")[1:])
    offset = timedelta(hours=hours, minutes=minutes, seconds=seconds)
    if minutes >= 60 or seconds >= 60 or offset > _FURTHEST_ZONE:
        raise ValueError("there is no such zone")
    return -offset if found[1] == "-" else offset


def _problem(layout: str, type_name: str) -> str | None:
    """Why a type cannot have a format, if it cannot."""
    if layout in EPOCH_FORMATS:
        return None if type_name == "TIMESTAMP" else "a DATE is not counted from 1970"
    try:
        items = _parse(layout)
        _check_sections(items, frozenset())
        for variant in _variants(items):
            _check_digits(variant)
            _check_parts(variant, type_name)
        _check_era(items)
    except ValueError as problem:
        return str(problem)
    return None


def _parse(layout: str) -> tuple[_Item, ...]:
    """Letters, text and sections of a pattern, as Java reads it."""
    if len(layout) > MAX_LENGTH:
        raise ValueError(f"it has {len(layout):,} characters, and {MAX_LENGTH} are allowed")
    if any(unicodedata.category(sign)[0] == "C" or sign in "\u2028\u2029" for sign in layout):
        raise ValueError("it has control characters or line breaks")
    levels: list[list[_Item]] = [[]]
    sections = 0
    for token in _TOKEN.finditer(layout):
        if token["sign"] == "[":
            levels.append([])
            sections += 1
        elif token["sign"] == "]":
            _close_section(levels)
        elif token["letter"]:
            levels[-1].append(_field(token["letter"], len(token[0])))
        else:
            levels[-1].append(_literal(token))
    if len(levels) > 1:
        raise ValueError("a [ has no ]")
    if sections > MAX_SECTIONS:
        raise ValueError(f"it has {sections} optional sections, and {MAX_SECTIONS} are allowed")
    return tuple(levels[0])


def _close_section(levels: list[list[_Item]]) -> None:
    if len(levels) == 1:
        raise ValueError("a ] has no [")
    levels[-2].append(_Section(tuple(levels.pop())))


def _field(letter: str, count: int) -> _Field:
    run = letter * count if count <= 10 else f"{letter * 9}…"
    if letter not in _FORMS:
        raise ValueError(f"{run}: {_REFUSED.get(letter, f'there is no such letter; text stands in quotes, {run!r}')}")
    if letter == "y" and count == 2:
        raise ValueError("yy: two digits of a year do not say the century")
    if count not in _FORMS[letter]:
        raise ValueError(f"{run}: {letter} stands {_spoken(sorted(_FORMS[letter]))} times")
    return _Field(letter, count)


def _spoken(counts: Sequence[int]) -> str:
    *others, last = map(str, counts)
    return f"{', '.join(others)} or {last}" if others else last


def _literal(token: re.Match[str]) -> str:
    if token["quoted"] is not None:
        if not token["quoted"]:
            raise ValueError("an apostrophe cannot be part of its text")
        return token["quoted"]
    if token["other"] == "'":
        raise ValueError("a ' has no second one")
    if token["other"] in "{}#":
        raise ValueError(f"{token['other']} stands in quotes, '{token['other']}'")
    return token["other"]


def _first_signs(items: Sequence[_Item], behind: frozenset[str]) -> frozenset[str]:
    """What a text of these items can begin with, lower case and any digit as 0; `behind` is what comes after them."""
    signs: frozenset[str] = frozenset()
    for item in items:
        if isinstance(item, _Section):
            signs |= _first_signs(item.items, frozenset())
        else:
            return signs | _signs_of(item)
    return signs | behind


def _signs_of(item: str | _Field) -> frozenset[str]:
    if isinstance(item, str):
        return frozenset("0" if item[0] in "0123456789" else item[0].casefold())
    if item.is_number or item.letter == "S":
        return frozenset("0+-") if item.is_greedy else frozenset("0")
    match item.letter:
        case "M" | "L":
            return frozenset("jfmasond")
        case "G":
            return frozenset("ab")
        case "a":
            return frozenset("ap")
        case "O":
            return frozenset("g")
        case _:
            return frozenset("z+-g")


def _check_sections(items: Sequence[_Item], behind: frozenset[str]) -> None:
    """Java tries a section first and never comes back to it: what follows must begin in another way."""
    for place, item in enumerate(items):
        if not isinstance(item, _Section):
            continue
        rest = _first_signs(items[place + 1 :], behind)
        own = _first_signs(item.items, frozenset())
        if not own or own & rest or all(isinstance(each, _Section) for each in item.items):
            raise ValueError("it cannot be seen from its first sign whether an optional section is there")
        _check_sections(item.items, rest)


def _variants(items: Sequence[_Item]) -> Iterator[list[str | _Field]]:
    """The pattern with each section present or left out, its borders marked."""
    if not items:
        yield []
        return
    first, *others = items
    for rest in _variants(others):
        if isinstance(first, _Section):
            yield [_BORDER, *rest]
            yield from ([_BORDER, *inner, _BORDER, *rest] for inner in _variants(first.items))
        else:
            yield [first, *rest]


def _check_digits(variant: Sequence[str | _Field]) -> None:
    """Behind a number without a fixed width, numbers that have one and then no digit."""
    for place, item in enumerate(variant):
        if not (isinstance(item, _Field) and item.is_greedy):
            continue
        behind = place + 1
        while behind < len(variant) and _has_fixed_width(variant[behind]):
            behind += 1
        following = next((each for each in variant[behind:] if each != _BORDER), None)
        if following is not None and "0" in _signs_of(following):
            shown = following.run if isinstance(following, _Field) else following
            raise ValueError(f"Spark cannot tell where {item.run} ends and {shown} begins")


def _has_fixed_width(item: str | _Field) -> bool:
    return isinstance(item, _Field) and item.has_fixed_width


def _check_parts(variant: Sequence[str | _Field], type_name: str) -> None:
    """Year, month and day, each part once, and no smaller part without the larger one."""
    fields = [item for item in variant if isinstance(item, _Field)]
    parts = [_PARTS[field.letter] for field in fields]
    letters = {field.letter for field in fields}
    for part in parts:
        if parts.count(part) > 1:
            raise ValueError(f"the {part} stands twice{_minutes_hint(part)}")
    _check_day(parts)
    if type_name == "DATE":
        if lost := [part for part in parts if part in (*_TIME_PARTS, "zone")]:
            raise ValueError(f"a DATE would lose the {lost[0]}; make the column a TIMESTAMP")
        return
    if letters & {"h", "K"} and "a" not in letters:
        raise ValueError("an hour of twelve without AM or PM (a) means two; the hour of the day is HH")
    for part, larger in (("half of the day", "hour"), ("minute", "hour"), ("second", "minute"), ("fraction", "second")):
        if part in parts and larger not in parts:
            raise ValueError(f"it has the {part} and not the {larger}")


def _minutes_hint(part: str) -> str:
    return "; minutes are mm" if part == "month" else ""


def _check_day(parts: Sequence[str]) -> None:
    if "year" not in parts:
        raise ValueError("it has no year (yyyy)")
    if "day of the year" in parts:
        if "month" in parts or "day" in parts:
            raise ValueError("D is the day of the year; the day of the month is dd")
        return
    for part, run in (("month", "MM"), ("day", "dd")):
        if part not in parts:
            raise ValueError(f"it has no {part} ({run})")


def _check_era(items: Sequence[_Item]) -> None:
    """With an era anywhere in the pattern, Spark takes the year for 1970 in every text that has none."""
    is_in_section = any(isinstance(item, _Section) and "G" in _letters(item.items) for item in items)
    if is_in_section:
        raise ValueError("an era (G) is not optional")


def _letters(items: Sequence[_Item]) -> Iterator[str]:
    for item in items:
        if isinstance(item, _Section):
            yield from _letters(item.items)
        elif isinstance(item, _Field):
            yield item.letter


def _nearest(layout: str, type_name: str) -> str | None:
    """What was most likely meant, if that is a format: other tools have other letters for the same."""
    if len(layout) > MAX_LENGTH:
        return None
    epoch = get_close_matches(layout, EPOCH_FORMATS, n=1)
    return next((each for each in (*epoch, *_rewritten(layout)) if is_format(each, type_name)), None)


def _rewritten(layout: str) -> Iterator[str]:
    if "%" in layout:
        yield re.sub(r"%([A-Za-z])", lambda found: _STRFTIME.get(found[1], found[0]), layout.replace("T", "'T'"))
    changed = layout
    for rewrite in _REWRITES:
        yield _outside_quotes(layout, *rewrite)
    for rewrite in _REWRITES:
        changed = _outside_quotes(changed, *rewrite)
        yield changed


def _outside_quotes(layout: str, pattern: str, replacement: str) -> str:
    return "".join(
        part if part.startswith("'") else re.sub(pattern, replacement, part) for part in re.split("('[^']*')", layout)
    )
