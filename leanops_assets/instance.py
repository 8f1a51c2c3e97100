"""The Dagster instance of a home: its storage and its settings, apart from every other home's."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg

from leanops.errors import disk_faults_named
from leanops.home import Home

PROJECT = Path(__file__).parents[1]


def prepare_dagster_home(home: Home) -> Path:
    """The home's `DAGSTER_HOME`, with the project's `dagster.yaml` in it."""
    home.prepare()
    # What JSON quotes, YAML reads.
    place = json.dumps(str(home.dagster))[1:-1]
    wanted, there = (
        (PROJECT / "dagster.yaml").read_text().replace("{DAGSTER_HOME}", place),
        home.dagster / "dagster.yaml",
    )
    if not there.exists() or there.read_text() != wanted:
        with disk_faults_named(home.path):
            draft = there.with_suffix(f".{os.getpid()}.draft")
            draft.write_text(wanted)
            draft.replace(there)
    return home.dagster


@contextmanager
def dagster_instance(home: Home) -> Iterator[dg.DagsterInstance]:
    """The instance, for as long as it is needed."""
    with dg.DagsterInstance.from_config(str(prepare_dagster_home(home))) as instance:
        yield instance
