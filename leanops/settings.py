"""All settings, from the environment: one typed object. `docs/settings.md` is the same list for people."""

import os
import re
from datetime import date
from difflib import get_close_matches
from pathlib import Path
from typing import Self

from pydantic import Field, PositiveFloat, PositiveInt, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from leanops.errors import Problem, SettingsInvalid
from leanops.names import LONGEST_QUEUE_PREFIX

PREFIX = "LEANOPS_"
STILL_SECONDS = 5.0
_BUCKET = re.compile(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/|$)")


class Settings(BaseSettings):
    """What may differ from one deployment to the next."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, env_ignore_empty=True, frozen=True)

    home: Path = Field(
        default=Path(".leanops"),
        description="Folder of all local state: warehouse, catalog, state store, Dagster home, logs, Spark server.",
    )
    schemas: Path | str = Field(
        default=Path("schemas"),
        description="Folder of the contracts, one subfolder per topic; or `s3://bucket/prefix`.",
    )
    first_day: date = Field(
        default=date(2025, 1, 1),
        description="The platform's first day (UTC): the first partition; older publish times are malformed.",
    )
    state: str = Field(
        default="sqlite",
        pattern=r"^(sqlite|dynamodb:[A-Za-z0-9_.-]{1,200})$",
        description="Where state is kept: `sqlite`, in the home, or `dynamodb:TABLE`.",
    )
    queue_prefix: str | None = Field(
        default=None,
        pattern=rf"^[A-Za-z0-9_-]{{1,{LONGEST_QUEUE_PREFIX}}}$",
        description="SQS: a topic's queue is called this and the topic's name. Without it: the landing folder.",
    )
    dlq_archive: Path | str | None = Field(
        default=None,
        description="Where dead letters' bodies are kept: a folder or `s3://bucket/prefix`. In the home without it.",
    )
    firehose: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9_.-]{1,64}$",
        description="The Firehose that the Lambda behind the queues forwards to. Only the Lambdas need it.",
    )
    drain_seconds: PositiveInt = Field(
        default=60, description="How often sources are looked at for messages, and drained into RAW."
    )
    landing_still_seconds: float = Field(
        default=STILL_SECONDS,
        ge=0,
        description="How long a landing file has not been written to when it is taken. A renamed one is taken at once.",
    )
    port: int = Field(default=3000, ge=1, le=65535, description="Port of the Dagster UI (`make dev`), loopback only.")
    code_server_port: int = Field(
        default=0, ge=0, le=65535, description="Port of the Dagster code server, loopback only; 0 takes any free one."
    )
    tick_minutes: PositiveInt = Field(
        default=15, description="How often the tick looks for what has landed and builds it."
    )
    topics_per_run: PositiveInt = Field(
        default=350,
        description="How many topics the tick puts into one run at most. One with very much to build is alone.",
    )
    step_minutes: PositiveFloat = Field(
        default=30, description="How long a step of one topic may work before it is interrupted and fails."
    )
    retention_days: PositiveInt = Field(
        default=2, description="How long Dagster's runs, events and logs are kept. What is built stays shown as built."
    )
    spark_master: str = Field(
        default="local[*]",
        description="Master of the Spark Connect server that is started for this home, such as `spark://host:7077`.",
    )
    spark_driver_memory: str = Field(
        default="2g", pattern=r"^[1-9]\d*[mg]$", description="Heap of that server's driver, such as `1500m` or `4g`."
    )
    spark_start_seconds: PositiveInt = Field(
        default=180, description="How long to wait for that server, the first download of its jars included."
    )
    spark_remote: str | None = Field(
        default=None,
        validation_alias="SPARK_REMOTE",
        pattern=r"^sc://.+",
        description="Spark Connect URL of an existing cluster (`sc://host:port/;token=…`). No server is started then.",
    )

    @field_validator("home")
    @classmethod
    def _absolute(cls, path: Path) -> Path:
        """Processes with other working directories must mean the same folder."""
        try:
            return path.expanduser().absolute()
        except RuntimeError as error:
            raise ValueError(str(error)) from None

    @field_validator("schemas", "dlq_archive")
    @classmethod
    def _folder_or_bucket(cls, place: Path | str | None) -> Path | str | None:
        """A folder is a path, a bucket a text."""
        if place is None or not str(place).startswith("s3:/"):
            return place and cls._absolute(Path(place))
        if isinstance(place, Path) or not _BUCKET.match(place):
            raise ValueError("a bucket is written s3://bucket/prefix")
        return place

    @classmethod
    def variable(cls, field: str) -> str:
        """The environment variable that sets `field`."""
        alias = cls.model_fields[field].validation_alias
        return alias if isinstance(alias, str) else PREFIX + field.upper()

    @classmethod
    def load(cls) -> Self:
        """The settings of this process, or `SettingsInvalid` with every problem at once."""
        variables = {cls.variable(field): field for field in cls.model_fields}
        problems = [
            Problem(name, "there is no such setting.", _nearest(name, variables))
            for name in sorted(os.environ)
            if name.startswith(PREFIX) and name not in variables
        ]
        try:
            settings = cls()
        except ValidationError as error:
            for each in error.errors():
                name = str(each["loc"][0])
                variable = name if name in variables else cls.variable(name)
                # What follows a semicolon in a Spark URL may be a token.
                found = str(each["input"]).partition(";")[0]
                problems.append(Problem(variable, f"{each['msg']}, found {found!r}."))
        if problems:
            raise SettingsInvalid(
                "The environment", problems, "docs/settings.md lists every setting and what it takes."
            )
        return settings


def _nearest(name: str, known: dict[str, str]) -> str | None:
    bare = name.removeprefix(PREFIX)
    match = [bare] if bare in known else get_close_matches(name.upper(), known, n=1)
    return f"Did you mean {match[0]}?" if match else None
