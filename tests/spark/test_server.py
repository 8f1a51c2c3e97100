import os
import shutil
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import grpc
import psutil
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.connect.client.reattach import ExecutePlanResponseReattachableIterator
from pyspark.sql.connect.proto.base_pb2 import ConfigRequest
from pyspark.sql.connect.proto.base_pb2_grpc import SparkConnectServiceStub

from leanops.errors import SparkUnavailable
from leanops.home import Home
from leanops.settings import Settings
from leanops_cli.warm import warm_session
from leanops_resources.catalog import LocalCatalog
from leanops_resources.spark.faults import let_go
from leanops_resources.spark.server import Server, running, server_url, stop
from leanops_resources.spark.session import attach

DEAD_SERVER_SECONDS = 60
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
ASK = "from leanops.settings import Settings; from leanops_resources.spark.server import server_url as ask; "


@pytest.fixture(autouse=True)
def java_that_starts_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The servers here live for seconds: to compile well would cost more than it brings."""
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")


def ask_in_a_process_of_its_own(home: Home, first: str = "") -> str:
    code = f"{first}{ASK}print(ask(Settings.load()))"
    environment = {**os.environ, "LEANOPS_HOME": str(home.path)}
    asked = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return asked.stdout.strip()


def recorded(home: Home) -> Server:
    server = Server.recorded(home)
    assert server is not None
    return server


def test_the_life_of_a_server(tmp_path: Path) -> None:
    home = Home(tmp_path / "home").prepare()

    # Ten processes that ask at the same moment get the same server.
    with ThreadPoolExecutor(10) as pool:
        urls = set(pool.map(ask_in_a_process_of_its_own, [home] * 10))
    assert len(urls) == 1
    first = recorded(home)
    assert first.is_up()

    # It listens on the loopback only.
    listening = [each.laddr.ip for each in psutil.Process(first.spark.pid).net_connections() if each.status == "LISTEN"]
    assert listening
    assert {ip.removeprefix("::ffff:") for ip in listening} == {"127.0.0.1"}

    # Its token is its owner's alone, is not on any command line, and nobody is served without it.
    assert stat.S_IMODE((home.spark / "server.json").stat().st_mode) == 0o600
    assert first.token not in " ".join(psutil.Process(first.spark.pid).cmdline())
    for metadata in ([], [("authorization", "Bearer guessed")]):
        with grpc.insecure_channel(f"localhost:{first.port}") as channel, pytest.raises(grpc.RpcError) as refused:
            SparkConnectServiceStub(channel).Config(ConfigRequest(session_id=str(uuid4())), metadata=metadata)
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED

    # One that was killed, its keeper with it, is replaced by whoever asks next.
    for process in (first.keeper, first.spark):
        psutil.Process(process.pid).kill()
    psutil.wait_procs([psutil.Process(pid) for pid in (first.spark.pid,) if psutil.pid_exists(pid)], timeout=10)
    assert running(home) is None
    ask_in_a_process_of_its_own(home, first=DEAF)
    second = recorded(home)
    assert second.is_up()
    assert second.spark != first.spark

    # Removing the home is a full reset: the server notices and ends, also if it was started by one who ignores signals.
    processes = [psutil.Process(process.pid) for process in (second.keeper, second.spark)]
    shutil.rmtree(home.path)
    _, left = psutil.wait_procs(processes, timeout=30)
    assert not left


@pytest.mark.long
def test_a_server_whose_keeper_is_killed_goes_with_it_and_whoever_waits_for_it_is_told_soon(tmp_path: Path) -> None:
    home = Home(tmp_path / "home").prepare()
    settings = Settings(home=home.path)
    server_url(settings)
    server = recorded(home)
    spark, keeper = (psutil.Process(process.pid) for process in (server.spark, server.keeper))

    def ask_while_it_is_killed() -> None:
        with warm_session(settings) as (_, session):
            threading.Timer(1, keeper.kill).start()
            session.sql("SELECT reflect('java.lang.Thread', 'sleep', 600000L)").collect()

    begun = time.monotonic()
    with pytest.raises(SparkUnavailable, match="The Spark server went away during this command: ") as failure:
        ask_while_it_is_killed()
    assert time.monotonic() - begun < DEAD_SERVER_SECONDS
    assert len(str(failure.value).splitlines()) == 1
    _, left = psutil.wait_procs([spark], timeout=10)
    assert not left
    assert running(home) is None
    assert not stop(home)


def test_nobody_waits_long_for_a_server_that_is_not_there(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = Settings(home=tmp_path / "home").model_copy(update={"spark_remote": f"sc://localhost:{port}/;token=x"})
    begun = time.monotonic()
    with pytest.raises(SparkUnavailable, match=f"No session could be opened on sc://localhost:{port}/: ") as failure:
        attach(settings, LocalCatalog(Home(settings.home).prepare()))
    assert time.monotonic() - begun < DEAD_SERVER_SECONDS
    assert len(str(failure.value).splitlines()) == 1
    assert "token=x" not in str(failure.value)


def test_a_server_that_cannot_reach_its_catalog_is_replaced_by_whoever_finds_out(tmp_path: Path) -> None:
    """As one that came up while the disk was full: SQLite's library could not be unpacked, and is not tried again."""
    home = Home(tmp_path / "home").prepare()
    settings = Settings(home=home.path)
    catalog = LocalCatalog(home)
    catalog.load()

    def ask() -> list[str]:
        with warm_session(settings) as (_, session):
            return [row.namespace for row in session.sql("SHOW NAMESPACES IN leanops").collect()]

    session = attach(settings, catalog)
    first = recorded(home)
    scratch, aside = home.spark / f"tmp-{first.keeper.pid}", home.spark / "aside"
    scratch.rename(aside)
    scratch.touch()
    with pytest.raises(PySparkException):
        session.sql("SHOW NAMESPACES IN leanops").collect()
    scratch.unlink()
    aside.rename(scratch)
    with pytest.raises(PySparkException, match=r"NativeDB\._open_utf8"):
        session.sql("SHOW NAMESPACES IN leanops").collect()
    session.stop()

    with pytest.raises(SparkUnavailable, match="The Spark server cannot reach its catalog: ") as failure:
        ask()
    assert len(str(failure.value).splitlines()) == 1
    assert running(home) is None
    assert "iceberg_raw_db" in ask()
    assert recorded(home).spark != first.spark
    assert stop(home)


