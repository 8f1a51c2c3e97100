"""What the linter accepts can be built: contracts are drawn from all that it takes, activated, and built with rows.

Names, types, bounds, formats, defaults, CDEs and envelopes are drawn by hypothesis; the oracle says what Curated and
the errors must hold. Many contracts are built at once, which takes hardly longer than one.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import count, cycle, islice
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession

from leanops.batch.topics import TopicBuild, TopicTables, built_or_raised
from leanops.contracts.datetime_format import EPOCH_FORMATS, is_format
from leanops.contracts.model import Contract, EnvelopeColumn, PayloadColumn
from leanops.contracts.reading import read_contract
from leanops.home import Home
from leanops.names import SAFE_NAME, Layer, table
from leanops.raw.landing import land_file
from leanops.settings import Settings
from leanops_assets.contracts.activation import Activation
from leanops_resources.catalog import LocalCatalog
from leanops_resources.schema_store import LocalSchemaStore, Stage
from leanops_resources.state.sqlite import SqliteStateStore
from tests import oracle
from tests.building import failures_of_builds
from tests.spark.test_datetime_format import patterns_with_sections, plain_patterns

FORMATS = {
    kind: sorted(
        {
            each.pattern
            for source in (plain_patterns(Random(3), 3_000), patterns_with_sections(Random(3), 3_000))
            for each in source
            if is_format(each.pattern, kind)
        }
    )
    for kind in ("DATE", "TIMESTAMP")
}
"""Formats of every order and length that the linter accepts."""

KEYWORDS = ("select", "order", "group", "table", "from", "end", "case", "timestamp", "date", "value", "key", "element")
SOURCES = ("_metadata.trace.id", "_metadata.by", "meta.ключ.ид", 'meta.a"b', "meta.a`b", "Meta.$x-1", "META.select")
FIRST = datetime(2026, 1, 14, 8, tzinfo=UTC)

names = st.one_of(
    st.sampled_from(KEYWORDS),
    st.from_regex(SAFE_NAME, fullmatch=True),
    st.integers(50, 63).map(lambda length: "n" * length + "_"),
    st.from_regex(r"[a-z]_{1,5}[0-9]{1,5}", fullmatch=True),
)
moments = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30))  # noqa: DTZ001, they are given a zone in writing
decimals = st.integers(1, 38).flatmap(lambda precision: st.tuples(st.just(precision), st.integers(0, precision)))
types = st.one_of(
    st.sampled_from(
        ("STRING", "BOOLEAN", "INT", "BIGINT", "FLOAT", "DOUBLE", "DATE", "TIMESTAMP", "DATE", "TIMESTAMP")
    ),
    st.sampled_from(("DECIMAL(1,0)", "DECIMAL(1,1)", "DECIMAL(38,0)", "DECIMAL(38,38)", "DECIMAL(38,37)")),
    decimals.map(lambda bounds: f"DECIMAL({bounds[0]},{bounds[1]})"),
)
JUNK = (
    "",
    " ",
    "12abc",
    "NaN",
    "1e23",
    "16777217e0",
    "31.02.2026",
    "2026-02-30",
    "+999999999-01-01",
    "true ",
    "9" * 60,
)


def written(layout: str, moment: datetime) -> str:
    """A moment, of UTC, in a format, with all that is optional."""
    return "".join(
        _written_run(token[0], moment) if token[2] else "" if token[3] else token[0].replace("'", "")
        for token in re.finditer(r"'([^']*)'|([A-Za-z])\2*|([\[\]])|.", layout)
    )


def _written_run(run: str, moment: datetime) -> str:
    numbers = {"y": moment.year, "M": moment.month, "L": moment.month, "d": moment.day, "D": moment.timetuple().tm_yday}
    numbers |= {"H": moment.hour, "k": moment.hour or 24, "K": moment.hour % 12, "h": moment.hour % 12 or 12}
    numbers |= {"m": moment.minute, "s": moment.second}
    match run[0]:
        case "M" | "L" if len(run) > 2:
            return moment.strftime("%B" if len(run) == 4 else "%b")
        case "S":
            return f"{moment.microsecond:06}000"[: len(run)]
        case "a":
            return "AM" if moment.hour < 12 else "PM"
        case "X":
            return "Z"
        case "O":
            return "GMT"
        case "Z" if len(run) > 3:
            return "GMT" if len(run) == 4 else "Z"
        case "Z" | "x":
            return "+00:00" if run in ("xxx", "xxxxx") else "+00" if run == "x" else "+0000"
        case letter:
            return f"{numbers[letter]:0{len(run)}}"


@st.composite
def texts(draw: st.DrawFn, kind: str, layout: str | None = None) -> str:
    """A text that fits the type."""
    if decimal := re.fullmatch(r"DECIMAL\((\d+),(\d+)\)", kind):
        precision, scale = int(decimal[1]), int(decimal[2])
        digits = f"{draw(st.integers(0, 10**precision - 1)):0{scale + 1}}"
        return draw(st.sampled_from(("", "-"))) + (f"{digits[:-scale]}.{digits[-scale:]}" if scale else digits)
    match kind:
        case "STRING":
            return "x" + draw(st.text(st.characters(exclude_categories=("C",)), max_size=20))
        case "BOOLEAN":
            return draw(st.sampled_from(("true", "false")))
        case "INT" | "BIGINT":
            bound = 2 ** (31 if kind == "INT" else 63)
            return str(draw(st.integers(-bound, bound - 1)))
        case "FLOAT" | "DOUBLE":
            most, zeros = (24, 10) if kind == "FLOAT" else (53, 22)
            whole = st.integers(-(2**most), 2**most).map(str)
            fraction = st.decimals(-99, 99, places=4).map(str)
            return draw(st.one_of(whole, fraction, st.integers(0, zeros).map(lambda exponent: f"1e{exponent}")))
    moment = draw(moments)
    if layout in EPOCH_FORMATS:
        per_second = {"epoch_seconds": 1, "epoch_millis": 1_000, "epoch_micros": 1_000_000}[layout]
        return str((moment - datetime(1970, 1, 1)) // timedelta(seconds=1) * per_second)  # noqa: DTZ001
    if layout:
        return written(layout, moment)
    return f"{moment.date().isoformat()}" if kind == "DATE" else f"{moment.isoformat()}Z"


@st.composite
def columns(draw: st.DrawFn) -> dict[str, Any]:
    """A payload column of any kind."""
    kind = draw(types)
    column: dict[str, Any] = {"name": draw(names), "type": kind}
    if draw(st.integers(0, 3)) == 0:
        column["source"] = draw(st.sampled_from((*SOURCES, "_metadata.key", f"deep.{column['name']}", column["name"])))
    if kind in FORMATS and draw(st.booleans()):
        epochs = EPOCH_FORMATS if kind == "TIMESTAMP" else ()
        column["format"] = draw(st.sampled_from((*epochs, *FORMATS[kind])))
    match draw(st.sampled_from(("plain", "cde", "default"))):
        case "cde":
            column["cde"] = True
        case "default":
            column["default"] = draw(texts(kind))
    return column


@st.composite
def contracts(draw: st.DrawFn, size: int) -> dict[str, Any]:
    """A contract of so many payload columns. Few are drawn; those of a large one repeat these under other names."""
    drawn = draw(st.lists(columns().filter(is_accepted(PayloadColumn)), min_size=min(size, 6), max_size=min(size, 25)))
    payload: dict[str, dict[str, Any]] = {}
    for number, column in enumerate(islice(cycle(drawn), size)):
        name = column["name"] if column["name"] not in payload else f"{column['name'][:50]}_{number}"
        payload.setdefault(name, {**column, "name": name})
    free = names.filter(lambda name: name not in payload)
    mapped = draw(
        st.lists(st.tuples(free, st.sampled_from(SOURCES)), max_size=3, unique_by=(lambda p: p[0], lambda p: p[1]))
    )
    envelope = [{"name": name, "source": source} for name, source in mapped]
    envelope = [each for each in envelope if is_accepted(EnvelopeColumn)(each) and each["name"] != "idempotency_key"]
    if draw(st.booleans()):
        envelope.append({"name": "idempotency_key", "source": "_metadata.key"})
    return {"envelope_columns": envelope, "payload_columns": list(payload.values())}


def is_accepted(model: type[PayloadColumn | EnvelopeColumn]) -> Callable[[dict[str, Any]], bool]:
    def accepts(document: dict[str, Any]) -> bool:
        try:
            model.model_validate(document)
        except ValidationError:
            return False
        return True

    return accepts


@st.composite
def payloads(draw: st.DrawFn, contract: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A row that has every field as it should be, one without any, and one of which some field is missing or wrong."""
    drawn: dict[tuple[str, str | None], str] = {}

    def fitting(column: Mapping[str, Any]) -> str:
        key = (column["type"], column.get("format"))
        return drawn.setdefault(key, draw(texts(*key)))

    whole = {column["name"]: fitting(column) for column in contract["payload_columns"] if "source" not in column}
    deep = {column["source"]: fitting(column) for column in contract["payload_columns"] if "source" in column}
    whole |= {path: text for path, text in deep.items() if "." not in path}
    whole["deep"] = {path.removeprefix("deep."): text for path, text in deep.items() if path.startswith("deep.")}
    some = dict(whole)
    for name in draw(st.lists(st.sampled_from(sorted(whole)), min_size=1, max_size=3)):
        some[name] = draw(st.sampled_from((*JUNK, None)))
    rows: list[dict[str, Any]] = [whole, some, {}]
    for number, row in enumerate(rows):
        row["_metadata"] = {"key": f"k{number}", "by": "someone", "trace": {"id": f"t{number}"}}
        row["meta"] = {"ключ": {"ид": "ä"}, 'a"b': 'quote"', "a`b": "tick`"}
    return rows


