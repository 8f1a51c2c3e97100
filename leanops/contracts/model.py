"""The contract of a topic as a model: strict, and nothing in it that is not checked."""

import hashlib
import re
from functools import cached_property
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, field_validator
from pydantic_core.core_schema import ValidationInfo

from leanops.contracts.column_types import ColumnType
from leanops.names import SAFE_NAME, SYSTEM_COLUMNS

MAX_COLUMNS = 2000
"""More columns than this in one contract is a mistake, not a table."""

ENVELOPE_TARGETS = ("idempotency_key",)
"""System columns that an envelope column may fill; the others come with the message itself."""

EPOCH_FORMATS = ("epoch_seconds", "epoch_millis", "epoch_micros")
_PATTERN_LETTERS = set("GyDMLdQqEFahKkHmsSVzOXxZ")
_SOURCE = re.compile(r"[^.\s]+(\.[^.\s]+)*")
_OWNER = re.compile(r"team:[A-Za-z0-9_-]+|[^@\s]+@[^@\s]+\.[^@\s]+", re.ASCII)


def _column_type(text: Any) -> ColumnType:
    if isinstance(text, ColumnType):
        return text
    if not isinstance(text, str):
        raise ValueError('a type is a string, such as "BIGINT"')
    return ColumnType.parse(text)


def _safe_name(text: str) -> str:
    if not SAFE_NAME.fullmatch(text):
        raise ValueError(f"{text!r} is no column name: use lower-case letters, digits and _, beginning with a letter")
    return text


def _owner(text: str) -> str:
    if not _OWNER.fullmatch(text):
        raise ValueError(f"{text!r} is no owner: write team:NAME or an e-mail address")
    return text


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class EnvelopeColumn(_Strict):
    """A column that is filled from a field of the payload's envelope, `source` being its dotted path."""

    name: Annotated[str, AfterValidator(_safe_name)]
    source: str

    @field_validator("name")
    @classmethod
    def _fillable(cls, name: str) -> str:
        if name in SYSTEM_COLUMNS and name not in ENVELOPE_TARGETS:
            raise ValueError(f"{name} comes with the message itself and cannot be filled from the payload")
        return name

    @field_validator("source")
    @classmethod
    def _dotted_path(cls, source: str) -> str:
        if not _SOURCE.fullmatch(source):
            raise ValueError(f"{source!r} is no dotted path, such as _metadata.idempotencyKeyResource")
        return source


class PayloadColumn(_Strict):
    """A typed column of Curated, by the name that the payload's field has in Standardized."""

    name: Annotated[str, AfterValidator(_safe_name)]
    type: Annotated[ColumnType, BeforeValidator(_column_type), PlainSerializer(str)]
    format: str | None = None
    cde: bool = False
    default: str | None = None
    description: str | None = None

    @field_validator("name")
    @classmethod
    def _not_a_system_column(cls, name: str) -> str:
        if name in SYSTEM_COLUMNS:
            raise ValueError(f"{name} is a column that the platform fills: choose another name")
        return name

    @field_validator("default")
    @classmethod
    def _fits(cls, default: str | None, info: ValidationInfo) -> str | None:
        if default is None:
            return None
        if info.data.get("cde"):
            raise ValueError("a Critical Data Element has no default: it would hide the violation")
        kind = info.data.get("type")
        if kind is not None and not kind.accepts(default):
            raise ValueError(f"{default!r} is no {kind}")
        return default

    @field_validator("format")
    @classmethod
    def _readable_format(cls, layout: str | None, info: ValidationInfo) -> str | None:
        if layout is None or str(info.data.get("type")) not in ("DATE", "TIMESTAMP") or layout in EPOCH_FORMATS:
            return layout
        letters = set(re.findall(r"[A-Za-z]", re.sub(r"'[^']*'", "", layout)))
        if not letters or letters - _PATTERN_LETTERS:
            raise ValueError(f"{layout!r} is no pattern of a date or time, such as dd.MM.yyyy")
        return layout


class Thresholds(_Strict):
    """When a check of the topic fails."""

    cde_percent: Annotated[float, Field(gt=0, le=100, strict=False)] = 5.0
    """More rows of a day than this break a Critical Data Element: an error, and not just a warning."""
    silent_hours: Annotated[float, Field(gt=0, strict=False)] | None = None
    """Nothing has landed for so long; when it is not set, the topic's own rhythm says how long is too long."""


class Contract(_Strict):
    """What a topic's producer promises. `table_name` is the topic's name."""

    table_name: Annotated[str, AfterValidator(_safe_name)]
    version: Annotated[int, Field(ge=1)] = 1
    description: str | None = None
    owners: tuple[Annotated[str, AfterValidator(_owner)], ...] = Field(default=(), strict=False)
    envelope_columns: tuple[EnvelopeColumn, ...] = Field(strict=False, max_length=MAX_COLUMNS)
    payload_columns: tuple[PayloadColumn, ...] = Field(strict=False, min_length=1, max_length=MAX_COLUMNS)

    thresholds: Thresholds = Thresholds()

    @property
    def column_names(self) -> list[str]:
        """All columns that it speaks of, the envelope's first."""
        return [column.name for column in self.envelope_columns] + [column.name for column in self.payload_columns]

    @cached_property
    def fingerprint(self) -> str:
        """Tells contracts apart by what they say of rows, whether or not somebody has raised the version."""
        said = self.model_dump_json(exclude={"thresholds", "owners", "description"})
        return hashlib.sha256(said.encode()).hexdigest()[:16]
