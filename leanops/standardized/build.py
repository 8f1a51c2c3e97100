"""Build Standardized and the parse errors of any number of topics from what RAW has gained."""

from collections.abc import Sequence

from pyiceberg.catalog import Catalog

from leanops.batch.isolation import Jobs
from leanops.batch.layer import build_layer
from leanops.batch.topics import Outcome, TopicBuild, each_topic
from leanops.errors import RowsForeign
from leanops.standardized.built import StandardizedBuild
from leanops.standardized.job import StandardizedJob
from leanops.standardized.planned import PlannedStandardized
from leanops.standardized.table import ensure_parse_errors_table


def build_standardized(
    jobs: Jobs, catalog: Catalog, topics: Sequence[TopicBuild]
) -> dict[str, Outcome[StandardizedBuild]]:
    """Make Standardized what the spec says it is over all of RAW. When nothing has changed, Spark is not asked.

    What landed since the last build is taken in, of whatever day it is, and the days to `rebuild` are made anew from
    all that RAW holds of them. When the contract maps fields otherwise, or the table was built by other rules,
    everything is; and when days that are to be rebuilt turn out to hold rows that RAW does not have so.
    """
    ensure_parse_errors_table(catalog)
    done = build_layer(StandardizedJob, PlannedStandardized, jobs, catalog, each_topic(topics, PlannedStandardized.of))
    foreign = [each for each in topics if isinstance(done[each.topic], RowsForeign)]
    whole = each_topic(foreign, lambda each: PlannedStandardized.of(each, is_whole=True))
    return done | build_layer(StandardizedJob, PlannedStandardized, jobs, catalog, whole)
