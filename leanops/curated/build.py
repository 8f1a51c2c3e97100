"""Build Curated and the contract errors of any number of topics from what Standardized has gained and lost."""

from collections.abc import Sequence

from pyiceberg.catalog import Catalog

from leanops.batch.isolation import Jobs
from leanops.batch.layer import build_layer
from leanops.batch.topics import Outcome, TopicBuild, each_topic
from leanops.curated.built import CuratedBuild
from leanops.curated.errors import restamp_open_errors
from leanops.curated.job import CuratedJob
from leanops.curated.planned import PlannedCurated
from leanops.curated.table import ensure_errors_table


def build_curated(jobs: Jobs, catalog: Catalog, topics: Sequence[TopicBuild]) -> dict[str, Outcome[CuratedBuild]]:
    """Make Curated what the spec says it is over all of Standardized. When nothing has changed, Spark is not asked.

    What Standardized has gained since the last build is taken in, and days that were rebuilt there, or are to be
    rebuilt here, are made anew. When the contract says something else, everything is.
    """
    ensure_errors_table(catalog)
    planned = each_topic(topics, PlannedCurated.of)
    todo = [found for found in planned.values() if isinstance(found, PlannedCurated)]
    if stale := {each.topic: each.build.contract.version for each in todo if not each.since.is_of_version}:
        restamp_open_errors(jobs.sessions(), stale)
    return build_layer(CuratedJob, PlannedCurated, jobs, catalog, planned)
