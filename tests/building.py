"""Builds of one topic, for tests that look at one, and of many at once, which take hardly longer."""

from collections.abc import Collection, Sequence
from datetime import date

from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession

from leanops.batch.isolation import Jobs
from leanops.batch.topics import TopicBuild, TopicTables, built_or_raised
from leanops.contracts.model import Contract
from leanops.curated.build import build_curated
from leanops.curated.built import CuratedBuild
from leanops.standardized.build import build_standardized
from leanops.standardized.built import StandardizedBuild


def standardize(
    spark: SparkSession, catalog: Catalog, topic: str, contract: Contract, rebuild: Collection[date] = ()
) -> StandardizedBuild:
    builds = [TopicBuild(TopicTables(catalog, topic), contract, rebuild)]
    return built_or_raised(build_standardized(Jobs(lambda: spark), catalog, builds)[topic])


def curate(
    spark: SparkSession, catalog: Catalog, topic: str, contract: Contract, rebuild: Collection[date] = ()
) -> CuratedBuild:
    builds = [TopicBuild(TopicTables(catalog, topic), contract, rebuild)]
    return built_or_raised(build_curated(Jobs(lambda: spark), catalog, builds)[topic])


def build_topics(spark: SparkSession, catalog: Catalog, topics: Sequence[TopicBuild]) -> None:
    """Both layers of several topics, as a batch."""
    for failure in failures_of_builds(spark, catalog, topics).values():
        raise failure


def failures_of_builds(spark: SparkSession, catalog: Catalog, topics: Sequence[TopicBuild]) -> dict[str, Exception]:
    """Build both layers of several topics, as a batch; why some could not be."""
    jobs = Jobs(lambda: spark)
    standardized = build_standardized(jobs, catalog, topics)
    curated = build_curated(
        jobs, catalog, [each for each in topics if not isinstance(standardized[each.topic], Exception)]
    )
    outcomes = [*standardized.items(), *curated.items()]
    return {topic: outcome for topic, outcome in outcomes if isinstance(outcome, Exception)}
