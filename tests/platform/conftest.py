"""What tests of the platform may ask for."""

import pytest

from leanops_resources.dagster_resources import SparkConnectResource


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: SparkConnectResource) -> None:
        raise AssertionError("Spark was asked for")

    monkeypatch.setattr(SparkConnectResource, "_init_session", refuse)
