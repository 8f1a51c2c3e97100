"""Build Standardized and the parse errors of any number of topics from what RAW has gained."""

from collections.abc import Mapping, Sequence

from pyiceberg.catalog import Catalog

from leanops.batch.isolation import Jobs
from leanops.batch.topics import Outcome, TopicBuild, each_topic, in_batches, is_large
from leanops.errors import RowsForeign
from leanops.standardized.built import StandardizedBuild
from leanops.standardized.own_job import OwnJob
from leanops.standardized.planned import Planned
from leanops.standardized.shared_job import SharedJob
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
    done = _build(jobs, catalog, each_topic(topics, Planned.of))
    foreign = [each for each in topics if isinstance(done[each.topic], RowsForeign)]
    return done | _build(jobs, catalog, each_topic(foreign, lambda each: Planned.of(each, is_whole=True)))


def _build(
    jobs: Jobs, catalog: Catalog, planned: Mapping[str, Outcome[Planned | StandardizedBuild]]
) -> dict[str, Outcome[StandardizedBuild]]:
    """What is large has a job of its own, what is small shares one."""
    done: dict[str, Outcome[StandardizedBuild]] = {
        topic: found for topic, found in planned.items() if not isinstance(found, Planned)
    }
    for batch in in_batches(found for found in planned.values() if isinstance(found, Planned)):
        if is_large(batch[0]):
            done |= each_topic(batch, lambda each: jobs.alone(each.topic, OwnJob(jobs.sessions(), catalog, each).build))
        else:
            done |= SharedJob(jobs, catalog, {each.topic: each for each in batch}).build()
    return done
