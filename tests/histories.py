"""What may happen to the records of a topic, as Hypothesis draws it.

A history is a handful of messages about two or three records: copies, corrections, late ones, broken ones. A topic
holds many histories that know nothing of each other: ids and keys of each begin with its own name. So one build, which
costs seconds however small it is, tries all of them at once. The messages land in ticks, each followed by builds.

Hypothesis gives an example 8 kB of choices. Hence everything is picked from pools, with few choices a message.
"""

import json
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta, timezone
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple, TypeVar

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy
from hypothesis.vendor.pretty import RepresentationPrinter

from leanops.contracts.model import Contract
from leanops.names import Layer
from leanops.standardized.flatten_plan import DEFAULT_COLUMN_CAP, BoundFields, Path
from tests.cases import casts, payloads
from tests.oracle import Message

T = TypeVar("T")
KEY_SOURCE = "_metadata.idempotencyKeyResource"
KEY_PATH: Path = tuple(KEY_SOURCE.split("."))
CAPPED, SMALL_CAP = "capped", 40


@dataclass(frozen=True)
class Build:
    """A build of a layer, in which whole days may be made anew. One that is killed half-way would be said here too."""

    layer: Layer
    rebuild: tuple[date, ...] = ()

    def __str__(self) -> str:
        return f"{self.layer} with {', '.join(map(str, self.rebuild))} anew" if self.rebuild else self.layer


@dataclass(frozen=True)
class Tick:
    """Messages that land together, in this order, and the builds that follow, by the contract that is active then."""

    messages: tuple[Message, ...]
    builds: tuple[Build, ...]
    contract: Contract

    def __str__(self) -> str:
        builds = ", ".join(map(str, self.builds)) or "no build"
        return f"{len(self.messages)} land, {builds} by contract {self.contract.version}"


@dataclass(frozen=True, repr=False)
class Topic:
    """What happens to a topic."""

    ticks: tuple[Tick, ...]

    @property
    def cap(self) -> int:
        """How many columns its fields may become."""
        return cap_under(self.ticks[0].contract.bound_fields)

    @property
    def histories(self) -> set[str]:
        return {history_of(message.message_id) for tick in self.ticks for message in tick.messages}

    def only(self, history: str) -> "Topic":
        """The same ticks with nothing but the messages of one history."""
        return Topic(
            tuple(
                replace(tick, messages=tuple(each for each in tick.messages if history_of(each.message_id) == history))
                for tick in self.ticks
            )
        )

    def __repr__(self) -> str:
        return f"<{len(self.histories)} histories, {self.cap} columns: {'; '.join(map(str, self.ticks))}>"

    def _repr_pretty_(self, printer: RepresentationPrinter, cycle: bool) -> None:  # noqa: ARG002 - Hypothesis asks so
        """How Hypothesis shows an example. By itself it would print every message."""
        printer.text(repr(self))


def cap_under(bound: BoundFields) -> int:
    """How many columns the fields of a topic may become. Its contracts say so, by a column that no message fills."""
    return SMALL_CAP if CAPPED in bound.names else DEFAULT_COLUMN_CAP


def history_of(message_id: str) -> str:
    """The name of the history that a message is part of."""
    return message_id.partition(".")[0]


def topics(
    histories: int, *, at_least: int | None = None, mixed: bool = True, columns: int = 0
) -> SearchStrategy[Topic]:
    """Topics of so many histories, with contracts of at least so many columns.

    Only without `mixed` do they shrink to simple ones; see `_Choices`.
    """
    return _topics(histories, histories if at_least is None else at_least, mixed, columns)


# Values


def quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _spellings(texts: Iterable[str]) -> tuple[str, ...]:
    """Each text as a JSON string and, where it is a JSON number or a boolean, as that too."""
    bare = re.compile(r"true|false|-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
    return tuple(spelt for text in texts for spelt in (quoted(text), text) if spelt != text or bare.fullmatch(text))


TEXTS = (
    "x",
    "größe",
    "名前 😀",
    "a\u0000b",
    "\u2028",
    "\uffff",
    "e\u0301",
    ' q"uo\\te ',
    "שלום",
    "NULL",
    "{}",
    "\u00a0",
)
SCALARS = ("12", "-0", "1.50", "true", "1e400", "9" * 40, "0." + "3" * 40, "7" * 5000)
ARRAYS = ("[]", "[ 1.50 ,2]", '[{"b":1,"b":2}]', '["\\u00e9", null]', "[" * 50 + "]" * 50)
WRONG = ('{"x":1}', '{"x":{"y":"z"}}', "{}", "null", '""', '"  "', '"\\t"', '" \\u00a0"', *ARRAYS, *SCALARS)
FILLERS = (("INT", "1"), ("STRING", '"x"'), ("BOOLEAN", "true"), ("DECIMAL(5,0)", "-7"))
"""The types of the many columns of a wide contract, and a value of each."""
DRIFT_VALUES = (*SCALARS, *ARRAYS, *map(quoted, TEXTS), "null", "{}", '{"b":{"c":1}}', '"\\ud83d\\ude00"')


@dataclass(frozen=True)
class Field:
    """A field that contracts may type."""

    name: str
    path: Path
    type: str
    format: str | None = None
    default: str | None = None
    may_be_cde: bool = True
    source: str | None = None

    @cached_property
    def good(self) -> tuple[str, ...]:
        """Values that keep the contract, as JSON; but for one that a CDE does not."""
        if self.type == "STRING":
            return (*map(quoted, TEXTS), *SCALARS, *ARRAYS, '""')
        return _spellings(text for kind, form, text, _ in casts.TAKEN if (kind, form) == (self.type, self.format))

    @cached_property
    def flaws(self) -> tuple[str, ...]:
        """Values of which many break it: those of its type that must be refused, those of others, and no values."""
        of_type = casts.REFUSED.get("DECIMAL(18,2)" if self.type.startswith("DECIMAL") else self.type, ())
        of_format = [text for kind, form, text, _ in casts.CASES if (kind, form) == (self.type, self.format)]
        return (*_spellings(dict.fromkeys((*of_type, *of_format))), *WRONG)


FIELDS = (
    Field("happened", ("happened",), "TIMESTAMP", default="2000-01-01T00:00:00Z"),
    Field("customer", ("Customer",), "STRING", default="nobody"),
    Field("amount", ("amount",), "DECIMAL(18,2)", default="0.00"),
    Field("exact", ("exact",), "DECIMAL(38,25)", default="0.5"),
    Field("tiny", ("tiny",), "DECIMAL(5,0)", default="7"),
    Field("quantity", ("quantity",), "INT", default="1"),
    Field("total", ("total",), "BIGINT", default="-1"),
    Field("share", ("share",), "FLOAT", default="0.1"),
    Field("ratio", ("ratio",), "DOUBLE", default="1e3"),
    Field("active", ("active",), "BOOLEAN", default="false"),
    Field("day", ("day",), "DATE", default="1999-12-31"),
    Field("due", ("due",), "DATE", "dd.MM.yyyy", default="2024-02-29"),
    Field("seen", ("seen",), "TIMESTAMP", "epoch_millis"),
    Field("opened", ("opened",), "TIMESTAMP", "dd.MM.yyyy HH:mm", default="1970-01-01T00:00:00Z"),
    Field("event_userid", ("event", "userId"), "BIGINT", default="0", may_be_cde=False),
    Field("payload_message_id", ("message_id",), "INT", may_be_cde=False),
    *(
        Field(f"format_{place}", (f"format_{place}",), kind, form)
        for place, (kind, form) in enumerate(dict.fromkeys((each[0], each[1]) for each in casts.TAKEN if each[1]))
    ),
    Field("payload_publish_time", ("publish_time",), "TIMESTAMP", may_be_cde=False),
    Field("payload_publish_time_day", ("publish_time_day",), "INT", default="3", may_be_cde=False),
    Field("closed", ("closed",), "BOOLEAN", may_be_cde=False),
    Field("json_payload", ("json_payload",), "STRING", default="{}", may_be_cde=False),
    # Fields that are used twice: by another column, by the envelope, as the record's key.
    Field("customer_again", ("Customer",), "STRING", default="nobody", may_be_cde=False, source="Customer"),
    Field("made_by", ("_metadata", "producer"), "STRING", may_be_cde=False, source="_metadata.producer"),
    Field("record", KEY_PATH, "STRING", may_be_cde=False, source=KEY_SOURCE),
    Field("never", ("no message", "has this"), "STRING", default="none", may_be_cde=False),
)
FILLED = tuple(field for field in FIELDS if field.name != "never" and not field.source)
FLAWS = tuple((field.path, value) for field in FILLED for value in field.flaws)
NUMERIC = tuple(field.path for field in FILLED if field.type not in ("STRING", "BOOLEAN", "DATE", "TIMESTAMP"))
TEMPORAL = tuple(field.path for field in FILLED if field.type in ("DATE", "TIMESTAMP"))

DRIFT: tuple[Path, ...] = (
    *(("a",), ("A",), ("a", "b"), ("a_b",), ("A_B",), ("a.b",), ("a", "B"), ("a", "b", "c"), ("a", "")),
    *(("idempotency_key",), ("publish_time",), ("topic_name",), ("landing_seq",), ("ingestion_ts",)),
    *(("overflow_json",), ("payload_message_id",), ("message", "id"), ("_file",), ("_metadata", "Producer")),
    *(
        ("objects_json",),
        ("publish", "Time", "day"),
        ("Closed",),
        ("customer",),
        ("CUSTOMER", "name"),
        ("happened", "at"),
    ),
    *(("producer",), ("_metadata", "idempotencykeyresource"), ("idempotency_key_in_payload",)),
    *(("größe",), ("GRÖSSE",), ("grosse",), ("名前",), ("😀",), ("ﬁ",), ("İ",), ("",), ("", ""), (" ",), ("\u2028",)),
    *(("0k",), ('q"x',), ("a`b",), ("x\ny",), ("n\u0000l",), ("a:b",), ("select",), ("n" * 200,), ("N" * 200,)),
    *(("event",), ("event", "userid"), ("event_userId",), ("EVENT", "USERID"), ("amount", "currency"), ("_metadata",)),
    tuple(f"level{place}" for place in range(20)),
    *((f"k{place}",) for place in range(12)),
)

DAMAGES: tuple[Callable[[str], str], ...] = (
    lambda _: "",
    lambda text: text[:-1],
    lambda text: text[: len(text) // 2],
    lambda text: text + "x",
    lambda text: f"  {text}]  ",
    lambda text: text + text,
    lambda text: "\ufeff" + text,
    lambda text: "[" + text + "]",
    lambda text: text.replace(":", "", 1),
    lambda text: text.replace('"', "'"),
    lambda text: text[:-1] + ",}",
    lambda text: '{"twice":1,"twice":2,' + text[1:],
    lambda text: '{"n":NaN,' + text[1:],
    lambda text: '{"s":"\\ud800",' + text[1:],
    lambda text: '{"r":"\n",' + text[1:],
    lambda text: '{"z":01,' + text[1:],
    lambda text: '{"deep":' * payloads.MAX_DEPTH + text + "}" * payloads.MAX_DEPTH,
)
CASES = tuple(case.payload for case in payloads.CASES if len(case.payload) < 20_000)


@dataclass(frozen=True)
class Style:
    """How a producer writes JSON."""

    comma: str
    colon: str
    is_ascii: bool


STYLES = (Style(",", ":", False), Style(", ", ": ", True), Style(" ,\n\t", "\r :  ", False))


def object_text(members: Mapping[Path, str], style: Style) -> str:
    """Values by path as one JSON object."""
    heads: dict[str, str | dict[Path, str]] = {}
    for (head, *rest), value in members.items():
        if not rest:
            heads[head] = value
        else:
            below = heads.setdefault(head, {})
            assert isinstance(below, dict)
            below[tuple(rest)] = value
    texts = (value if isinstance(value, str) else object_text(value, style) for value in heads.values())
    names = (json.dumps(name, ensure_ascii=style.is_ascii) for name in heads)
    return "{" + style.comma.join(f"{name}{style.colon}{text}" for name, text in zip(names, texts, strict=True)) + "}"


def _put(members: dict[Path, str], path: Path, value: str) -> None:
    """Set a value, in the place of what stood there, above it or below it."""
    for other in [each for each in members if each[: len(path)] == path or path[: len(each)] == each]:
        del members[other]
    members[path] = value


# Messages

MOMENTS = tuple(
    datetime.fromisoformat(f"2025-{text}+00:00")
    for text in (
        *("03-01T10:00:00", "03-01T10:00:00.000001", "02-28T23:59:59.999999", "03-01T00:00:00"),
        *("03-01T23:59:59.999999", "03-02T00:00:00", "03-02T12:00:00", "02-27T08:00:00"),
    )
)
WHEN = tuple((moment, ingestion_ts) for moment in MOMENTS for ingestion_ts in (1_740_000_000, 1_740_000_001, 0))
ID_SIGNS = ("m", "m", "m", "M", "é", "\uffff", "😀", "m ")
"""Ids decide ties, so they differ where UTF-8 and UTF-16 order differently."""


class Origin(StrEnum):
    """Where a message comes from: its producer, or the network once more."""

    NEW = "new"
    COPY = "a copy of an earlier one"
    MOVED_COPY = "a copy with another publish_time and ingestion_ts"
    ALTERED_COPY = "a copy with another payload, time and key"


class Kind(StrEnum):
    """What a message says."""

    HEALTHY = "keeps the contract"
    FLAWED = "a value or two that may not"
    DOUBTFUL = "such a value in every field"
    DRAWN = "numbers, texts and times that nobody has thought of"
    BARE = "nothing but its key"
    CASE = "a payload from the table of cases"
    DAMAGED = "a healthy payload that was damaged"


ORIGINS = (*[Origin.NEW] * 8, Origin.COPY, Origin.MOVED_COPY, Origin.ALTERED_COPY)
KINDS = (
    *[Kind.HEALTHY] * 10,
    *[Kind.FLAWED] * 5,
    *[Kind.DOUBTFUL] * 2,
    *[Kind.DRAWN] * 2,
    Kind.BARE,
    *[Kind.CASE] * 3,
    *[Kind.DAMAGED] * 2,
)


def key_choices(history: str, number: int) -> tuple[tuple[str | None, str | None], ...]:
    """The key in the payload, as JSON, and the one beside it. Three records of the history are named in many ways."""
    first, second, third = (f"{history}.k{place}" for place in range(3))
    an_id = f"{history}.m0"
    return (
        *[(quoted(first), None)] * 12,
        *[(quoted(second), None)] * 6,
        *((quoted(third), None), (None, first), (None, second), (quoted(first), second)),
        *(('" "', first), ('""', second), ("null", first), ('{"x":1}', first)),
        *((None, None), (None, " "), ('"  "', None), ("null", "")),
        *((f"{number}", None), (None, f"{number}"), (f"[{number}]", None), ("true", None), ('"\\t"', None)),
        *((quoted(an_id), None), (None, an_id), (quoted(first.upper()), None), (quoted(first + " "), None)),
    )


class _Choices:
    """Picks from pools.

    Hypothesis begins with the first choice everywhere, which would make forty equal histories. Mixed, each choice
    counts from a place that depends on the history and message it is made for.
    """

    def __init__(self, draw: DrawFn, mixed: bool) -> None:
        self.draw = draw
        self._mixed = mixed
        self._start = random.Random(0)

    def begin(self, *turn: object) -> None:
        self._start = random.Random(repr(turn))

    def of(self, pool: Sequence[T]) -> T:
        start = self._start.randrange(len(pool)) if self._mixed else 0
        return pool[(self.draw(st.integers(0, len(pool) - 1)) + start) % len(pool)]


@st.composite
def _topics(draw: DrawFn, histories: int, at_least: int, mixed: bool, columns: int) -> Topic:
    choices = _Choices(draw, mixed)
    first = _contract(choices, columns)
    second = _contract(choices, columns, first)
    ticks = choices.of((3, 3, 4))
    count = draw(st.integers(at_least, histories))
    landed = [each for number in range(count) for each in _history(choices, number, first, ticks)]
    landed.sort(key=lambda each: (each.tick, each.place))
    choices.begin("ticks")
    changes = choices.of((ticks, 1, 2))
    builds = [
        choices.of((*[()] * 5, BOTH)),
        *(_builds(choices) for _ in range(ticks - 1)),
        choices.of((BOTH, BOTH * 2)),
    ]
    return Topic(
        tuple(
            Tick(
                messages=tuple(each.message for each in landed if each.tick == number),
                builds=builds[number],
                contract=first if number <= changes else second,
            )
            for number in range(ticks + 1)
        )
    )


STANDARDIZED, CURATED = BOTH = (Build(Layer.STANDARDIZED), Build(Layer.CURATED))


def _builds(choices: _Choices) -> tuple[Build, ...]:
    """What follows a landing: usually both layers; but also one of them, none, both again, or with a day made anew."""
    day = choices.of(sorted({moment.date() for moment in MOMENTS}))
    anew = (replace(STANDARDIZED, rebuild=(day,)), replace(CURATED, rebuild=(day,)))
    plans = (*[BOTH] * 5, (STANDARDIZED,), (CURATED,), (), BOTH * 2, anew, (anew[0], CURATED), (STANDARDIZED, anew[1]))
    return choices.of(plans)


def _contract(choices: _Choices, width: int, before: Contract | None = None) -> Contract:
    """A contract; or the one that follows another: it has all its columns, by the same or by other rules."""
    choices.begin("contract", before is None)
    envelope = [
        {"name": "producer", "source": "_metadata.producer"},
        {"name": "trace", "source": "_metadata.trace.id"},
        {"name": "idempotency_key", "source": KEY_SOURCE},
    ]
    kept = {column.name: column for column in before.payload_columns} if before else {}
    drawn = {field.name: _column(choices, field) or kept.get(field.name) for field in FIELDS}
    if before:
        # Whether the key has a column too is for a rebuild beside the table to change, which is tried elsewhere.
        drawn["record"] = kept.get("record")
    columns = [column for column in drawn.values() if column]
    if CAPPED in kept if before else choices.of((False, True)):
        columns.append({"name": CAPPED, "type": "STRING"})
    fillers = max(width - len(columns), sum(name.startswith("wide_") for name in kept))
    columns += [dict(_filler(place)) for place in range(fillers)]
    twice = [*envelope, {"name": "key_again", "source": KEY_SOURCE}]
    return Contract.model_validate(
        {
            "table_name": "topic",
            "version": before.version + 1 if before else 1,
            "thresholds": before.thresholds if before else {"duplicates_within_days": choices.of((None, 3_000))},
            "envelope_columns": before.envelope_columns
            if before
            else choices.of((*[envelope] * 4, envelope[:2], twice)),
            "payload_columns": columns,
        }
    )


def _column(choices: _Choices, field: Field) -> dict[str, object] | None:
    """The field as a column of a contract: plain, as a CDE, or with a default; or None, if it is not to be in it."""
    column: dict[str, object] = {"name": field.name, "type": field.type, "format": field.format, "source": field.source}
    cde = {**column, "cde": True} if field.may_be_cde else column
    defaulting = {**column, "default": field.default}
    if field.name.startswith("format_"):
        return choices.of((None, column, None))
    return choices.of((column, cde, defaulting, None, defaulting, None))


def _filler(place: int) -> Mapping[str, object]:
    """One of the many columns of a wide contract."""
    return {"name": f"wide_{place}", "type": FILLERS[place % len(FILLERS)][0]}


class _Landing(NamedTuple):
    """When a message lands: the tick, and its place in its history, by which those of a tick are sorted."""

    tick: int
    place: int
    message: Message


def _history(choices: _Choices, number: int, contract: Contract, ticks: int) -> Iterator[_Landing]:
    name = f"h{number:02}"
    choices.begin(name)
    tick = choices.of((1, 1, 2))
    earlier: list[Message] = []
    for place in range(choices.of((6, 3, 4, 5, 7, 8, 9))):
        choices.begin(name, place)
        tick = min(tick + choices.of((0, 0, 1)), ticks)
        message = _message(choices, name, number, place, contract, earlier)
        earlier.append(message)
        yield _Landing(tick, place, message)


def _message(
    choices: _Choices, name: str, number: int, place: int, contract: Contract, earlier: Sequence[Message]
) -> Message:
    origin = choices.of(ORIGINS) if earlier else Origin.NEW
    if origin is Origin.COPY:
        return choices.of(earlier)
    publish_time, ingestion_ts = choices.of(WHEN)
    if origin is Origin.MOVED_COPY:
        return replace(choices.of(earlier), publish_time=publish_time, ingestion_ts=ingestion_ts)
    own_id = f"{name}.{ID_SIGNS[(number + place) % len(ID_SIGNS)]}{place}"
    in_payload, beside = choices.of(key_choices(name, number))
    return Message(
        message_id=choices.of(earlier).message_id if origin is Origin.ALTERED_COPY else own_id,
        payload=_payload(choices, in_payload, contract),
        publish_time=publish_time,
        ingestion_ts=ingestion_ts,
        landing_seq=0,
        idempotency_key=beside,
    )


def _payload(choices: _Choices, key: str | None, contract: Contract) -> str:
    kind = choices.of(KINDS)
    if kind is Kind.CASE:
        return choices.of(CASES)
    members: dict[Path, str] = {}
    if kind is not Kind.BARE:
        members = _healthy(choices.of(range(60)), {column.name for column in contract.payload_columns if column.cde})
    if key is not None:
        _put(members, KEY_PATH, key)
    if kind is Kind.FLAWED:
        for _ in range(choices.of((1, 2))):
            _put(members, *choices.of(FLAWS))
    if kind is Kind.DOUBTFUL:
        turn = choices.of(range(120))
        for place, field in enumerate(FILLED):
            _put(members, field.path, field.flaws[(turn + 7 * place) % len(field.flaws)])
    if kind is Kind.DRAWN:
        for path, value in _drawn(choices).items():
            _put(members, path, value)
    if choices.of((False, False, True)):
        _put(members, choices.of(DRIFT), choices.of(DRIFT_VALUES))
    if wide := [column.name for column in contract.payload_columns if column.name.startswith("wide_")]:
        turn = choices.of(range(100))
        for place in ((17 * turn + 5 * step) % len(wide) for step in range(3)):
            _put(members, (wide[place],), FILLERS[place % len(FILLERS)][1] if turn % 9 else WRONG[turn % len(WRONG)])
    text = object_text(members, choices.of(STYLES))
    return choices.of(DAMAGES)(text) if kind is Kind.DAMAGED else text


def _healthy(variant: int, cdes: set[str]) -> dict[Path, str]:
    """All fields with a value that keeps the contract, but for some that need none."""
    members: dict[Path, str] = {}
    for place, field in enumerate(FILLED):
        if (variant + place) % 6 or field.name in cdes:
            members[field.path] = field.good[(variant + 7 * place) % len(field.good)]
    if variant % 4:
        members["_metadata", "producer"] = quoted(f"producer {variant % 3}")
        members["_metadata", "trace", "id"] = str(variant)
    return members


def _drawn(choices: _Choices) -> dict[Path, str]:
    """One value that nobody has thought of, in every field that it could be meant for."""
    match choices.of(("number", "text", "time")):
        case "number":
            digits, exponent = choices.draw(st.integers(-(10**19), 10**19)), choices.draw(st.integers(-24, 24))
            written = choices.of((f"{digits}", f"{digits}e{exponent}", f"{digits / 10**6:.6f}", f"{digits % 10**6}.5"))
            return dict.fromkeys(NUMERIC, choices.of((written, quoted(written))))
        case "text":
            text = quoted(choices.draw(st.text(max_size=6)))
            return {("Customer",): text, ("k0",): text, ("active",): text}
        case _:
            first, last = datetime(1, 1, 3), datetime(9999, 12, 29)  # noqa: DTZ001 - the zone is drawn
            zone = choices.of((None, UTC, timezone(timedelta(hours=-5, minutes=-30)), timezone(timedelta(hours=14))))
            moment = choices.draw(st.datetimes(first, last)).replace(tzinfo=zone)
            forms = ("%Y-%m-%dT%H:%M:%S", "%Y-%m-%d", "%d.%m.%Y", "%d.%m.%Y %H:%M")
            return dict.fromkeys(TEMPORAL, quoted(choices.of((moment.isoformat(), *map(moment.strftime, forms)))))
