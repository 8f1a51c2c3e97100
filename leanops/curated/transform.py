"""Standardized to Curated, one function per step of the spec, each from DataFrame to DataFrame, over any topics.

A row has the texts of its columns as a list, and each topic's contract says which of them fill which of its columns. So
however many columns a contract has, and however many contracts there are, each type is cast in one place of the plan.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, LongType, StringType, StructType, TimestampType

from leanops.blank import blank
from leanops.contracts.model import Contract
from leanops.curated.binding import BoundColumn
from leanops.curated.strict_cast import is_broken, strict_cast
from leanops.curated.table import KEY_COLUMNS, envelope_names
from leanops.names import OBJECTS_COLUMN
from leanops.standardized.flatten_plan import column_name

BROKEN = "broken_rules"
"""The column of the errors."""

AN_OBJECT = "{…}"
"""What is told of a field that is an object, where the contract has a column."""

IS_INVALID = "is_invalid"
ROW = (
    StructType()
    .add("topic", StringType())
    .add("message_id", StringType())
    .add("idempotency_key", StringType())
    .add("publish_time", TimestampType())
    .add("ingestion_ts", LongType())
    .add("landing_seq", LongType())
    .add(OBJECTS_COLUMN, StringType())
    .add("envelope", ArrayType(StringType()))
    .add("texts", ArrayType(StringType()))
)
"""A row of Standardized: the texts of the envelope's columns, and of those that fill the contract's."""

BROKEN_RULES = ArrayType(StructType().add("column", StringType()).add("rule", StringType()).add("value", StringType()))
_COLUMN = (
    "struct<name: string, kind: string, own_kind: string, is_string: boolean, cde: boolean, default: string, "
    "place: string, path: array<string>, fields: array<int>, below: array<int>>"
)


@dataclass(frozen=True)
class Binding:
    """A topic's contract, bound to columns of Standardized."""

    topic: str
    contract: Contract
    bound: Sequence[BoundColumn]

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """The columns of Standardized whose texts a row brings."""
        return tuple(dict.fromkeys(name for each in self.bound for name in (*each.fields, *each.below)))

    @cached_property
    def envelope(self) -> tuple[str, ...]:
        return tuple(envelope_names(self.contract))

    @property
    def kinds(self) -> set[tuple[str, str | None]]:
        """The types and formats that texts are cast to."""
        columns = [each.column for each in self.bound]
        return {(str(each.type), layout) for each in columns for layout in (None, each.format)}

    @property
    def columns(self) -> list[dict[str, object]]:
        """The contract's columns, as rows are validated by them."""
        places = {name: i for i, name in enumerate(self.texts)}
        return [
            {
                "name": each.column.name,
                "kind": _kind(str(each.column.type), each.column.format),
                "own_kind": _kind(str(each.column.type), None),
                "is_string": each.column.type.name == "STRING",
                "cde": each.column.cde,
                "default": each.column.default,
                "place": column_name(each.place) if isinstance(each.place, tuple) else each.place,
                "path": each.place if isinstance(each.place, tuple) else None,
                "fields": [places[name] for name in each.fields],
                "below": [places[name] for name in each.below],
            }
            for each in self.bound
        ]


def rows_of(standardized: DataFrame, binding: Binding) -> DataFrame:
    """The rows of one topic's table, with the texts that its contract asks for; NULL where no message has had one."""
    held = {*standardized.columns}

    def text(name: str) -> Column:
        return F.col(name) if name in held else F.lit(None).cast("string")

    def texts(names: Iterable[str]) -> Column:
        return F.array(*map(text, names)).cast("array<string>")

    return standardized.select(
        F.lit(binding.topic).alias("topic"),
        *KEY_COLUMNS,
        text(OBJECTS_COLUMN).alias(OBJECTS_COLUMN),
        texts(binding.envelope).alias("envelope"),
        texts(binding.texts).alias("texts"),
    )


def validated(rows: DataFrame, bindings: Sequence[Binding]) -> DataFrame:
    """Every row with the contract's columns, typed, and every rule that it breaks."""
    kinds = sorted({kind for each in bindings for kind in each.kinds}, key=str)
    columns = _contracts(rows.sparkSession, bindings, kinds)
    bound = rows.join(F.broadcast(columns), "topic").select(
        "*", F.from_json(OBJECTS_COLUMN, "map<string,array<array<string>>>").alias("objects")
    )
    cells = bound.select("*", F.transform("columns", lambda column: _cell(column, kinds)).alias("cells"))
    checked = cells.select("*", F.flatten(F.transform("cells", _rules)).alias(BROKEN))
    return checked.select(
        "topic",
        *KEY_COLUMNS,
        "envelope",
        F.transform("cells", _value).alias("values"),
        BROKEN,
        (F.size(BROKEN) > 0).alias(IS_INVALID),
        "contract_version",
    )