class Drawn(NamedTuple):
    """A contract that the linter accepts, and rows for it."""

    document: Mapping[str, Any]
    rows: Sequence[Mapping[str, Any]]


class Platform:
    """Where contracts are uploaded, and built once they are active."""

    def __init__(self, home: Home, schemas: Path, spark: SparkSession) -> None:
        catalog = LocalCatalog(home)
        self.catalog: Catalog = catalog.load()
        self._home, self._spark = home, spark
        self._store, self._numbers = LocalSchemaStore(schemas), count()
        used = Settings().model_copy(update={"home": home.path, "schemas": str(schemas)})
        self._activation = Activation(used, self._store, SqliteStateStore(home.state), catalog, lambda: spark, print)

    def build(self, drawn: Sequence[Drawn]) -> None:
        """Activate contracts, land the rows, build both layers of all, and compare each with the oracle."""
        topics = {f"t{next(self._numbers)}": each for each in drawn}
        contracts = {topic: self._activate(topic, each.document) for topic, each in topics.items()}
        messages = {
            topic: [self._message(number, row) for number, row in enumerate(each.rows)]
            for topic, each in topics.items()
        }
        for topic, landed in messages.items():
            self._land(topic, landed)
        builds = [TopicBuild(TopicTables(self.catalog, topic), contract) for topic, contract in contracts.items()]
        failures = failures_of_builds(self._spark, self.catalog, builds)
        for topic, each in topics.items():
            try:
                built_or_raised(failures.get(topic))
                self._compare(topic, contracts[topic], messages[topic])
            except Exception as wrong:
                wrong.add_note(f"The contract: {json.dumps(each.document)}\nIts rows: {json.dumps(each.rows)}")
                raise

    def _activate(self, topic: str, document: Mapping[str, Any]) -> Contract:
        content = json.dumps({"table_name": topic, **document}).encode()
        self._store.write(topic, Stage.PENDING, content)
        (upload,) = (each for each in self._store.uploads() if each.topic == topic)
        assert self._activation.take_in(upload)
        return read_contract(content, topic, "the contract that was drawn")

    def _message(self, number: int, row: Mapping[str, Any]) -> oracle.Message:
        return oracle.Message(f"m{number}", json.dumps(row), FIRST, 1, number)

    def _land(self, topic: str, messages: Sequence[oracle.Message]) -> None:
        lines = [
            {
                "message_id": each.message_id,
                "publish_time": FIRST.isoformat(),
                "ingestion_ts": 1,
                "payload": each.payload,
            }
            for each in messages
        ]
        file = self._home.path / "messages.ndjson"
        file.write_text("\n".join(map(json.dumps, lines)))
        land_file(self.catalog, topic, file, date(2025, 1, 1))

    def _compare(self, topic: str, contract: Contract, messages: Sequence[oracle.Message]) -> None:
        standardized = oracle.standardized_under(contract, messages)
        expected = oracle.curated(standardized, contract)
        held = {row["idempotency_key"]: row for row in self._rows(Layer.CURATED, topic)}
        assert held.keys() == expected.rows.keys()
        for key, row in expected.rows.items():
            assert {name: held[key][name] for name in row if name != "idempotency_key"} == {
                name: value for name, value in row.items() if name != "idempotency_key"
            }
        errors = [row for row in self._rows(Layer.ERRORS, topic) if row["topic_name"] == topic]
        assert {row["idempotency_key"]: [tuple(rule.values()) for rule in row["broken_rules"]] for row in errors} == {
            key: [tuple(rule) for rule in rules] for key, rules in expected.broken.items()
        }

    def _rows(self, layer: Layer, topic: str) -> list[dict[str, Any]]:
        return self.catalog.load_table(table(layer, topic)).scan().to_arrow().to_pylist()


