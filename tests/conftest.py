"""What every test may ask for: a home of its own, the command line, and the one Spark server of the suite."""

import atexit
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis.configuration import set_hypothesis_home_dir

from leanops.home import Home
from leanops.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROJECT = Path(__file__).parents[1]
EXAMPLES = PROJECT / "examples"


MEMORY = Path("/dev/shm")
ROOM = 4 * 2**30

SPARK_HOME = "höme of Spark"
HOME_OF_ALL = pytest.StashKey[Home]()


def pytest_configure() -> None:
    """What Hypothesis notes for itself does not go to the folder the tests are run in, and goes when they are done.

    Homes stand in memory where there is room: a third of what a tick does outside of Spark is waiting for the disk.
    """
    notes = tempfile.mkdtemp(prefix="hypothesis-")
    atexit.register(shutil.rmtree, notes, ignore_errors=True)
    set_hypothesis_home_dir(notes)
    if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > ROOM:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Processes that share the tests share the Spark server too: whichever asks first starts it, in a home of all."""
    node.config.stash[HOME_OF_ALL] = home = Home(node.config._tmp_path_factory.getbasetemp() / SPARK_HOME)
    node.workerinput["spark_home"] = str(home.path)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """The server ends when the last of them is done, and before its home is removed."""
    from leanops_resources.spark.server import stop

    if home := session.config.stash.get(HOME_OF_ALL, None):
        stop(home)


@pytest.fixture(autouse=True)
def only_default_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test knows the settings it gives itself, and none of the person's who runs it."""
    for name in list(os.environ):
        if name.upper().startswith("LEANOPS_") or name.upper() in ("SPARK_REMOTE", "DAGSTER_HOME"):
            monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def migrations_read_once() -> Iterator[None]:
    """Dagster's hundred migrations stay as they are: not every instance and run has to read all of them again."""
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    read, known = ScriptDirectory.from_config, dict[str | None, ScriptDirectory]()

    def once(config: Config) -> ScriptDirectory:
        place = config.get_main_option("script_location")
        if place not in known:
            known[place] = read(config)
        return known[place]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ScriptDirectory, "from_config", once)
        yield


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, migrations_read_once: None) -> Home:
    """A new home that the test's own process uses, with the contracts of the project. Its name is an awkward one."""
    return use_home(monkeypatch, Home(tmp_path / "höme & co").prepare())


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
def spark_home(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """The home of the suite's one Spark server, which ends with the suite."""
    from leanops_resources.spark.server import stop

    given: str | None = getattr(request.config, "workerinput", {}).get("spark_home")
    home = Home(Path(given) if given else tmp_path_factory.mktemp("spark") / SPARK_HOME).prepare()
    server_url_of(home)
    yield home
    if not given:
        stop(home)


def server_url_of(home: Home) -> str:
    """Where a home's own Spark server is, whatever the environment says."""
    from leanops_resources.spark.server import server_url

    return server_url(Settings().model_copy(update={"home": home.path, "spark_remote": None}))


@pytest.fixture
def warm_home(home: Home, spark_home: Home, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A new home like any other, whose Spark is the suite's server."""
    return use_home(monkeypatch, home, spark_home)


def use_home(patch: pytest.MonkeyPatch, home: Home, spark_home: Home | None = None) -> Home:
    """This process uses a home, with the contracts of the project and, where it is given, the suite's server."""
    patch.setenv("LEANOPS_HOME", str(home.path))
    patch.setenv("LEANOPS_SCHEMAS", str(PROJECT / "schemas"))
    if spark_home:
        patch.setenv("SPARK_REMOTE", server_url_of(spark_home))
    return home


@pytest.fixture
def spark(warm_home: Home, spark_home: Home) -> Iterator["SparkSession"]:
    """A session on the suite's server."""
    with session_of(warm_home, spark_home) as session:
        yield session


@pytest.fixture(scope="module")
def shared_home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """One home for all tests of a file that keep apart by the names of their topics."""
    return Home(tmp_path_factory.mktemp("shared") / "höme & co").prepare()


@pytest.fixture(scope="module")
def shared_spark(shared_home: Home, spark_home: Home) -> Iterator["SparkSession"]:
    """One session for all of them: a new one costs each test seconds, most of them for Python beside Spark."""
    with session_of(shared_home, spark_home) as session:
        yield session


@contextmanager
def session_of(home: Home, spark_home: Home) -> Iterator["SparkSession"]:
    """A session on the suite's server, with a home's tables in it."""
    from leanops_resources.catalog import LocalCatalog
    from leanops_resources.spark.faults import let_go
    from leanops_resources.spark.session import attach

    catalog = LocalCatalog(home)
    catalog.load()
    settings = Settings().model_copy(update={"home": home.path, "spark_remote": server_url_of(spark_home)})
    session = attach(settings, catalog)
    yield session
    let_go(session)
