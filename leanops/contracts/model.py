"""The contract of a topic as a model: strict, and nothing in it that is not checked."""

import hashlib
import re
from functools import cached_property
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    WithJsonSchema,
    field_validator,
)
from pydantic_core.core_schema import ValidationInfo

from leanops.contracts.column_types import DECIMAL_RULE, SIMPLE_TYPES, ColumnType
from leanops.contracts.datetime_format import EPOCH_FORMATS, check_format
from leanops.errors import NotAllowed, quoted
from leanops.names import RESERVED_COLUMNS, SAFE_NAME, TOPIC_NAME, TOPIC_RULE
from leanops.standardized.flatten_plan import BoundFields, Path, column_name

MAX_COLUMNS = 2000
MAX_HORIZON_DAYS = 3650
"""More columns than this in one contract is a mistake, not a table."""

RULES_VERSION = 2
"""Raised when the same RAW and the same contract come to give other rows. What was built before is then built anew."""

MAX_OWNERS = 100
MAX_VERSION = 2**31 - 1
"""Tables keep the version as an INT."""

ENVELOPE_TARGETS = ("idempotency_key",)
"""System columns that an envelope column may fill; the others come with the message itself."""

FORMATTED_TYPES = ("DATE", "TIMESTAMP")
"""The only types whose values can be written in more than one way."""

NAME_RULE = "at most 64 lower-case letters, digits and _, beginning with a letter"
SOURCE_RULE = "a dotted path, such as _metadata.idempotencyKeyResource"
OWNER_RULE = "team:NAME or an e-mail address"
_SOURCE = re.compile(r"[^.\s]+(\.[^.\s]+)*")
_OWNER = re.compile(r"team:[A-Za-z0-9_-]+|[^@\s]+@[^@\s]+\.[^@\s]+", re.ASCII)


def _column_type(text: Any) -> ColumnType:
    if isinstance(text, ColumnType):
        return text
    if not isinstance(text, str):
        raise NotAllowed('a type is a string, such as "BIGINT"')
    return ColumnType.parse(text)


def _table_name(text: str) -> str:
    if not TOPIC_NAME.fullmatch(text):
        raise NotAllowed(f"{quoted(text)} is no topic's name, which is part of tables and paths: {TOPIC_RULE}")
    return text


def _column_name(text: str) -> str:
    if not SAFE_NAME.fullmatch(text):
        standardized = column_name(tuple(text.split("."))) if text.strip() else ""
        fix = f"write {standardized!r}" if SAFE_NAME.fullmatch(standardized) else None
        raise NotAllowed(f"{quoted(text)} is no column name, which is {NAME_RULE}", fix=fix)
    return text


def _own_column(name: str, *but: str) -> str:
    if name in RESERVED_COLUMNS and name not in but:
        allowed = f"{' or '.join(but)}, or a" if but else "a"
        raise NotAllowed(
            f"{name} is a name that the platform has for itself in the tables",
            allowed=f"{allowed} name that is none of {', '.join(sorted(RESERVED_COLUMNS))}",
            fix="choose another name",
        )
    return name


def _source(text: str) -> str:
    if not _SOURCE.fullmatch(text):
        mended = re.sub(r"\.{2,}", ".", text.strip().strip("."))
        fix = f"write {quoted(mended)}" if _SOURCE.fullmatch(mended) else None
        raise NotAllowed(f"{quoted(text)} is no dotted path, such as _metadata.idempotencyKeyResource", fix=fix)
    return text


def _owner(text: str) -> str:
    if not _OWNER.fullmatch(text):
        team = f"team:{text}"
        fix = f"write {quoted(team)}" if _OWNER.fullmatch(team) else None
        raise NotAllowed(f"{quoted(text)} is no owner, which is {OWNER_RULE}", fix=fix)
    return text


def _pattern(rule: re.Pattern[str]) -> WithJsonSchema:
    """The rule as editors know it."""
    return WithJsonSchema({"type": "string", "pattern": f"^({rule.pattern})$"})


