"""Standardized to Curated, one function per step of the spec, each from DataFrame to DataFrame."""

from collections.abc import Collection, Iterable, Iterator
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from leanops.contracts.model import Contract, PayloadColumn
from leanops.curated.strict_cast import is_broken, strict_cast
from leanops.curated.table import KEY_COLUMNS, envelope_names

BROKEN = "broken_rules"
"""The column of the errors."""

# While rows are judged: no column of a contract begins with an underscore.
RULES = "_broken_rules"
IS_BROKEN = "_is_broken"
_RULE = "struct<column: string, rule: string, value: string>"


def judged(standardized: DataFrame, contract: Contract, held: Collection[str] | None = None) -> DataFrame:
    """Every row with the contract's columns, typed, whether it breaks a rule, and every rule that it breaks.

    Where it is not said which columns are `held`, Spark is asked. Each text is cast once. The list of rules is apart
    from whether there is one: Spark cannot compile a list, and does not look at it where only rows that are kept are
    asked for.
    """
    columns = list(enumerate(contract.payload_columns))
    held = standardized.columns if held is None else held
    texts = [_text(held, column.name) for _, column in columns]
    cast = standardized.select(
        *KEY_COLUMNS,
        *(_text(held, name).alias(name) for name in envelope_names(contract)),
        *(text.alias(f"_text_{i}") for i, text in enumerate(texts)),
        *(strict_cast(texts[i], str(each.type), each.format).alias(f"_value_{i}") for i, each in columns),
    )
    met = [rule for i, column in columns for rule in _rules(F.col(f"_text_{i}"), F.col(f"_value_{i}"), column)]
    return cast.select(
        *KEY_COLUMNS,
        *envelope_names(contract),
        *(_value(F.col(f"_text_{i}"), F.col(f"_value_{i}"), column).alias(column.name) for i, column in columns),
        reduce(or_, (is_met for is_met, _ in met), F.lit(False)).alias(IS_BROKEN),
        F.filter(F.array(*(F.when(is_met, rule) for is_met, rule in met)), lambda rule: rule.isNotNull())
        .cast(f"array<{_RULE}>")
        .alias(RULES),
    )


def kept(rows: DataFrame, contract: Contract, columns: Iterable[str]) -> DataFrame:
    """The rows that keep the contract, with all `columns` of Curated; those that have left the contract are NULL."""
    filled = {*KEY_COLUMNS, *envelope_names(contract), *(column.name for column in contract.payload_columns)}
    values = (F.col(name) if name in filled else F.lit(None).alias(name) for name in columns)
    return rows.where(~F.col(IS_BROKEN)).select(*values)


def broken(rows: DataFrame, topic: str, contract: Contract) -> DataFrame:
    """The rows that break it, with every broken rule and none of the values that were to be typed: open errors."""
    return rows.where(F.col(IS_BROKEN)).select(
        *KEY_COLUMNS,
        F.lit(topic).alias("topic_name"),
        F.col(RULES).alias(BROKEN),
        F.lit(contract.version).alias("contract_version"),
        F.current_timestamp().alias("first_seen"),
        F.lit(None).cast("timestamp").alias("closed"),
    )


def _text(held: Collection[str], name: str) -> Column:
    """The column's text, or NULL in every row while no message has had the field yet."""
    return F.col(name) if name in held else F.lit(None).cast("string")


def _value(text: Column, value: Column, column: PayloadColumn) -> Column:
    """The typed value. A default, in the type's own form, fills a missing one; a Critical Data Element has none."""
    if column.default is None:
        return value
    return F.when(text.isNull(), strict_cast(F.lit(column.default), str(column.type))).otherwise(value)


def _rules(text: Column, value: Column, column: PayloadColumn) -> Iterator[tuple[Column, Column]]:
    """Each rule of the column: whether it is broken, and how that is told. Every text is a STRING."""
    is_blank = text.isNull() | (F.trim(text) == "")
    if column.cde:
        yield is_blank, _told(column, "cde", text)
    if column.type.name != "STRING":
        misfit = is_broken(text, value)
        yield ~is_blank & misfit if column.cde else misfit, _told(column, "type", text)


def _told(column: PayloadColumn, rule: str, text: Column) -> Column:
    return F.struct(F.lit(column.name).alias("column"), F.lit(rule).alias("rule"), text.alias("value")).cast(_RULE)
