"""One injection: a scenario with all that its messages depend on. The same injection is the same bytes, always."""

from collections.abc import Iterator
from datetime import date, timedelta
from enum import StrEnum
from hashlib import blake2b

from pydantic import BaseModel, ConfigDict

from leanops.contracts.model import Contract
from leanops.errors import Problem
from leanops.injector.payload import unwritable
from leanops.injector.reading import invalid
from leanops.injector.scenario import Scenario, publish_day
from leanops.injector.values import can_be_written


class Carrier(StrEnum):
    """What messages are fed to."""

    FOLDER = "folder"
    QUEUE = "queue"


class Injection(BaseModel):
    """What was fed, and all that it was made from, so that it can be made again."""

    model_config = ConfigDict(frozen=True)

    name: str
    """The scenario's name."""
    scenario: Scenario
    contracts: dict[str, Contract | None]
    """The contract that each topic's messages follow."""
    today: date
    carrier: Carrier
    topics: tuple[str, ...]
    """The topics that were fed."""
    days: tuple[int, ...]
    """The numbers of the days that were fed; the scenario's first day is 1."""

    @property
    def publish_days(self) -> list[date]:
        """All days of the scenario."""
        return [publish_day(day, self.today) for day in self.scenario.days]

    @property
    def messages_of_a_topic(self) -> int:
        """How many messages each topic is fed."""
        return sum(self.scenario.messages_of(self.scenario.days[number - 1]) for number in self.days)

    def mark(self, topic: str) -> str:
        """Tells the topic's messages apart from those of every other scenario, seed, day or topic."""
        said = "\n".join([self.name, self.scenario.model_dump_json(), self.today.isoformat(), topic])
        return blake2b(said.encode(), digest_size=5).hexdigest()


def checked(injection: Injection, first_day: date) -> Injection:
    """The injection, or `ScenarioInvalid` with all that makes it impossible today or under its contracts."""
    problems = [*_day_problems(injection, first_day), *_contract_problems(injection)]
    if problems:
        raise invalid(f"The scenario {injection.name}", problems)
    return injection


def _day_problems(injection: Injection, first_day: date) -> Iterator[Problem]:
    days = injection.publish_days
    for index, day in enumerate(days):
        path = f"$.days[{index}].day"
        has_late = injection.scenario.counts_of(injection.scenario.days[index])["late"]
        oldest = day - timedelta(days=injection.scenario.late_by_days if has_late else 0)
        if oldest < first_day:
            late = f", from which late messages go back to {oldest}," if has_late else ""
            yield Problem(
                path,
                f"{day}{late} is before the platform's first day.",
                "Choose a later day, or set LEANOPS_FIRST_DAY.",
                found=str(oldest),
                allowed=f"{first_day} or later",
            )
        if day > injection.today:
            yield Problem(path, f"{day} lies ahead.", found=str(day), allowed=f"{injection.today} or earlier")
        if index and day <= days[index - 1]:
            yield Problem(
                path,
                f"{day} does not follow {days[index - 1]}.",
                "Put the days into order.",
                found=str(day),
                allowed="a later day than the one before it",
            )


def _contract_problems(injection: Injection) -> Iterator[Problem]:
    asked = {
        name for day in injection.scenario.days for name, count in injection.scenario.counts_of(day).items() if count
    }
    for index, topic in enumerate(injection.scenario.topics):
        contract = injection.contracts.get(topic.name)
        for message in _impossible(contract, asked) if contract else ():
            yield Problem(f"$.topics[{index}].contract", message, found=topic.contract)


def _impossible(contract: Contract, asked: set[str]) -> Iterator[str]:
    columns = contract.payload_columns
    if "cde_violations" in asked and not any(column.cde for column in columns):
        yield "no column is a Critical Data Element, and cde_violations are asked for."
    if "type_violations" in asked and all(column.type.name == "STRING" for column in columns):
        yield "every column is a STRING, and type_violations are asked for."
    yield from unwritable(contract)
    for column in columns:
        if not can_be_written(column):
            yield f"the injector cannot write the format {column.format!r} of {column.name}."
