"""What RAW shows of a topic's fields, counted in Spark: no row leaves it, only one line of figures for each field."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date
from functools import reduce
from operator import or_
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import And, EqualTo
from pyiceberg.table import Table
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, StructField, StructType

from leanops.blank import blank
from leanops.contracts.column_types import DECIMAL_DIGITS
from leanops.contracts.proposal import SAMPLE_LENGTH, FieldProfile, Form, Profile
from leanops.curated.strict_cast import strict_cast
from leanops.errors import ProposalImpossible
from leanops.names import DAY_FIELD, OVERFLOW_COLUMN, Layer, spark_table, table
from leanops.observed import Observed
from leanops.ops.drift_log import DRIFT_LOG, NEW_COLUMN
from leanops.slices import Slice, sized
from leanops.standardized.flatten_plan import FlatColumn, FlattenPlan, Path, path_from_text
from leanops.standardized.table import flat_columns
from leanops.standardized.transform import new_fields, read_payloads
from leanops.tables import find_table

# Numbers as the strict casts have them, with their parts: before the point, behind it, and the exponent.
_NUMBER = r"\A-?(0|[1-9][0-9]*)(?:\.([0-9]+))?(?:[eE]([+-]?0*[0-9]{1,3}))?\z"
_MAX_NUMBER_LENGTH = 400
SAMPLE = 5_000
"""The first messages of a topic, which have most of its fields."""
_TOPIC = "profiled"


def landed_table(catalog: Catalog, topic: str) -> Table:
    """The topic's RAW table, if it holds anything."""
    raw = find_table(catalog, table(Layer.RAW, topic))
    if raw is None or raw.current_snapshot() is None:
        raise ProposalImpossible(
            f"Nothing of {topic} has landed in RAW yet.",
            f"Land some messages first: leanops land {topic} FILE.",
        )
    return raw


def profile_raw(
    spark: SparkSession, catalog: Catalog, topic: str, forms: Collection[Form], days: int | None = None
) -> Profile:
    """Every field of the messages in RAW, or of the last publish days that hold any: how often, what fits, samples."""
    raw = landed_table(catalog, topic)
    snapshot = raw.current_snapshot()
    assert snapshot is not None
    rows_of_days = _rows_of_days(raw)
    chosen = sorted(rows_of_days)[-days if days else 0 :]
    messages = spark.read.option("versionAsOf", str(snapshot.snapshot_id)).table(spark_table(Layer.RAW, topic))
    if days:
        messages = messages.where(Slice.of_days(chosen).text)
    rows = sum(rows_of_days[day] for day in chosen)
    carried = _carried(catalog, topic)
    sized(spark, rows)
    paths = _paths(messages, rows, list(dict.fromkeys(column.path for column in carried)))
    counted, fields = _fields(messages, paths, list(forms), _logged(catalog, topic))
    return Profile(
        messages=counted["messages"] - counted["refused"],
        refused=counted["refused"],
        overflowing=counted["overflowing"],
        fields=tuple(fields),
        carried=tuple(carried),
    )


def _rows_of_days(raw: Table) -> dict[date, int]:
    """RAW's publish days, and how many rows each has: nothing is ever deleted there."""
    found = raw.inspect.partitions().to_pylist()
    return {each["partition"][DAY_FIELD]: each["record_count"] for each in found}


def _carried(catalog: Catalog, topic: str) -> list[FlatColumn]:
    """The columns that Standardized has already: these fields keep their names."""
    standardized = find_table(catalog, table(Layer.STANDARDIZED, topic))
    return flat_columns(standardized.schema()) if standardized else []


def _logged(catalog: Catalog, topic: str) -> dict[Path, date]:
    """Since when fields are known, by the drift log: messages that are not looked at may have had them."""
    log = find_table(catalog, DRIFT_LOG)
    if log is None:
        return {}
    where = And(EqualTo(term="topic", value=topic), EqualTo(term="change", value=NEW_COLUMN))
    rows = log.scan(row_filter=where, selected_fields=("field", "logged")).to_arrow().to_pylist()
    latest_first = sorted(rows, key=lambda row: row["logged"], reverse=True)
    return {path_from_text(row["field"]): row["logged"].astimezone(UTC).date() for row in latest_first}


def _paths(messages: DataFrame, rows: int, known: Sequence[Path]) -> list[Path]:
    """All fields, in the order in which they landed, up to the cap. Payloads of known fields are read much faster."""
    parts = [messages]
    if rows > SAMPLE and not known:
        first = messages.agg(F.min("landing_seq").alias("seq")).collect()[0].seq
        parts.insert(0, messages.where(F.col("landing_seq") < first + SAMPLE))
    paths = list(known)
    for part in parts:
        plan = _plan(paths)
        if not plan.is_full:
            paths += new_fields(_read(part, paths))[: plan.cap - len(plan.columns)]
    return paths


def _read(messages: DataFrame, paths: Sequence[Path]) -> DataFrame:
    return read_payloads(messages.withColumn("topic", F.lit(_TOPIC)), {_TOPIC: _plan(paths)})


def _plan(paths: Sequence[Path]) -> FlattenPlan:
    """A plan to read by: what the columns will be called is not decided here."""
    return FlattenPlan(tuple(FlatColumn(path, f"c{i}") for i, path in enumerate(paths)))