@pytest.mark.long
def test_a_server_that_is_killed_when_it_has_just_come_up_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(tmp_path / "home").prepare()
    urls = []

    def killed_at_first(settings: Settings) -> str:
        urls.append(server_url(settings))
        if len(urls) == 1:
            psutil.Process(recorded(home).spark.pid).kill()
        return urls[-1]

    monkeypatch.setattr("leanops_resources.spark.session.server_url", killed_at_first)
    session = attach(Settings(home=home.path), LocalCatalog(home))
    assert [row.one for row in session.sql("SELECT 1 AS one").collect()] == [1]
    assert len(set(urls)) == 2
    session.stop()
    assert stop(home)


@pytest.mark.long
@pytest.mark.parametrize("killed", ["the server", "its keeper"])
def test_one_that_is_killed_in_its_first_seconds_leaves_nothing_behind_and_is_told_at_once(
    killed: str, tmp_path: Path
) -> None:
    home = Home(tmp_path / "home").prepare()
    starter = subprocess.Popen(
        [sys.executable, "-c", ASK + "ask(Settings.load())"],
        env={**os.environ, "LEANOPS_HOME": str(home.path)},
        stderr=subprocess.PIPE,
        text=True,
    )
    while not (found := servers_below(starter.pid)):
        assert starter.poll() is None
    keeper = found[0].parent()
    assert keeper
    (keeper if killed == "its keeper" else found[0]).kill()
    _, said = starter.communicate(timeout=DEAD_SERVER_SECONDS)
    assert "SparkUnavailable: The Spark server ended before it was up" in said
    _, left = psutil.wait_procs([keeper, *found], timeout=10)
    assert not left
    assert ask_in_a_process_of_its_own(home)
    assert stop(home)


