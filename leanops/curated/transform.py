"""Standardized to Curated, one function per step of the spec, each from DataFrame to DataFrame."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from leanops.contracts.model import Contract, PayloadColumn
from leanops.curated.strict_cast import is_broken, strict_cast
from leanops.curated.table import KEY_COLUMNS, envelope_names

BROKEN = "broken_rules"
_RULE = "struct<column: string, rule: string, value: string>"


def judged(standardized: DataFrame, contract: Contract) -> DataFrame:
    """Every row with the contract's columns, typed, and with every rule that it breaks."""
    texts = {column.name: _text(standardized, column.name) for column in contract.payload_columns}
    envelope = [_text(standardized, name).alias(name) for name in envelope_names(contract)]
    typed = [_value(texts[column.name], column).alias(column.name) for column in contract.payload_columns]
    rules = [rule for column in contract.payload_columns for rule in _rules(texts[column.name], column)]
    broken = F.filter(F.array(*rules), lambda rule: rule.isNotNull()).alias(BROKEN)
    return standardized.select(*KEY_COLUMNS, *envelope, *typed, broken)


def kept(rows: DataFrame) -> DataFrame:
    """The rows that keep the contract."""
    return rows.where(F.size(BROKEN) == 0).drop(BROKEN)


def broken(rows: DataFrame) -> DataFrame:
    """The rows that break it, with every broken rule and none of the values that were to be typed."""
    return rows.where(F.size(BROKEN) > 0).select(*KEY_COLUMNS, BROKEN)


def _text(standardized: DataFrame, name: str) -> Column:
    """The column's text, or NULL in every row while no message has had the field yet."""
    return F.col(name) if name in standardized.columns else F.lit(None).cast("string")


def _value(text: Column, column: PayloadColumn) -> Column:
    """The typed value. A default, in the type's own form, fills a missing one; a Critical Data Element has none."""
    value = strict_cast(text, str(column.type), column.format)
    if column.default is None:
        return value
    return F.when(text.isNull(), strict_cast(F.lit(column.default), str(column.type))).otherwise(value)


def _rules(text: Column, column: PayloadColumn) -> list[Column]:
    """One expression per rule of the column: the broken rule, or NULL where it is kept."""
    is_blank = text.isNull() | (F.trim(text) == "")
    misfit = is_broken(text, strict_cast(text, str(column.type), column.format))
    if not column.cde:
        return [_rule(misfit, column, "type", text)]
    return [_rule(is_blank, column, "cde", text), _rule(~is_blank & misfit, column, "type", text)]


def _rule(is_met: Column, column: PayloadColumn, rule: str, text: Column) -> Column:
    found = F.struct(F.lit(column.name).alias("column"), F.lit(rule).alias("rule"), text.alias("value"))
    return F.when(is_met, found.cast(_RULE))