def _fields(
    messages: DataFrame, paths: Sequence[Path], forms: Sequence[Form], logged: Mapping[Path, date]
) -> tuple[dict[str, int], list[FieldProfile]]:
    """One look at all values of all fields, and another at the few that are samples."""
    read = Observed(
        _read(messages, paths),
        messages=F.count("*"),
        refused=F.count("error_kind"),
        overflowing=F.count(OVERFLOW_COLUMN),
    )
    rows = read.rows.transform(_values).transform(_counted, forms).collect()
    figures = {row["place"]: row.asDict() for row in rows}
    samples = _samples(messages, paths, figures)
    fields = [
        _field(path, figures[place], forms, samples[place], logged.get(path))
        if place in figures
        else FieldProfile(path, since=logged.get(path))
        for place, path in enumerate(paths)
    ]
    return read.facts, fields


def _values(read: DataFrame) -> DataFrame:
    """All texts below each other, so that every field is counted alike."""
    places = read.select("landing_seq", "publish_time", F.posexplode("texts").alias("place", "text"))
    return places.where(F.col("text").isNotNull())


def _counted(values: DataFrame, forms: Sequence[Form]) -> DataFrame:
    """A line of figures for each field; samples by their landing_seq, for texts would have to be sorted.

    The samples are the first value, the last one, and the first that is nothing but text: it may be the odd one.
    """
    text, seq = F.col("text"), F.col("landing_seq")
    whole_digits, scale = _digits(text)
    is_number = F.col("whole_digits").isNotNull()
    names = [f"form_{i}" for i in range(len(forms))]
    typed = [F.col(name) for name, form in zip(names, forms, strict=True) if form.type.name != "STRING"]
    is_decimal = is_number & (F.col("whole_digits") + F.col("scale") <= DECIMAL_DIGITS)
    is_blank = blank(text)
    return (
        values.transform(_with_fits, dict(zip(names, forms, strict=True)))
        .withColumns({"whole_digits": whole_digits, "scale": scale})
        .groupBy("place")
        .agg(
            F.count("*").alias("values"),
            F.count_if(is_blank).alias("blanks"),
            F.count_if(is_decimal).alias("decimals"),
            F.max(F.when(is_decimal, F.col("whole_digits"))).alias("whole_digits"),
            F.max(F.when(is_decimal, F.col("scale"))).alias("scale"),
            F.min(F.to_date("publish_time")).alias("since"),
            F.min(F.when(~is_blank, seq)).alias("first"),
            F.min(F.when(~is_blank & ~reduce(or_, typed, is_decimal), seq)).alias("odd"),
            F.max(F.when(~is_blank, seq)).alias("last"),
            *(F.count_if(name).alias(name) for name in names),
        )
    )


def _with_fits(values: DataFrame, forms: Mapping[str, Form]) -> DataFrame:
    """Texts, and whether each is a value of each form."""

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            fits = [pc.is_valid(strict_cast(batch["text"], form.type, form.format)) for form in forms.values()]
            yield pa.record_batch([*batch.columns, *fits], [*batch.schema.names, *forms])

    fields = [StructField(name, BooleanType()) for name in forms]
    return values.mapInArrow(work, StructType([*values.schema.fields, *fields]))


def _samples(
    messages: DataFrame, paths: Sequence[Path], figures: Mapping[int, Mapping[str, Any]]
) -> dict[int, tuple[str, ...]]:
    """The texts that the figures point at, cut to what is shown of them."""
    wanted = {
        place: [row[name] for name in ("first", "odd", "last") if row[name] is not None]
        for place, row in figures.items()
    }
    seqs = sorted({seq for each in wanted.values() for seq in each})
    if not seqs:
        return dict.fromkeys(figures, ())
    cell = F.concat_ws("/", "place", "landing_seq")
    cells = [f"{place}/{seq}" for place, each in wanted.items() for seq in each]
    rows = _read(messages.where(F.col("landing_seq").isin(seqs)), paths)
    found = rows.transform(_values).where(cell.isin(cells))
    shown = found.select(cell.alias("cell"), F.substring("text", 1, SAMPLE_LENGTH + 1).alias("text")).collect()
    texts = {row["cell"]: row["text"] for row in shown}
    return {place: tuple(dict.fromkeys(texts[f"{place}/{seq}"] for seq in each)) for place, each in wanted.items()}


def _digits(text: Column) -> tuple[Column, Column]:
    """How many digits a number has before the point and behind it, no zeros at either end; NULL for other texts."""
    number = F.when((F.length(text) <= _MAX_NUMBER_LENGTH) & text.rlike(_NUMBER), text)
    whole, fraction, exponent = (F.regexp_extract(number, _NUMBER, group) for group in (1, 2, 3))
    shift = F.when(exponent == "", 0).otherwise(exponent.try_cast("int"))
    digits, zero = F.concat(whole, fraction), F.lit("0")
    leading = F.length(digits) - F.length(F.ltrim(digits, zero))
    trailing = F.length(digits) - F.length(F.rtrim(digits, zero))
    is_zero = leading == F.length(digits)
    none = F.lit(0)
    return (
        F.when(is_zero, none).when(number.isNotNull(), F.greatest(none, F.length(whole) + shift - leading)),
        F.when(is_zero, none).when(number.isNotNull(), F.greatest(none, F.length(fraction) - shift - trailing)),
    )


def _field(
    path: Path, row: Mapping[str, Any], forms: Sequence[Form], samples: tuple[str, ...], logged: date | None
) -> FieldProfile:
    return FieldProfile(
        path,
        values=row["values"],
        blanks=row["blanks"],
        fitting={form: row[f"form_{i}"] for i, form in enumerate(forms)},
        decimals=row["decimals"],
        whole_digits=row["whole_digits"] or 0,
        scale=row["scale"] or 0,
        samples=samples,
        since=min(filter(None, (row["since"], logged)), default=None),
    )
