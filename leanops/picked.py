"""Rows picked by their landing_seq: few are named one by one, which needs no join; many are joined with."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from leanops.checkpointed import checkpointed

MANY = "many"
_TOLD = 500
_BROADCAST = 1_000_000


def hinted(wanted: DataFrame, count: int) -> DataFrame:
    """What fits into the memory of every worker goes to the rows that it is joined with; else both are sorted."""
    return F.broadcast(wanted) if count <= _BROADCAST else wanted


@dataclass(frozen=True)
class Picked:
    """So many rows, by a list or by a frame of their numbers."""

    count: int
    few: Sequence[int] | None = None
    many: DataFrame | None = None

    @property
    def text(self) -> str:
        """The rows' numbers, for the summary of a commit: or that there are too many to stand in one."""
        if self.count > _TOLD or self.many is not None:
            return MANY if self.count else ""
        return ",".join(map(str, self.few or ()))

    @classmethod
    def told(cls, texts: Iterable[str], upto: int) -> "Picked | None":
        """The rows up to a number that such texts name together; None if any of them has too many to name."""
        if MANY in (texts := list(texts)):
            return None
        few = [int(seq) for text in texts for seq in text.split(",") if seq and int(seq) <= upto]
        return cls(len(few), few)

    def without(self, others: "Picked") -> "Picked":
        """These rows but those; both are few."""
        few = sorted({*(self.few or ())} - {*(others.few or ())})
        return Picked(len(few), few)

    def among(self, rows: DataFrame) -> DataFrame:
        """The rows that are picked."""
        if self.many is not None:
            return rows.join(hinted(self.many, self.count), "landing_seq", "left_semi")
        return rows.where(F.col("landing_seq").isin(list(self.few or ())))

    def left_out_of(self, rows: DataFrame) -> DataFrame:
        """The rows that are not."""
        if self.many is not None:
            return rows.join(hinted(self.many, self.count), "landing_seq", "left_anti")
        return rows.where(~F.col("landing_seq").isin(list(self.few))) if self.few else rows


@dataclass(frozen=True)
class Sorted:
    """Rows by what was decided about them."""

    counts: Mapping[str, int]
    _few: Mapping[str, Sequence[int]] | None
    _many: DataFrame | None

    @classmethod
    def few(cls, decided: DataFrame, by: str) -> "Sorted":
        """The decisions about a small number of rows, at once."""
        seqs: dict[str, list[int]] = {}
        for row in decided.collect():
            seqs.setdefault(row[by], []).append(row["landing_seq"])
        return cls(Counter({key: len(found) for key, found in seqs.items()}), seqs, None)

    @classmethod
    def many(cls, decided: DataFrame, by: str) -> "Sorted":
        """The decisions about any number of rows, kept where they were made."""
        kept = checkpointed(decided.withColumnRenamed(by, "decision"))
        counts = Counter({row["decision"]: row["count"] for row in kept.groupBy("decision").count().collect()})
        return cls(counts, None, kept)

    def picked(self, *decisions: str) -> Picked:
        """The rows of these decisions."""
        count = sum(self.counts[each] for each in decisions)
        if self._many is not None:
            return Picked(count, many=self._many.where(F.col("decision").isin(*decisions)).select("landing_seq"))
        return Picked(count, few=[seq for each in decisions for seq in (self._few or {}).get(each, ())])
