"""Spark and the linter agree on formats: what is accepted we read as Spark wrote it, what is not Spark cannot read."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from random import Random
from string import ascii_letters

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from leanops.contracts.column_types import ColumnType
from leanops.contracts.datetime_format import is_format
from leanops.curated.strict_cast import strict_cast

MOMENTS = (
    "0001-01-01T00:00:00",
    "0099-10-09T12:00:00.000001",
    "0999-12-10T01:02:03.1",
    "1582-10-15T10:11:12.120000",
    "1969-12-31T23:59:59.999999",
    "1970-01-01T00:00:00",
    "1999-04-09T09:30:00.5",
    "2000-02-29T12:34:56.123456",
    "2024-05-06T13:00:01.100002",
    "2026-06-07T00:59:00.000100",
    "2026-07-11T11:00:59.90",
    "2026-08-31T22:22:22.222222",
    "2026-09-30T20:07:08.000009",
    "2026-11-01T07:08:09.789",
    "9999-12-31T23:59:59.999999",
)
PARTS = {"year": "yyyy", "month": "MM", "day": "dd", "hour": "HH", "minute": "mm", "second": "ss", "fraction": "SSSSSS"}
LETTERS_OF = {"y": "year", "u": "year", "m": "minute", "s": "second", "S": "fraction", "d": "day", "L": "month"} | {
    "M": "month",
    "H": "hour",
    "k": "hour",
    "h": "hour",
    "K": "hour",
}
OURS_ALONE = {*("g" * n for n in range(1, 8)), *("z" * n for n in range(1, 5)), "v", "vvvv", "VV"}
"""What Spark could read and the linter refuses: a number of days is no date, the name of a zone no moment."""


@dataclass(frozen=True)
class Trial:
    """A pattern, and the one that its texts are written with: the same but for optional sections that are left out."""

    pattern: str
    written: str

    @property
    def is_accepted(self) -> bool:
        return is_format(self.pattern, "TIMESTAMP")

    def text(self, moment: Column) -> Column:
        return F.date_format(moment, self.written)

    def is_read_by_spark(self, moment: Column) -> Column:
        """Whether Spark reads what it has written, as the moment that it was written from."""
        read = F.try_to_timestamp(self.text(moment), F.lit(self.pattern))
        return F.coalesce(read == self.shortened(moment), F.lit(False))

    def shortened(self, moment: Column) -> Column:
        """The moment without what the pattern does not write."""
        bare = "".join(part for place, part in enumerate(self.written.split("'")) if place % 2 == 0)
        for letters, unit in (("S", None), ("s", "SECOND"), ("m", "MINUTE"), ("HkKh", "HOUR"), ("", "DAY")):
            if unit is None and (count := bare.count("S")):
                micros, step = F.unix_micros(moment), 10 ** max(6 - count, 0)
                return F.timestamp_micros(micros - F.pmod(micros, F.lit(step)))
            if unit is not None and (not letters or any(letter in bare for letter in letters)):
                return F.date_trunc(unit, moment)
        raise AssertionError


def of(pattern: str) -> Trial:
    return Trial(pattern, pattern)


def around(run: str) -> Trial:
    """The run of letters in a pattern that says the rest of a moment, apart from it."""
    letter = run[0]
    parts = {name: part for name, part in PARTS.items() if name != LETTERS_OF.get(letter)}
    if letter == "D":
        parts = {name: part for name, part in parts.items() if name not in ("month", "day")}
    if letter in "hK":
        parts["half"] = "a"
    if letter == "a":
        parts["hour"] = "hh"
    return of("|".join((*parts.values(), run)))


RUNS = [letter * count for letter in ascii_letters for count in range(1, 8)]
JAVAS = "GuyDMLdQqYwWEecFahKkHmsSAnNBVvzOXxZpg"


def moments(spark: SparkSession) -> DataFrame:
    frame = spark.createDataFrame([(each,) for each in MOMENTS], "text string")
    return frame.select(F.col("text").cast("TIMESTAMP").alias("moment"))


def slices(trials: Iterable[Trial]) -> Iterator[list[Trial]]:
    """As many as one Spark job takes."""
    rest = iter(trials)
    while some := list(islice(rest, 150)):
        yield some


def misread(spark: SparkSession, trials: Iterable[Trial]) -> set[str]:
    """The patterns by which we read another moment than that from which Spark wrote the text, or none."""
    found: set[str] = set()
    moment, timestamp = F.col("moment"), ColumnType.parse("TIMESTAMP")
    for some in slices(trials):
        texts = [each.text(moment).alias(f"text{i}") for i, each in enumerate(some)]
        micros = [F.unix_micros(each.shortened(moment)).alias(f"micros{i}") for i, each in enumerate(some)]
        rows = moments(spark).select(*texts, *micros).collect()
        for i, each in enumerate(some):
            read = strict_cast(pa.array([row[f"text{i}"] for row in rows], pa.string()), timestamp, each.pattern)
            if read.cast(pa.int64()).to_pylist() != [row[f"micros{i}"] for row in rows]:
                found.add(each.pattern)
    return found


def unread(spark: SparkSession, trials: Iterable[Trial]) -> set[str]:
    """The patterns that Spark cannot read back, of those that it writes and reads without an error."""
    found: set[str] = set()
    for some in slices(trials):
        is_read = [F.every(each.is_read_by_spark(F.col("moment"))).alias(f"t{i}") for i, each in enumerate(some)]
        (row,) = moments(spark).agg(*is_read).collect()
        found |= {each.pattern for i, each in enumerate(some) if not row[f"t{i}"]}
    return found


def is_read_by_spark(spark: SparkSession, trial: Trial) -> bool:
    try:
        return not unread(spark, [trial])
    except PySparkException:
        return False


def test_every_letter_that_is_accepted_is_read_as_it_was_written(shared_spark: SparkSession) -> None:
    accepted = [trial for trial in map(around, RUNS) if trial.is_accepted]
    assert len(accepted) > 50
    assert not misread(shared_spark, accepted)


def refused_runs() -> Iterator[object]:
    """Every run of letters that is refused; the usual tests try the shortest of each letter that Java knows."""
    seen: set[str] = set()
    for run in RUNS:
        if not around(run).is_accepted:
            is_seldom = run[0] in seen or run[0] not in JAVAS
            seen.add(run[0])
            yield pytest.param(run, marks=[pytest.mark.long] if is_seldom else [])


@pytest.mark.parametrize("run", list(refused_runs()))
def test_every_letter_that_is_refused_cannot_be_read_by_spark(shared_spark: SparkSession, run: str) -> None:
    assert is_read_by_spark(shared_spark, around(run)) == (run in OURS_ALONE)


DAYS = [("y", "yyy", "yyyy", "yyyyy"), ("M", "MM", "MMM", "MMMM", "LL", "LLLL"), ("d", "dd")]
TIMES = [("H", "HH", "k", "kk"), ("m", "mm"), ("s", "ss"), ("S", "SSS", "SSSSSS", "SSSSSSSSS")]
ZONES = ("X", "XX", "XXX", "XXXX", "XXXXX", "x", "xxx", "xxxxx", "Z", "ZZZZ", "ZZZZZ", "O", "OOOO")
BETWEEN = ("", "", "", "-", ".", ":", " ", "/", "'T'", "'at'", "年", "0", "'1'", ",", "%", "\\", "\u2009")


def pieces(draw: Random) -> tuple[list[str], list[str], list[str]]:
    """The runs of a whole pattern in three stretches: the day, the time as far as it goes, and the zone."""
    days = [draw.choice(part) for part in DAYS]
    if draw.random() < 0.15:
        days = [draw.choice(DAYS[0]), draw.choice(("D", "DD", "DDD"))]
    draw.shuffle(days)
    times = [draw.choice(part) for part in TIMES[: draw.randrange(len(TIMES) + 1)]]
    if times and draw.random() < 0.2:
        times = [draw.choice(("h", "hh", "K", "KK")), *times[1:], "a"]
    if draw.random() < 0.1:
        draw.shuffle(times)
    return days, times, [draw.choice(ZONES)] if draw.random() < 0.3 else []


def joined(draw: Random, runs: Iterable[str]) -> str:
    return "".join(draw.choice(BETWEEN) + run for run in runs)


def plain_patterns(draw: Random, count: int) -> Iterator[Trial]:
    for _ in range(count):
        days, times, zone = pieces(draw)
        text = joined(draw, [*days, *times, *zone]) + draw.choice(("", "", "'Z'", "7", "."))
        if "''" not in text:  # two quoted texts side by side are an apostrophe
            yield of(text)


def patterns_with_sections(draw: Random, count: int) -> Iterator[Trial]:
    """Each with all the ways in which its sections are there or left out."""
    for _ in range(count):
        days, times, zone = pieces(draw)
        day, end = joined(draw, days), joined(draw, zone)
        cut = draw.randrange(len(times) + 1)
        time, more = joined(draw, times[:cut]), joined(draw, times[cut:])
        if not time or not more or "''" in f"{day}{time}{more}{end}":
            continue
        yield from draw.choice(
            (
                [Trial(f"{day}[{time}{more}]{end}", f"{day}{each}{end}") for each in ("", time + more)],
                [Trial(f"{day}[{time}[{more}]]{end}", f"{day}{each}{end}") for each in ("", time, time + more)],
                [Trial(f"{day}{time}[{more}]{end}", f"{day}{time}{each}{end}") for each in ("", more)],
                [Trial(f"{day}{time}[{more}][{end or 'X'}]", f"{day}{time}{each}") for each in ("", more, more + end)],
            )
        )


MANY = [200, pytest.param(2_000, marks=pytest.mark.long)]


@pytest.mark.parametrize("count", MANY)
def test_patterns_of_any_order_are_read_as_written_unless_spark_cannot(shared_spark: SparkSession, count: int) -> None:
    trials = list(dict.fromkeys(plain_patterns(Random(count), count)))
    accepted = [trial for trial in trials if trial.is_accepted]
    assert len(accepted) > count // 5
    assert not misread(shared_spark, accepted)
    refused = {trial.pattern: trial for trial in trials if not trial.is_accepted}
    assert len(refused) > count // 5
    assert unread(shared_spark, refused.values()) == set(refused)


@pytest.mark.parametrize("count", MANY)
def test_optional_sections_are_read_whether_they_are_there_or_not(shared_spark: SparkSession, count: int) -> None:
    accepted = [trial for trial in patterns_with_sections(Random(count), count) if trial.is_accepted]
    assert len(accepted) > count // 8
    assert not misread(shared_spark, accepted)
