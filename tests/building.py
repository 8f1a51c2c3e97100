"""Builds of one topic, for tests that look at one: a batch of its own."""

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
    jobs = Jobs(lambda: spark)
    for outcome in build_standardized(jobs, catalog, topics).values():
        built_or_raised(outcome)
    for outcome in build_curated(jobs, catalog, topics).values():
        built_or_raised(outcome)
