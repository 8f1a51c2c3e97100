"""A contract may say how late a copy of a message may be; without it no copy is too late."""

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession

from leanops.batch.topics import TopicBuild, TopicTables
from leanops.contracts.manifest import Topic
from leanops.contracts.model import Contract, Thresholds
from leanops.home import Home
from leanops.ledger.trace import trace
from leanops.names import Layer, table
from leanops.standardized.planned import PlannedStandardized
from leanops.standardized.transform import COPY
from leanops_resources.catalog import LocalCatalog
from tests.accounting import all_accounts_of
from tests.building import build_topics
from tests.records import CONTRACT, Records, message

DAY = 86_400
DAYS_LANDED = (1, 2, 9, 10)
"""When the copies of one message land: the third is a week after the second."""


def within(days: int | None) -> Contract:
    return CONTRACT.model_copy(update={"thresholds": Thresholds(duplicates_within_days=days)})


@pytest.fixture
def topic(home: Home, spark: SparkSession) -> Callable[[str], Records]:
    return lambda name: Records(name, home, LocalCatalog(home).load(), spark)


def landed_in_turn(records: Records, contract: Contract) -> list[PlannedStandardized]:
    """The copies land one after the other, each followed by a build; what each build had planned."""
    plans = []
    for day in DAYS_LANDED:
        records.land([{**message("m", 1, key="k", amount=day), "ingestion_ts": day * DAY}])
        planned = PlannedStandardized.of(TopicBuild(TopicTables(records.catalog, records.name), contract))
        assert isinstance(planned, PlannedStandardized)
        plans.append(planned)
        builds = [TopicBuild(TopicTables(records.catalog, records.name), contract)]
        build_topics(records.spark, records.catalog, builds)
    return plans


def row_of(records: Records) -> dict[str, Any]:
    [row] = records.catalog.load_table(table(Layer.CURATED, records.name)).scan().to_arrow().to_pylist()
    return row


def fates_of(records: Records, contract: Contract) -> dict[str, int]:
    [account] = [
        each
        for each in all_accounts_of(records.spark, records.catalog, records.name, contract)
        if each.layer is Layer.STANDARDIZED
    ]
    assert account.is_clean
    return account.fates


def story_of(records: Records, contract: Contract) -> str:
    told = trace(records.spark, records.catalog, [Topic(name=records.name, contract=contract)], "m")
    return "\n".join(event.what for event in told)


@pytest.mark.parametrize("way", ["small", "large"])
def test_a_copy_that_lands_after_the_horizon_is_a_message_of_its_own(
    topic: Callable[[str], Records], way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "large":
        monkeypatch.setattr("leanops.batch.topics.LARGE_BYTES", -1)
    records, contract = topic("orders"), within(3)
    landed_in_turn(records, contract)
    assert row_of(records)["amount"] == 9
    fates = fates_of(records, contract)
    assert (fates["standardized"], fates["duplicates"], fates["superseded"]) == (1, 2, 1)
    story = story_of(records, contract)
    assert "number 2 is a duplicate of number 1" in story
    assert "number 3 landed more than 3 days after the copy before it, and is a message of its own" in story
    assert "number 4 is a duplicate of number 3" in story
    assert "HAS NO FATE" not in story


def test_without_a_horizon_no_copy_is_too_late(topic: Callable[[str], Records]) -> None:
    records = topic("orders")
    landed_in_turn(records, within(None))
    assert row_of(records)["amount"] == 1
    fates = fates_of(records, within(None))
    assert (fates["standardized"], fates["duplicates"], fates["superseded"]) == (1, 3, 0)


def test_files_whose_rows_have_all_landed_before_the_horizon_are_not_looked_into(
    topic: Callable[[str], Records],
) -> None:
    def files_of_copies(planned: PlannedStandardized) -> int:
        return sum(len(scan.files) for scan in planned.standing if scan.role == COPY)

    plans = {days: landed_in_turn(topic(f"within_{days}"), within(days)) for days in (None, 3)}
    assert [files_of_copies(each) for each in plans[None]] == [0, 1, 2, 3]
    assert [files_of_copies(each) for each in plans[3]] == [0, 1, 0, 1]


def test_a_copy_is_found_by_its_own_moment_and_not_by_that_of_others_that_land_with_it(
    topic: Callable[[str], Records],
) -> None:
    records, contract = topic("orders"), within(3)
    copy, other = {**message("m", 1, key="k", amount=1), "ingestion_ts": 0}, message("n", 2, key="n", amount=2)
    for messages in ([copy], [copy, {**other, "ingestion_ts": 100 * DAY}]):
        records.land(messages)
        builds = [TopicBuild(TopicTables(records.catalog, records.name), contract)]
        build_topics(records.spark, records.catalog, builds)
    accounts = all_accounts_of(records.spark, records.catalog, records.name, contract)
    assert all(each.is_clean for each in accounts)
    assert sum(each.fates["duplicates"] for each in accounts if each.layer is Layer.STANDARDIZED) == 1


def test_a_contract_that_changes_the_horizon_has_the_topic_read_again(topic: Callable[[str], Records]) -> None:
    records = topic("orders")
    landed_in_turn(records, within(None))
    build_topics(records.spark, records.catalog, [TopicBuild(TopicTables(records.catalog, records.name), within(3))])
    assert row_of(records)["amount"] == 9
    fates = fates_of(records, within(3))
    assert (fates["duplicates"], fates["superseded"]) == (2, 1)