@pytest.fixture(scope="module")
def platform(shared_home: Home, shared_spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Platform:
    return Platform(shared_home, tmp_path_factory.mktemp("schemas"), shared_spark)


SIZES = [
    pytest.param({8: 10, 60: 5}, id="8 and 60 columns"),
    pytest.param({24: 100}, id="24 columns, many contracts", marks=pytest.mark.long),
    pytest.param({300: 5}, id="300 columns", marks=pytest.mark.long),
    pytest.param({2_000: 2}, id="2,000 columns", marks=[pytest.mark.long, pytest.mark.timeout(1_800)]),
]


@pytest.mark.parametrize("examples_of_size", SIZES)
def test_every_contract_that_the_linter_accepts_can_be_built(
    platform: Platform, examples_of_size: Mapping[int, int]
) -> None:
    platform.build([drawn for size, examples in examples_of_size.items() for drawn in draw(size, examples)])


def draw(size: int, examples: int) -> list[Drawn]:
    """So many contracts of a size, always the same ones. Hypothesis may give up on some: a seed may bring too few."""
    drawn: list[Drawn] = []

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def keep(data: st.DataObject) -> None:
        document = data.draw(contracts(size))
        drawn.append(Drawn(document, data.draw(payloads(document))))

    for attempt in range(10):
        seed(size + attempt)(keep)()
        if len(drawn) >= examples:
            return drawn
    raise AssertionError(f"Hypothesis has drawn {len(drawn)} contracts of {size} columns, and {examples} are wanted.")
