"""Builds that are killed, overtaken or repeated: the tables end up as if nothing had happened."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.connect.merge import MergeIntoWriter
from pyspark.sql.connect.readwriter import DataFrameWriterV2
from pyspark.sql.connect.session import SparkSession as ConnectSession

from leanops import commits
from leanops.commits import Draft
from leanops.contracts.manifest import Topic
from leanops.contracts.model import Contract
from leanops.curated import job as curated_job
from leanops.errors import BuildOvertaken
from leanops.home import Home
from leanops.ledger.trace import trace
from leanops.names import Layer, spark_table, table
from leanops.observed import Observed
from leanops.pending import pending
from leanops_resources.catalog import LocalCatalog
from tests.accounting import accounts_of
from tests.building import curate, standardize
from tests.conftest import PROJECT, server_url_of
from tests.large import have_own_jobs
from tests.records import CONTRACT, FIRST, SECOND, THIRD, Records, build_all, message


@pytest.fixture(scope="module")
def topic(shared_home: Home, shared_spark: SparkSession) -> Callable[[str], Records]:
    catalog = LocalCatalog(shared_home).load()
    return lambda name: Records(name, shared_home, catalog, shared_spark)


@pytest.fixture(scope="module")
def undisturbed(topic: Callable[[str], Records]) -> dict[Layer, list[dict[str, Any]]]:
    """What becomes of all messages when nothing happens on the way."""
    calm = topic("calm")
    calm.land([*FIRST, *SECOND, *THIRD])
    calm.build()
    return calm.tables()


class Killed(BaseException):
    """What a process that is killed never gets to see."""


class Changes:
    """Every change that builds make to tables, by PyIceberg or by Spark; after so many of them they get no further."""

    def __init__(self, patch: pytest.MonkeyPatch, last: int | None = None) -> None:
        self.made = 0
        self._last = last
        self._one_by_one = threading.Lock()
        for place, name in (
            (SqlCatalog, "create_table"),
            (SqlCatalog, "commit_table"),
            (DataFrameWriterV2, "append"),
            (DataFrameWriterV2, "overwrite"),
            (MergeIntoWriter, "merge"),
            (ConnectSession, "sql"),
        ):
            patch.setattr(place, name, self._counted(getattr(place, name), is_sql=name == "sql"))

    def _counted(self, change: Callable[..., Any], is_sql: bool) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            if is_sql and not arguments[1].startswith(("DELETE", "UPDATE")):
                return change(*arguments, **options)
            with self._one_by_one:
                if self.made == self._last:
                    raise Killed
                result = change(*arguments, **options)
                self.made += 1
            return result

        return call


WAYS = ("shared job", "own jobs")


@contextmanager
def built_as(way: str) -> Iterator[pytest.MonkeyPatch]:
    """While it lasts, topics are built in this way, however small they are."""
    with pytest.MonkeyPatch.context() as patch:
        have_own_jobs(patch, way == "own jobs")
        yield patch


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("way", "landed", "every"),
    [
        ("shared job", FIRST, 1),
        ("shared job", [], 2),
        ("own jobs", FIRST, 4),
        pytest.param("shared job", [], 1, marks=pytest.mark.long),
        pytest.param("own jobs", FIRST, 1, marks=pytest.mark.long),
        pytest.param("own jobs", [], 1, marks=pytest.mark.long),
    ],
)
def test_a_batch_that_is_killed_between_any_two_of_its_changes_and_repeated_changes_nothing(
    way: str,
    landed: list[dict[str, object]],
    every: int,
    topic: Callable[[str], Records],
    undisturbed: dict[Layer, list[dict[str, Any]]],
) -> None:
    """Of tables that hold what had `landed` before, and of tables that the batch has to make."""
    more = [each for each in (*FIRST, *SECOND) if each not in landed]

    def batch(number: int) -> list[Records]:
        name = f"killed_{way}_{len(landed)}_{every}_{number}".replace(" ", "_")
        return [topic(f"{name}_{each}") for each in "ab"]

    def land(batches: Sequence[Sequence[Records]], messages: Sequence[dict[str, object]]) -> None:
        for each in (each for batch in batches for each in batch):
            each.land(messages)

    first = batch(0)
    if landed:
        land([first], landed)
        build_all(first)
    land([first], more)
    with built_as(way) as patch:
        changes = Changes(patch)
        build_all(first)
    batches = {last: batch(last) for last in range(1, changes.made, every)}
    assert len(batches) >= 3
    if landed:
        land([*batches.values()], landed)
        build_all([each for batch in batches.values() for each in batch])
    land([*batches.values()], more)
    for last, killed in batches.items():
        with built_as(way) as patch:
            Changes(patch, last)
            with pytest.raises(Killed):
                build_all(killed)
    land([first, *batches.values()], THIRD)
    everything = [*first, *(each for batch in batches.values() for each in batch)]
    with built_as(way):
        build_all(everything)
    for each in everything:
        assert each.tables() == undisturbed, each.name
        refs = [each.catalog.load_table(table(layer, each.name)).refs() for layer in ("standardized", "curated")]
        assert all(set(names) == {"main"} for names in refs), each.name


@pytest.mark.parametrize("way", WAYS)
def test_of_two_builds_at_once_without_a_lock_the_slower_changes_nothing(
    way: str,
    topic: Callable[[str], Records],
    undisturbed: dict[Layer, list[dict[str, Any]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disturbed = topic(f"race_of_{way}".replace(" ", "_"))
    disturbed.land(FIRST)
    disturbed.build()
    have_own_jobs(monkeypatch, way == "own jobs")
    disturbed.land(SECOND)

    def overtaken(place: Any, name: str, step: Callable[[], None], more: Sequence[dict[str, object]]) -> None:
        """Run a step; when it is about to call this function, let another run be faster, which may see more."""
        whole = getattr(place, name)

        def wait_for_the_other(*arguments: Any) -> Any:
            monkeypatch.setattr(place, name, whole)
            if more:
                disturbed.land(more)
                disturbed.standardize()
            step()
            return whole(*arguments)

        monkeypatch.setattr(place, name, wait_for_the_other)
        with pytest.raises(BuildOvertaken, match="has changed nothing"):
            step()

    overtaken(Draft, "publish", disturbed.standardize, [])
    # The slower one writes that e1 is broken when the faster one has already seen it healed.
    overtaken(curated_job, "write_errors", disturbed.curate, THIRD)
    # What the slower one has left beside the tables, if anything, is known to be in doubt.
    assert disturbed.tables() == undisturbed or pending(disturbed.catalog, disturbed.name, CONTRACT) is not None
    disturbed.build()
    assert disturbed.tables() == undisturbed
    assert pending(disturbed.catalog, disturbed.name, CONTRACT) is None


def test_a_process_that_is_killed_before_it_publishes_leaves_nothing_that_readers_see(
    topic: Callable[[str], Records], undisturbed: dict[Layer, list[dict[str, Any]]], spark_home: Home
) -> None:
    disturbed = topic("killed")
    disturbed.land(FIRST)
    disturbed.build()
    before = disturbed.tables()
    disturbed.land(SECOND)
    script = """if True:
        import os, signal
        from leanops.commits import Draft
        from leanops.settings import Settings
        from leanops_resources.catalog import LocalCatalog
        from leanops_resources.spark.session import attach
        from leanops.home import Home
        from tests.building import standardize
        from tests.records import CONTRACT
        settings = Settings.load()
        catalog = LocalCatalog(Home(settings.home))
        Draft.publish = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        standardize(attach(settings, catalog), catalog.load(), "killed", CONTRACT)
    """
    home = {"LEANOPS_HOME": str(disturbed.home.path), "SPARK_REMOTE": server_url_of(spark_home)}
    killed = subprocess.run([sys.executable, "-c", script], cwd=PROJECT, env={**os.environ, **home}, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert disturbed.tables()[Layer.CURATED] == before[Layer.CURATED]
    assert len(disturbed.tables()[Layer.STANDARDIZED]) == len(before[Layer.STANDARDIZED])
    disturbed.land(THIRD)
    disturbed.build()
    assert disturbed.tables() == undisturbed


def test_a_compaction_hides_no_checkpoint(topic: Callable[[str], Records]) -> None:
    compacted = topic("compacted")
    for messages in (FIRST, SECOND):
        compacted.land(messages)
        compacted.build()
    before = compacted.tables()
    for layer in (Layer.RAW, Layer.STANDARDIZED, Layer.CURATED):
        name = spark_table(layer, "compacted").replace("`leanops`.", "").replace("`", "")
        compacted.spark.sql(
            f"CALL leanops.system.rewrite_data_files(table => '{name}', options => map('rewrite-all', 'true'))"
        )
    assert compacted.tables() == before
    tables = [compacted.catalog.load_table(table(layer, "compacted")) for layer in (Layer.STANDARDIZED, Layer.CURATED)]
    assert [commits.checkpoint_of(each)["upto"] for each in tables] == ["9", "9"]
    no_spark = Records("compacted", compacted.home, compacted.catalog, None)  # type: ignore[arg-type]
    no_spark.build()
    compacted.land(THIRD)
    compacted.build()
    assert {row["message_id"] for row in compacted.tables()[Layer.CURATED]} == {"a2", "b2", "e2"}


def test_fields_may_be_called_like_anything_that_the_platform_names_inside(topic: Callable[[str], Records]) -> None:
    """A field called `error_kind` once stopped the build of its topic."""
    inside = (
        *("error_kind", "error_reason", "error_position", "json_payload", "new_paths", "record_key", "read"),
        *("overflow", "c0", "is_refused", "fate", "is_broken", "broken_rules", "text_0", "value_0", "closed"),
        *("contract_version", "first_seen", "day", "topic", "layer", "rank", "decision", "is_new", "rows", "first"),
    )
    values = {name: f"{number}" for number, name in enumerate(inside)}
    columns = [{"name": name, "type": "INT"} for name in inside]
    envelope = [*CONTRACT.model_dump()["envelope_columns"], {"name": "text_1", "source": "meta.text"}]
    contract = Contract.model_validate(
        {**CONTRACT.model_dump(mode="json"), "envelope_columns": envelope, "payload_columns": columns}
    )
    named = topic("named")
    payload = {"key": "a", "meta": {"text": "t"}, **values}
    named.land([{**message("m1", 1), "payload": payload}])
    named.land([{**message("m2", 2), "payload": payload}, {**message("m3", 2), "payload": "{"}])
    named.land([{**message("m4", 3), "payload": {**payload, "key": "b", "is_broken": "x"}}])
    standardize(named.spark, named.catalog, named.name, contract)
    curate(named.spark, named.catalog, named.name, contract)
    tables = named.tables()
    standardized = {row["message_id"]: row for row in tables[Layer.STANDARDIZED]}
    assert {name: standardized["m2"][name] for name in inside} == values
    (row,) = tables[Layer.CURATED]
    assert {name: row[name] for name in inside} == {name: int(value) for name, value in values.items()}
    assert row["text_1"] == "t"
    assert [(row["message_id"], row["broken_rules"]) for row in tables[Layer.ERRORS]] == [
        ("m4", [{"column": "is_broken", "rule": "type", "value": "x"}])
    ]
    for layer in (Layer.STANDARDIZED, Layer.CURATED):
        assert all(account.is_clean for account in accounts_of(named.spark, named.catalog, named.name, contract, layer))
    story = trace(named.spark, named.catalog, [Topic(name=named.name, contract=contract)], "m1")
    assert "superseded by m2" in " ".join(event.what for event in story)


def test_what_spark_observed_too_late_is_counted_once_more(shared_spark: SparkSession) -> None:
    rows = shared_spark.range(10)
    never_used = Observed(rows, count=F.count("*"), last=F.max("id"))
    assert never_used.facts == {"count": 10, "last": 9}
    used = Observed(rows, count=F.count("*"), last=F.max("id"))
    used.rows.collect()
    assert used.facts == {"count": 10, "last": 9}