def invalid_rows(rows: DataFrame) -> DataFrame:
    """The rows that break their contract, with every broken rule: open errors."""
    return rows.where(F.col(IS_INVALID)).select(
        *KEY_COLUMNS,
        F.col("topic").alias("topic_name"),
        BROKEN,
        "contract_version",
        F.current_timestamp().alias("first_seen"),
        F.lit(None).cast("timestamp").alias("closed"),
    )


def valid_rows(rows: DataFrame, contract: Contract, columns: Iterable[str]) -> DataFrame:
    """The rows of one topic that keep its contract, with all `columns` of Curated; those that left it are NULL."""
    filled = {name: F.col(name) for name in KEY_COLUMNS}
    filled |= {name: F.get("envelope", F.lit(i)) for i, name in enumerate(envelope_names(contract))}
    filled |= {
        column.name: from_canonical(F.get("values", F.lit(i)), str(column.type))
        for i, column in enumerate(contract.payload_columns)
    }
    return rows.where(~F.col(IS_INVALID)).select(*(filled.get(name, F.lit(None)).alias(name) for name in columns))


def canonical(value: Column, type_name: str) -> Column:
    """A typed value as a text that every engine reads back as the same value: moments are counted."""
    match type_name:
        case "TIMESTAMP":
            return F.unix_micros(value).cast("string")
        case "DATE":
            return F.unix_date(value).cast("string")
        case _:
            return value.cast("string")


def from_canonical(text: Column, type_name: str) -> Column:
    """The value of such a text."""
    match type_name:
        case "TIMESTAMP":
            return F.timestamp_micros(text.cast("bigint"))
        case "DATE":
            return F.date_from_unix_date(text.cast("int"))
        case _:
            return text.cast(type_name)


def _kind(type_name: str, layout: str | None) -> str:
    return f"{type_name} {layout}" if layout else type_name


def _cast(kind: Column, text: Column, kinds: Sequence[tuple[str, str | None]]) -> Column:
    """The strict cast by the type that a column has: one case for each type and format there is."""
    cases = ((kind == _kind(name, layout), canonical(strict_cast(text, name, layout), name)) for name, layout in kinds)
    first, *others = cases
    return reduce(lambda found, case: found.when(*case), others, F.when(*first))


def _contracts(spark: SparkSession, bindings: Sequence[Binding], kinds: Sequence[tuple[str, str | None]]) -> DataFrame:
    """The columns of each topic's contract. A default, in the type's own form, is cast once."""
    rows = [(each.topic, each.contract.version, json.dumps(each.columns)) for each in bindings]
    found = spark.createDataFrame(rows, "topic string, contract_version int, columns string")
    columns = F.transform(
        F.from_json("columns", f"array<{_COLUMN}>"),
        lambda column: column.withField("default", _cast(column["own_kind"], column["default"], kinds)),
    )
    return found.withColumn("columns", columns)


def _cell(column: Column, kinds: Sequence[tuple[str, str | None]]) -> Column:
    """What a row has for a column of the contract. Of several fields the first counts: if they differ it is invalid."""
    found = F.array_distinct(F.array_compact(F.transform(column["fields"], _text)))
    text = F.get(found, F.lit(0))
    return F.struct(
        column.alias("column"),
        text.alias("text"),
        found.alias("texts"),
        _is_object(column).alias("is_object"),
        _cast(column["kind"], text, kinds).alias("value"),
    )


def _text(place: Column) -> Column:
    return F.get(F.col("texts"), place)


def _is_object(column: Column) -> Column:
    """Whether the row has an object where the contract has a column."""
    there = F.try_element_at(F.col("objects"), column["place"])
    is_noted = F.when(column["path"].isNull(), there.isNotNull()).otherwise(F.array_contains(there, column["path"]))
    has_below = F.exists(column["below"], lambda place: _text(place).isNotNull())
    return F.coalesce(is_noted, F.lit(False)) | has_below


def _rules(cell: Column) -> Column:
    """The rules of its column that a cell breaks, and how that is told. Every text is a STRING."""
    text, is_object, column = cell["text"], cell["is_object"], cell["column"]
    is_ambiguous = F.size(cell["texts"]) > 1
    is_missing = column["cde"] & (text.isNull() | blank(text)) & ~is_object & ~is_ambiguous
    is_misfit = ~column["is_string"] & is_broken(text, cell["value"]) & ~is_ambiguous & ~is_missing
    shown = F.when(is_object, AN_OBJECT).otherwise(text)
    return F.array_compact(
        F.array(
            F.when(is_ambiguous, _broken(column, "ambiguous", F.to_json(cell["texts"]))),
            F.when(is_missing, _broken(column, "cde", text)),
            F.when(is_object | is_misfit, _broken(column, "type", shown)),
        )
    ).cast(BROKEN_RULES)


def _broken(column: Column, rule: str, value: Column) -> Column:
    return F.struct(column["name"].alias("column"), F.lit(rule).alias("rule"), value.alias("value"))


def _value(cell: Column) -> Column:
    """The value, canonical. A default fills a missing one; a Critical Data Element has none."""
    return F.coalesce(cell["value"], F.when(cell["text"].isNull(), cell["column"]["default"]))
