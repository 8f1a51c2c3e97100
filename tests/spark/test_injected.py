"""What was injected, drained and built in several ticks is what the tables hold."""

from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import SparkSession

from leanops.batch.topics import TopicBuild, TopicTables
from leanops.contracts.reading import read_contract
from leanops.home import Home
from leanops.injector.comparison import compare
from leanops.injector.feeding import FolderFeed, feed_at_once
from leanops.injector.injection import Carrier, Injection, checked
from leanops.injector.reading import read_scenario
from tests.building import build_topics
from tests.conftest import PROJECT
from tests.draining import FIRST_DAY, Landing

TOPICS = ("events", "orders")
TICKS = 3


def test_the_tables_hold_what_was_injected_however_it_was_cut(
    warm_home: Home, spark: SparkSession, tmp_path: Path
) -> None:
    path = PROJECT / "scenarios" / "dirty.json"
    scenario = read_scenario(path.read_bytes(), str(path)).model_copy(update={"seconds": 2.0, "late_by_days": 1})
    contracts = {
        topic: read_contract((PROJECT / "schemas" / topic / "active" / "schema.json").read_bytes(), topic, topic)
        for topic in TOPICS
    }
    injection = checked(
        Injection(
            name="dirty",
            scenario=scenario,
            contracts={topic.name: contracts.get(topic.name) for topic in scenario.topics},
            today=datetime.now(UTC).date(),
            carrier=Carrier.FOLDER,
            topics=TOPICS,
            days=(1, 2, 3),
        ),
        FIRST_DAY,
    )
    expected = [fed.expectation for fed in feed_at_once(injection, (), FolderFeed(tmp_path / "made", "0001-dirty"))]
    assert all(each.dead_letters and each.parse_errors and each.open_errors and each.superseded for each in expected)

    landing = Landing(warm_home)
    for tick in range(TICKS):
        for topic in TOPICS:
            files = sorted((tmp_path / "made" / topic).iterdir())
            for file in files[tick * len(files) // TICKS : (tick + 1) * len(files) // TICKS]:
                landing.drop(topic, file.read_bytes().splitlines(), file.name)
        landing.drain()
        builds = [TopicBuild(TopicTables(landing.catalog, topic), contracts[topic]) for topic in TOPICS]
        build_topics(spark, landing.catalog, builds)
        said = [str(problem) for problem in compare(expected, landing.catalog)]
        assert said if tick < TICKS - 1 else said == []
