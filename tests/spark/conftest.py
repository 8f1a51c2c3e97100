"""Topics that tests choose, each built as a small one and as a large one."""

from itertools import count

import pytest
from pyspark.sql import SparkSession

from leanops.home import Home
from leanops_resources.catalog import LocalCatalog
from tests.chosen_topic import ChosenTopic
from tests.large import have_own_jobs

_numbers = count()


@pytest.fixture(params=["small", pytest.param("large", marks=pytest.mark.long)])
def chosen(
    request: pytest.FixtureRequest, shared_home: Home, shared_spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> ChosenTopic:
    """A new topic in the home that the tests of a file share."""
    if request.param == "large":
        have_own_jobs(monkeypatch)
    return ChosenTopic(shared_home, LocalCatalog(shared_home).load(), shared_spark, f"chosen_{next(_numbers)}")