_TYPES = WithJsonSchema(
    {
        "anyOf": [
            *({"const": name, "description": meaning} for name, meaning in SIMPLE_TYPES.items()),
            {
                "type": "string",
                "pattern": r"^DECIMAL\((0?[1-9]|[12][0-9]|3[0-8]),(0?[0-9]|[12][0-9]|3[0-8])\)$",
                "description": f"a number of p digits, s of them behind the point: {DECIMAL_RULE}",
            },
        ]
    }
)
TableName = Annotated[str, AfterValidator(_table_name), _pattern(TOPIC_NAME)]
ColumnName = Annotated[str, AfterValidator(_column_name), _pattern(SAFE_NAME)]
TypeName = Annotated[ColumnType, BeforeValidator(_column_type), PlainSerializer(str), _TYPES]
Source = Annotated[str, AfterValidator(_source), _pattern(_SOURCE)]
Owner = Annotated[str, AfterValidator(_owner), _pattern(_OWNER)]


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, use_attribute_docstrings=True)


class EnvelopeColumn(_Strict):
    """A column that is filled from a field of the payload's envelope."""

    name: ColumnName = Field(examples=["idempotency_key"])
    """The column's name. `idempotency_key` says which record a message is a version of."""
    source: Source = Field(examples=["_metadata.idempotencyKeyResource"])
    """The field's dotted path, as the producer writes it."""

    @field_validator("name")
    @classmethod
    def _fillable(cls, name: str) -> str:
        return _own_column(name, *ENVELOPE_TARGETS)

    @property
    def path(self) -> Path:
        return tuple(self.source.split("."))


class PayloadColumn(_Strict):
    """A typed column of Curated."""

    name: ColumnName = Field(examples=["event_timestamp"])
    """The column's name. Without a `source` it is filled from the fields of that plain name: `event.userId` and
    `event_userid` are both `event_userid`."""
    source: Source | None = Field(default=None, examples=["order.customer.id"])
    """The dotted path of the field that fills it, as the producer writes it, where that is not to follow its name."""
    type: TypeName = Field(examples=["STRING", "DECIMAL(18,2)"])
    """What every value must fit exactly. What does not fit is an error, never NULL and never another value."""
    format: str | None = Field(default=None, examples=["dd.MM.yyyy", *EPOCH_FORMATS])
    """How a DATE or TIMESTAMP is written, such as `dd.MM.yyyy`; for a TIMESTAMP also one of the `epoch_` formats."""
    cde: bool = False
    """Whether this is a Critical Data Element: null, missing or blank breaks the row."""
    default: str | None = None
    """Fills a missing value, written as text in the type's own form, whatever the `format`. A CDE has none."""
    description: str | None = None
    """Shown in the UI."""

    @field_validator("name")
    @classmethod
    def _not_a_system_column(cls, name: str) -> str:
        return _own_column(name)

    @property
    def path(self) -> Path | None:
        """The one field that fills it; None where its name says which ones do."""
        return tuple(self.source.split(".")) if self.source else None

    @field_validator("format")
    @classmethod
    def _readable_format(cls, layout: str | None, info: ValidationInfo) -> str | None:
        kind = info.data.get("type")
        if layout is not None and kind is not None and kind.name in FORMATTED_TYPES:
            check_format(layout, kind.name)
        return layout

    @field_validator("default")
    @classmethod
    def _fits(cls, default: str | None, info: ValidationInfo) -> str | None:
        if default is None:
            return None
        if info.data.get("cde"):
            raise NotAllowed(
                "a Critical Data Element has no default: it would hide the violation",
                allowed="no default for a column with cde true",
                fix="take the default away, or set cde to false",
            )
        kind = info.data.get("type")
        if kind is not None and not kind.accepts(default):
            plain = default.strip().lower()
            raise NotAllowed(
                f"{quoted(default)} is no {kind}, which is {kind.meaning}",
                allowed=f"{kind} as text: {kind.meaning}",
                fix=f"write {quoted(plain)}" if kind.accepts(plain) else None,
            )
        return default


