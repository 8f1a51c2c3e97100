"""A scenario as a model: which messages are made up, and how many of them are what."""

import math
from datetime import date, timedelta
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from leanops.errors import NotAllowed, quoted
from leanops.names import is_topic

MOST_MESSAGES = 100_000_000
"""Of one topic."""

DAY_RULE = "0 for today, -1 for the day before and so on, or a day such as 2026-01-31"
_OLDEST = 100_000


def _day(found: Any) -> int | date:
    if isinstance(found, date) or (isinstance(found, int) and not isinstance(found, bool) and -_OLDEST < found <= 0):
        return found
    try:
        return date.fromisoformat(found)
    except (TypeError, ValueError):
        raise NotAllowed(f"{quoted(str(found))} is no publish day, which is {DAY_RULE}") from None


def _topic(name: str) -> str:
    if not is_topic(name):
        raise NotAllowed(f"{quoted(name)} cannot be a topic's name")
    return name


Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
PublishDay = Annotated[int | date, BeforeValidator(_day)]
TopicName = Annotated[str, AfterValidator(_topic)]
Rate = Annotated[float, Field(gt=0, le=1_000_000, allow_inf_nan=False)]
Seconds = Annotated[float, Field(gt=0, le=1_000_000, allow_inf_nan=False)]


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, use_attribute_docstrings=True)


class Shares(_Strict):
    """Which part of a day's messages is what. A message is one of these at most; all others are new, good records."""

    duplicates: Share = 0.0
    """An earlier message again, under the same `message_id`."""
    late: Share = 0.0
    """A new record that was published on an older day."""
    corrections: Share = 0.0
    """A later version of an earlier record."""
    out_of_order: Share = 0.0
    """A correction that is delivered before the version that it corrects."""
    drift: Share = 0.0
    """A new record with a field that the contract does not know."""
    cde_violations: Share = 0.0
    """A Critical Data Element is null, missing or blank. Every third of them is a version of an earlier record."""
    type_violations: Share = 0.0
    """A value that its column's type cannot hold. Every third of them is a version of an earlier record."""
    malformed_payloads: Share = 0.0
    """The payload is not one JSON object."""
    malformed_timestamps: Share = 0.0
    """The publish time is unreadable, before the platform's first day, or far ahead: a dead letter."""
    poison: Share = 0.0
    """The body is no envelope at all: a dead letter."""

    def counts(self, messages: int) -> dict[str, int]:
        """How many of so many messages are what, to the message."""
        return {name: math.floor(getattr(self, name) * messages + 0.5) for name in type(self).model_fields}


class Topic(_Strict):
    """A topic that messages are made up for."""

    name: TopicName
    """The topic."""
    contract: str | None
    """The topic whose active contract its messages follow, a contract file beside the scenario, or null for none."""


class Day(_Strict):
    """The messages of one publish day. What it does not say is as the scenario says it."""

    day: PublishDay
    """When they are published."""
    rate: Rate | None = None
    """Messages a second and topic."""
    seconds: Seconds | None = None
    """For how long."""
    shares: Shares | None = None
    """Which part of them is what."""


class Scenario(_Strict):
    """What happens to some topics on some days."""

    description: str | None = None
    """What it is for."""
    seed: Annotated[int, Field(ge=0, le=2**63 - 1)]
    """Messages, ids and keys of other seeds are others."""
    topics: tuple[Topic, ...] = Field(strict=False, min_length=1)
    """The topics. Each gets as many messages as the others."""
    rate: Rate
    """Messages a second and topic, all kinds of them included."""
    seconds: Seconds
    """For how long, on each day."""
    days: tuple[Day, ...] = Field(strict=False, min_length=1)
    """The publish days, in the order in which their messages are delivered: the oldest first."""
    late_by_days: Annotated[int, Field(ge=1, le=_OLDEST)] = 3
    """By how many days late messages are late, at most."""
    shares: Shares = Shares()
    """Which part of the messages is what, on days that do not say it themselves."""

    def rate_of(self, day: Day) -> float:
        """Messages a second and topic."""
        return day.rate or self.rate

    def messages_of(self, day: Day) -> int:
        """How many messages each topic gets."""
        return math.floor(self.rate_of(day) * (day.seconds or self.seconds) + 0.5)

    def counts_of(self, day: Day) -> dict[str, int]:
        """How many of them are what."""
        return (day.shares or self.shares).counts(self.messages_of(day))


def publish_day(day: Day, today: date) -> date:
    """The day itself."""
    return day.day if isinstance(day.day, date) else today + timedelta(days=day.day)
