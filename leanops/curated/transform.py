"""Standardized to Curated, one function per step of the spec, each from DataFrame to DataFrame."""

from collections.abc import Collection, Iterable, Iterator, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

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

# While rows are judged: no column of a contract begins with an underscore.
RULES = "_broken_rules"
IS_BROKEN = "_is_broken"
_OBJECTS = "_objects"
_RULE = "struct<column: string, rule: string, value: string>"


def judged(
    standardized: DataFrame, contract: Contract, bound: Sequence[BoundColumn], held: Collection[str] | None = None
) -> DataFrame:
    """Every row with the contract's columns, typed, whether it breaks a rule, and every rule that it breaks.

    Where it is not said which columns are `held`, Spark is asked. Each text is cast once. The list of rules is apart
    from whether there is one: Spark cannot compile a list, and does not look at it where only rows that are kept are
    asked for.
    """
    held = standardized.columns if held is None else held
    fields = [_Field(i, each) for i, each in enumerate(bound)]
    read = standardized.select(
        *KEY_COLUMNS,
        *(_text(held, name).alias(name) for name in envelope_names(contract)),
        F.from_json(_text(held, OBJECTS_COLUMN), "map<string,array<array<string>>>").alias(_OBJECTS),
        *(column for field in fields for column in field.read()),
    )
    rules = [rule for field in fields for rule in field.rules()]
    met = [F.col(f"_met_{i}") for i in range(len(rules))]
    checked = read.select("*", *(is_met.alias(f"_met_{i}") for i, (is_met, _) in enumerate(rules)))
    return checked.select(
        *KEY_COLUMNS,
        *envelope_names(contract),
        *(field.typed().alias(field.column.name) for field in fields),
        # Flat: thousands of terms joined by OR would nest deeper than Spark Connect can send.
        F.greatest(F.lit(False), F.lit(False), *met).alias(IS_BROKEN),
        F.array_compact(F.array(*(F.when(is_met, told) for is_met, (_, told) in zip(met, rules, strict=True))))
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


class _Field:
    """What a row has for one column of the contract, and the rules about it."""

    def __init__(self, place: int, bound: BoundColumn) -> None:
        self.column, self._bound_to = bound.column, bound.place
        self._fields, self._below = ([F.col(name) for name in names] for names in (bound.fields, bound.below))
        self._place = place

    def read(self) -> Iterator[Column]:
        """The text and its strict cast. Of several fields the first counts: if they differ the row is refused."""
        text = F.coalesce(*self._fields) if self._fields else F.lit(None).cast("string")
        yield text.alias(f"_text_{self._place}")
        yield strict_cast(text, str(self.column.type), self.column.format).alias(f"_value_{self._place}")
        if len(self._fields) > 1:
            yield F.array_distinct(F.array_compact(F.array(*self._fields))).alias(f"_texts_{self._place}")
        if self._below:
            yield F.coalesce(*self._below).isNotNull().alias(f"_has_below_{self._place}")

    def typed(self) -> Column:
        """The value. A default, in the type's own form, fills a missing one; a Critical Data Element has none."""
        text, value, column = self._of("text"), self._of("value"), self.column
        if column.default is None:
            return value
        return F.when(text.isNull(), strict_cast(F.lit(column.default), str(column.type))).otherwise(value)

    def rules(self) -> Iterator[tuple[Column, Column]]:
        """Each rule of the column: whether it is broken, and how that is told. Every text is a STRING."""
        text, is_object = self._of("text"), self._is_object()
        misfit, missing = is_broken(text, self._of("value")), (text.isNull() | blank(text)) & ~is_object
        if len(self._fields) > 1:
            texts = self._of("texts")
            is_ambiguous = F.size(texts) > 1
            yield is_ambiguous, self._told("ambiguous", F.to_json(texts))
            misfit, missing = misfit & ~is_ambiguous, missing & ~is_ambiguous
        if self.column.cde:
            yield missing, self._told("cde", text)
            misfit = misfit & ~missing
        is_told = self.column.type.name != "STRING"
        value = F.when(is_object, AN_OBJECT).otherwise(text)
        yield is_object | misfit if is_told else is_object, self._told("type", value)

    def _is_object(self) -> Column:
        """Whether the row has an object where the contract has a column."""
        place, objects = self._bound_to, F.col(_OBJECTS)
        if isinstance(place, tuple):
            there = F.array_contains(objects[column_name(place)], F.array(*map(F.lit, place)))
        else:
            there = F.map_contains_key(objects, place)
        is_object = F.coalesce(there, F.lit(False))
        return is_object | self._of("has_below") if self._below else is_object

    def _of(self, what: str) -> Column:
        return F.col(f"_{what}_{self._place}")

    def _told(self, rule: str, value: Column) -> Column:
        name = F.lit(self.column.name)
        return F.struct(name.alias("column"), F.lit(rule).alias("rule"), value.alias("value"))