class Thresholds(_Strict):
    """What is too many, too long or too late for the topic."""

    cde_percent: Annotated[float, Field(gt=0, le=100)] = 5.0
    """More rows of a day than this break a Critical Data Element: an error, and not just a warning."""
    silent_hours: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """Nothing has landed for so long; when it is not set, the topic's own rhythm says how long is too long."""
    duplicates_within_days: Annotated[int, Field(ge=1, le=MAX_HORIZON_DAYS)] | None = None
    """A copy that lands later than this after the one before it is a message of its own. When it is not set, no copy
    is: all of the past is looked at."""


class Contract(_Strict):
    """What a topic's producer promises."""

    table_name: TableName = Field(examples=["orders"])
    """The topic, which is also the name of its folder."""
    version: Annotated[int, Field(ge=1, le=MAX_VERSION)] = 1
    """Raised with every change. It is shown in the UI and kept with every error."""
    description: str | None = None
    """Shown in the UI."""
    owners: tuple[Owner, ...] = Field(default=(), strict=False, max_length=MAX_OWNERS)
    """Who answers for the topic: `team:NAME` or e-mail addresses."""
    envelope_columns: tuple[EnvelopeColumn, ...] = Field(
        strict=False,
        max_length=MAX_COLUMNS,
        examples=[[{"name": "idempotency_key", "source": "_metadata.idempotencyKeyResource"}]],
    )
    """Columns filled from fields of the payload that are about the message."""
    payload_columns: tuple[PayloadColumn, ...] = Field(
        strict=False,
        min_length=1,
        max_length=MAX_COLUMNS,
        examples=[[{"name": "event_timestamp", "type": "TIMESTAMP"}]],
    )
    """The columns of Curated."""

    thresholds: Thresholds = Thresholds()
    """What is too many, too long or too late, where the defaults do not suit the topic."""

    @field_validator("owners", "envelope_columns", "payload_columns", mode="before")
    @classmethod
    def _few_enough(cls, items: Any, info: ValidationInfo) -> Any:
        """Too many are one problem of their number, and not thousands of what is wrong with each."""
        are_owners = info.field_name == "owners"
        most, what = (MAX_OWNERS, "owners") if are_owners else (MAX_COLUMNS, "columns")
        if isinstance(items, list | tuple) and len(items) > most:
            raise NotAllowed(
                f"{len(items):,} {what} are more than the {most:,} that a contract may have",
                found=f"{len(items):,} {what}",
                fix=None
                if are_owners
                else "keep those that people ask for: Standardized holds every field all the same",
            )
        return items

    @property
    def column_names(self) -> list[str]:
        """All columns that it speaks of, the envelope's first."""
        return [column.name for column in self.envelope_columns] + [column.name for column in self.payload_columns]

    @cached_property
    def bound_fields(self) -> BoundFields:
        """The fields that may fill its payload columns."""
        columns = self.payload_columns
        return BoundFields(
            frozenset(column.name for column in columns if not column.path),
            frozenset(column.path for column in columns if column.path),
        )

    @property
    def key_path(self) -> Path | None:
        """The field that has the record's key."""
        return next((each.path for each in self.envelope_columns if each.name == "idempotency_key"), None)

    @property
    def horizon(self) -> int | None:
        """So many seconds after a message no copy of it is taken for one any more."""
        days = self.thresholds.duplicates_within_days
        return None if days is None else days * 86_400

    @cached_property
    def fingerprint(self) -> str:
        """Tells contracts apart by what they say of rows, whatever their versions are."""
        columns = {"__all__": {"description"}}
        about_people = {"table_name": True, "version": True, "thresholds": True, "owners": True, "description": True}
        # Which messages are copies is said of Standardized: where that is read again, so is Curated.
        said = self.model_dump_json(exclude={**about_people, "envelope_columns": columns, "payload_columns": columns})
        return hashlib.sha256(f"{RULES_VERSION} {said}".encode()).hexdigest()[:16]
