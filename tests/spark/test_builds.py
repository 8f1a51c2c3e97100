"""Builds that are cut off, overtaken or repeated: the tables end up as if nothing had happened."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from leanops import commits
from leanops.commits import Draft
from leanops.contracts.manifest import Topic
from leanops.contracts.model import Contract
from leanops.curated import build as curated_build
from leanops.curated import few as curated_few
from leanops.curated import many as curated_many
from leanops.curated.build import build_curated
from leanops.data_files import DataFiles
from leanops.errors import BuildOvertaken
from leanops.home import Home
from leanops.ledger.draw_up import draw_up
from leanops.ledger.trace import trace
from leanops.names import Layer, spark_table, table
from leanops.observed import Observed
from leanops.pending import pending
from leanops.standardized import build as standardized_build
from leanops.standardized import built
from leanops.standardized import few as standardized_few
from leanops.standardized import many as standardized_many
from leanops.standardized.build import build_standardized
from leanops_resources.catalog import LocalCatalog
from tests.conftest import PROJECT, server_url_of
from tests.large import take_for_large
from tests.records import CONTRACT, FIRST, SECOND, THIRD, Records, message


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


def cut_off_after(monkeypatch: pytest.MonkeyPatch, place: Any, name: str) -> None:
    """From now on, whoever calls this function gets no further."""
    whole = getattr(place, name)

    def call(*arguments: Any, **options: Any) -> None:
        whole(*arguments, **options)
        raise Killed

    monkeypatch.setattr(place, name, call)


POINTS = [
    ("few", built, "log_drift", "standardize"),
    ("few", built, "add_columns", "standardize"),
    ("few", Draft, "begin", "standardize"),
    ("few", standardized_few, "replace_own", "standardize"),
    ("few", DataFiles, "commit", "standardize"),
    ("few", Draft, "begin", "curate"),
    ("few", curated_few, "replace_own", "curate"),
    ("few", DataFiles, "commit", "curate"),
    ("few of large tables", Draft, "begin", "standardize"),
    ("few of large tables", DataFiles, "commit", "standardize"),
    ("few of large tables", Draft, "publish", "standardize"),
    ("few of large tables", Draft, "delete_rows", "curate"),
    ("few of large tables", DataFiles, "commit", "curate"),
    ("few of large tables", Draft, "publish", "curate"),
    ("many", Draft, "begin", "standardize"),
    ("many", standardized_many, "replace_rows", "standardize"),
    ("many", Draft, "delete_rows", "standardize"),
    ("many", Draft, "append", "standardize"),
    ("many", Draft, "publish", "standardize"),
    ("many", Draft, "delete_rows", "curate"),
    ("many", Draft, "append", "curate"),
    ("many", curated_many, "close_errors", "curate"),
    ("many", Draft, "publish", "curate"),
]
SELDOM = {("many", "begin"), ("many", "delete_rows"), ("many", "close_errors")}
"""The points that only the long tests try: each costs three builds in Spark."""


@pytest.fixture
def built_as(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """From now on, these few messages are built as `few`, of small or large tables, or as `many` are."""

    def choose(way: str) -> None:
        for module in (standardized_build, curated_build):
            monkeypatch.setattr(module, "SMALL", 0 if way == "many" else 5_000)
        take_for_large(monkeypatch, way == "few of large tables")

    return choose


@pytest.mark.parametrize(
    ("way", "place", "name", "step"),
    [
        pytest.param(
            *point,
            id=f"{point[0]}, {point[3]}, {point[2]}",
            marks=[pytest.mark.long] if (point[0], point[2]) in SELDOM else [],
        )
        for point in POINTS
    ],
)
def test_a_build_that_is_cut_off_at_any_point_and_repeated_changes_nothing(
    way: str,
    place: Any,
    name: str,
    step: str,
    topic: Callable[[str], Records],
    built_as: Callable[[str], None],
    undisturbed: dict[Layer, list[dict[str, Any]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disturbed = topic(f"cut_{way}_{step}_{name}".lower().replace(" ", "_"))
    disturbed.land(FIRST)
    disturbed.build()
    disturbed.land(SECOND)
    if step == "curate":
        disturbed.standardize()
    built_as(way)
    with monkeypatch.context() as cut:
        cut_off_after(cut, place, name)
        with pytest.raises(Killed):
            getattr(disturbed, step)()
    disturbed.land(THIRD)
    disturbed.build()
    assert disturbed.tables() == undisturbed
    refs = [disturbed.catalog.load_table(table(layer, disturbed.name)).refs() for layer in ("standardized", "curated")]
    assert all(set(each) == {"main"} for each in refs)


@pytest.mark.parametrize(
    ("way", "publishing", "writing_errors"),
    [
        ("few", "replace", (curated_few, "replace_own")),
        ("few of large tables", "publish", (curated_few, "replace_own")),
        ("many", "publish", (curated_many, "merge_errors")),
    ],
)
def test_of_two_builds_at_once_without_a_lock_the_slower_changes_nothing(
    way: str,
    publishing: str,
    writing_errors: tuple[Any, str],
    topic: Callable[[str], Records],
    built_as: Callable[[str], None],
    undisturbed: dict[Layer, list[dict[str, Any]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disturbed = topic(f"race_of_{way}".replace(" ", "_"))
    built_as(way)
    disturbed.land(FIRST)
    disturbed.build()
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

    overtaken(Draft, publishing, disturbed.standardize, [])
    # The slower one writes that e1 is broken when the faster one has already seen it healed.
    overtaken(*writing_errors, disturbed.curate, THIRD)
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
        from leanops.standardized.build import build_standardized
        from leanops_resources.catalog import LocalCatalog
        from leanops_resources.spark.session import attach
        from leanops.home import Home
        from tests.spark.test_builds import CONTRACT
        settings = Settings.load()
        catalog = LocalCatalog(Home(settings.home))
        Draft.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        build_standardized(lambda: attach(settings, catalog), catalog.load(), "killed", CONTRACT)
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
    build_standardized(lambda: named.spark, named.catalog, named.name, contract)
    build_curated(lambda: named.spark, named.catalog, named.name, contract)
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
        assert all(
            account.is_clean for account in draw_up(lambda: named.spark, named.catalog, named.name, contract, layer)
        )
    story = trace(named.spark, named.catalog, [Topic(name=named.name, contract=contract)], "m1")
    assert "superseded by m2" in " ".join(event.what for event in story)


def test_what_spark_observed_too_late_is_counted_once_more(shared_spark: SparkSession) -> None:
    rows = shared_spark.range(10)
    never_used = Observed(rows, count=F.count("*"), last=F.max("id"))
    assert never_used.facts == {"count": 10, "last": 9}
    used = Observed(rows, count=F.count("*"), last=F.max("id"))
    used.rows.collect()
    assert used.facts == {"count": 10, "last": 9}
