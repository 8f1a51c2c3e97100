"""What every test may ask for: a home of its own, the command line, and the one Spark server of the suite."""

import atexit
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis.configuration import set_hypothesis_home_dir

from leanops.home import Home
from leanops.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROJECT = Path(__file__).parents[1]
EXAMPLES = PROJECT / "examples"


def pytest_configure() -> None:
    """What Hypothesis notes for itself does not go to the folder the tests are run in, and goes when they are done."""
    notes = tempfile.mkdtemp(prefix="hypothesis-")
    atexit.register(shutil.rmtree, notes, ignore_errors=True)
    set_hypothesis_home_dir(notes)


@pytest.fixture(autouse=True)
def only_default_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test knows the settings it gives itself, and none of the person's who runs it."""
    for name in list(os.environ):
        if name.upper().startswith("LEANOPS_") or name.upper() in ("SPARK_REMOTE", "DAGSTER_HOME"):
            monkeypatch.delenv(name)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A new home that the test's own process uses, with the contracts of the project. Its name is an awkward one."""
    path = tmp_path / "höme & co"
    monkeypatch.setenv("LEANOPS_HOME", str(path))
    monkeypatch.setenv("LEANOPS_SCHEMAS", str(PROJECT / "schemas"))
    return Home(path).prepare()


@dataclass(frozen=True)
class Said:
    """How a command ended, and what it said."""

    exit_code: int
    out: str
    err: str


@pytest.fixture
def leanops(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    """The command line, in this process: `leanops("land", "orders", file)`."""
    from leanops_cli.main import run

    def call(*arguments: object) -> Said:
        monkeypatch.setattr(sys, "argv", ["leanops", *map(str, arguments)])
        capsys.readouterr()
        try:
            run()
            code: object = 0
        except SystemExit as end:
            code = end.code
        said = capsys.readouterr()
        # Like the interpreter does: a text to exit with is printed, and is a failure.
        err = said.err + (f"{code}\n" if isinstance(code, str) else "")
        return Said(code if isinstance(code, int) else int(code is not None), said.out, err)

    return call


@pytest.fixture(scope="session")
def spark_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """The home of the suite's one Spark server, which ends with the suite."""
    from leanops_resources.spark.server import stop

    home = Home(tmp_path_factory.mktemp("spark") / "höme of Spark").prepare()
    server_url_of(home)
    yield home
    stop(home)


def server_url_of(home: Home) -> str:
    """Where a home's own Spark server is, whatever the environment says."""
    from leanops_resources.spark.server import server_url

    return server_url(Settings().model_copy(update={"home": home.path, "spark_remote": None}))


@pytest.fixture
def warm_home(home: Home, spark_home: Home, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A new home like any other, whose Spark is the suite's server."""
    monkeypatch.setenv("SPARK_REMOTE", server_url_of(spark_home))
    return home


@pytest.fixture
def spark(warm_home: Home) -> Iterator["SparkSession"]:
    """A session on the suite's server."""
    from leanops_resources.catalog import LocalCatalog
    from leanops_resources.spark.session import attach

    catalog = LocalCatalog(warm_home)
    catalog.load()
    session = attach(Settings.load(), catalog)
    yield session
    session.stop()
