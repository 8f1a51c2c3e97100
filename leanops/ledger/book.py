"""What a layer's accounts are drawn up from: the rows that came in, those that were kept, and those refused."""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from pyiceberg.catalog import Catalog
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from leanops.contracts.model import Contract
from leanops.curated.errors import open_errors
from leanops.ledger.account import Finding, Findings
from leanops.names import SOURCE, Layer, spark_table
from leanops.slices import Slice
from leanops.standardized.table import key_plan
from leanops.standardized.transform import RECORD_KEY, VERSION, map_envelope, read_payloads

REFUSED = {Layer.STANDARDIZED: "parse_errors", Layer.CURATED: "open_errors"}


@dataclass
class Tally:
    """What was found out about the rows of each day."""

    came_in: Counter[date] = field(default_factory=Counter)
    kept: Counter[date] = field(default_factory=Counter)
    refused: Counter[date] = field(default_factory=Counter)
    duplicates: Counter[date] = field(default_factory=Counter)
    superseded: Counter[date] = field(default_factory=Counter)
    findings: defaultdict[date, Findings] = field(default_factory=lambda: defaultdict(Findings))
    shared: defaultdict[date, Findings] = field(default_factory=lambda: defaultdict(Findings))

    def add(self, day: date, rows: int, came_in: int, kept: int, refused: int) -> None:
        """So many rows of a day stand in so many places."""
        self.came_in[day] += rows * came_in
        self.kept[day] += rows * kept
        self.refused[day] += rows * refused

    def add_shared(self, row: Row | Mapping[str, Any]) -> None:
        """A row whose record has another one."""
        problem = f"its record {row['idempotency_key']} has another row"
        found = Findings(1, [Finding(row["landing_seq"], row["message_id"], problem)])
        self.shared[row["day"]] = self.shared[row["day"]].and_also(found)


@dataclass(frozen=True)
class Book:
    """The tables of one layer and the one before, and the part of them that is looked at."""

    sessions: Callable[[], SparkSession]
    catalog: Catalog
    topic: str
    contract: Contract
    layer: Layer
    part: Slice
    upto: int
    read: str
    """The snapshot of the layer before that the layer stands for."""
    is_in_doubt: bool
    """Whether a build was interrupted, which may have left errors of rows that it has not published."""

    @property
    def spark(self) -> SparkSession:
        return self.sessions()

    def came_in(self) -> DataFrame:
        if self.layer is Layer.STANDARDIZED:
            return self.table(Layer.RAW).where(self.part.condition)
        at = self.spark.read.option("versionAsOf", self.read)
        return at.table(spark_table(Layer.STANDARDIZED, self.topic)).where(self.part.condition)

    def kept(self) -> DataFrame:
        """What stands in the layer, whatever number it claims to have."""
        return self._whatever_number(self.table(self.layer))

    def refused(self) -> DataFrame:
        """What stands among the layer's errors, whatever number it claims to have."""
        if self.layer is Layer.CURATED:
            errors = open_errors(self.spark, self.topic)
        else:
            errors = self.table(Layer.PARSE_ERRORS).where(F.col("topic_name") == self.topic)
        return errors.where(self.part.condition) if self.is_in_doubt else self._whatever_number(errors)

    def _whatever_number(self, rows: DataFrame) -> DataFrame:
        return rows if self.part.is_whole else rows.where(F.expr(self.part.open_end))

    def landed(self) -> DataFrame:
        """All messages that the layer stands for."""
        return self.table(Layer.RAW).where(F.col("landing_seq") <= self.upto)

    def read_keys(self, messages: DataFrame) -> DataFrame:
        """Messages with the keys of their records, which are in their payloads."""
        plan = key_plan(self.contract)
        read = messages.transform(read_payloads, plan).transform(map_envelope)
        return read.select("landing_seq", *VERSION, "error_kind", RECORD_KEY)

    def table(self, layer: Layer) -> DataFrame:
        return self.spark.read.table(spark_table(layer, self.topic))

    def problem(self, came_in: int, kept: int, refused: int) -> str:
        """What is wrong with a row that stands in so many places of each kind."""
        names = (SOURCE[self.layer], self.layer, REFUSED[self.layer])
        source, keeps, refuses = map(str, names)
        if not came_in:
            return f"in {keeps if kept else refuses}, and not in {source} on this day"
        if not kept + refused:
            others = ", no copy and not superseded" if self.layer is Layer.STANDARDIZED else ""
            return f"no fate: in {source}, and neither in {keeps} nor in {refuses}{others}"
        return f"{kept + refused} fates: {kept} x in {keeps}, {refused} x in {refuses}"
