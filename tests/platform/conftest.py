"""What tests of the platform may ask for."""

from pathlib import Path

import pytest

from leanops_assets import sensors
from leanops_resources.dagster_resources import SparkConnectResource
from leanops_resources.spark import server


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: SparkConnectResource) -> None:
        raise AssertionError("Spark was asked for")

    monkeypatch.setattr(SparkConnectResource, "_init_session", refuse)


@pytest.fixture(autouse=True)
def woken(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The homes whose Spark servers were to be started ahead. None is: they share that of the suite."""
    homes: list[Path] = []
    for module in (sensors, server):
        monkeypatch.setattr(module, "wake", lambda settings: homes.append(settings.home))
    return homes