def servers_below(pid: int) -> list[psutil.Process]:
    """The Spark servers that a process has started, not the JVM that puts their command line together."""
    found = []
    for process in psutil.Process(pid).children(recursive=True):
        with suppress(psutil.Error):
            line = " ".join(process.cmdline())
            if "SparkConnectPlugin" in line and "launcher.Main" not in line and process.name() == "java":
                found.append(process)
    return found


def test_a_start_that_was_cut_off_does_not_get_in_the_way_of_the_next(tmp_path: Path) -> None:
    home = Home(tmp_path / "home").prepare()
    environment = {**os.environ, "LEANOPS_HOME": str(home.path)}
    first = subprocess.Popen([sys.executable, "-c", ASK + "ask(Settings.load())"], env=environment)
    starter = psutil.Process(first.pid)
    while not (keepers := starter.children()):
        assert starter.is_running()
    starter.kill()
    first.wait()

    url = ask_in_a_process_of_its_own(home)
    server = recorded(home)
    assert f"localhost:{server.port}/;token={server.token}" in url
    _, left = psutil.wait_procs([each for each in keepers if each.pid != server.keeper.pid], timeout=60)
    assert not left
    assert recorded(home) == server
    assert server.is_up()
    assert stop(home)


def test_a_server_that_is_up_is_found_again(spark_home: Home) -> None:
    settings = Settings(home=spark_home.path)
    assert server_url(settings) == server_url(settings)


def test_a_session_that_is_collected_while_another_one_is_at_work_waits_for_nothing(
    warm_home: Home, spark_home: Home, spark: SparkSession
) -> None:
    """The collector comes by wherever it likes: here inside of the lock under which PySpark hands work to its pool."""
    ended = attach(Settings.load(), LocalCatalog(warm_home))
    ended.range(1).collect()
    let_go(ended)
    spark.range(1).collect()
    pool = ExecutePlanResponseReattachableIterator._release_thread_pool_instance
    assert pool
    collecting = threading.Thread(target=ended.__del__, daemon=True)
    with pool._shutdown_lock:
        collecting.start()
        collecting.join(timeout=10)
        assert not collecting.is_alive()
    assert spark.range(1).collect()


def daemon_of(session: SparkSession) -> int:
    """The process that the session's Python workers are forked from."""

    def parents(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"pid": pa.array([os.getppid()] * batch.num_rows, pa.int64())})

    return int(session.range(0, 1, 1, 1).mapInArrow(parents, "pid long").collect()[0]["pid"])


def test_sessions_share_one_python_daemon(warm_home: Home, spark: SparkSession) -> None:
    """One of its own would take each run a second to start."""
    other = attach(Settings.load(), LocalCatalog(warm_home))
    try:
        assert daemon_of(other) == daemon_of(spark)
    finally:
        let_go(other)


def test_an_existing_cluster_is_used_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_REMOTE", "sc://spark.example.com:15002")
    monkeypatch.setenv("LEANOPS_HOME", str(tmp_path / "home"))
    assert server_url(Settings.load()) == "sc://spark.example.com:15002"
    assert not (tmp_path / "home").exists()


def test_a_master_and_the_memory_reach_the_server() -> None:
    from leanops_resources.spark.keeper import server_command

    settings = Settings(spark_master="spark://cluster:7077", spark_driver_memory="3g")
    command = server_command(settings, Home(settings.home))
    assert "--master=spark://cluster:7077" in command
    assert "--driver-memory=3g" in command
    # Executors on other machines must reach the driver.
    assert not any("spark.driver.host" in each for each in command)


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({"spark_driver_memory": "900000g"}, "Lower LEANOPS_SPARK_DRIVER_MEMORY"),
        ({"spark_master": "nonsense"}, "ended before it was up"),
    ],
)
def test_a_server_that_cannot_start_says_why(tmp_path: Path, setting: dict[str, str], said: str) -> None:
    home = Home(tmp_path / "home").prepare()
    with pytest.raises(SparkUnavailable, match=said) as failure:
        server_url(Settings(home=home.path, **setting))
    assert failure.value.hint
    assert running(home) is None
