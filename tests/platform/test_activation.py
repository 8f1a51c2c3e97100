"""Uploads of contracts: killed at any point and repeated, two at once, during a tick, and of every wrong kind."""

import json
import socket
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import dagster as dg
import psutil
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession
from sqlalchemy.exc import OperationalError

from leanops import rebuild
from leanops.contracts.reading import MAX_BYTES
from leanops.errors import BuildOvertaken, DiskFull, LeanOpsError, SparkUnavailable, TopicBusy
from leanops.home import Home
from leanops.ledger.draw_up import draw_up
from leanops.names import Layer, table
from leanops.ops.schema_versions import versions
from leanops.settings import Settings
from leanops_assets.contracts import activation
from leanops_assets.contracts.activation import Activated, Activation
from leanops_resources.catalog import LocalCatalog
from leanops_resources.schema_store import LocalSchemaStore, schema_store
from leanops_resources.spark.server import Server
from leanops_resources.state.lease import lease
from leanops_resources.state.sqlite import SqliteStateStore
from leanops_resources.state.store import Gate, GateStatus
from tests.platform.test_contract_life import READY, TOPIC, VERSION_1, Life, life, message, version
from tests.platform.test_tick import rows, tick

__all__ = ["life"]

VERSION_2 = version(2, items={"type": "BIGINT"}, colour={"type": "STRING"})
BREAKING = version(2, items={"type": "STRING"})
CHANGES = (
    (LocalSchemaStore, "write"),
    (LocalSchemaStore, "remove"),
    (SqliteStateStore, "set_gate"),
    (SqlCatalog, "commit_table"),
    (SqlCatalog, "create_table"),
)
"""Everything by which an activation changes anything."""


class Killed(BaseException):
    """The process ends here."""


def taker(sessions: Callable[[], SparkSession] | None = None) -> Activation:
    """What takes uploads in, with Spark only where it is given."""

    def no_spark() -> SparkSession:
        raise AssertionError("Spark was asked for")

    settings = Settings.load()
    home = Home(settings.home)
    state, catalog = SqliteStateStore(home.state), LocalCatalog(home)
    return Activation(settings, schema_store(settings.schemas), state, catalog, sessions or no_spark, print)


def take_all(taking: Activation) -> list[Activated | LeanOpsError | None]:
    """Take in whatever is pending; what was refused is told."""
    taken: list[Activated | LeanOpsError | None] = []
    for upload in taking.store.uploads():
        try:
            taken.append(taking.take_in(upload))
        except LeanOpsError as error:
            taken.append(error)
    return taken


def kill(armed: pytest.MonkeyPatch, number: int, when: str) -> None:
    """Die before or after the change of this number."""
    made = count(1)

    def dying(real: Callable[..., Any]) -> Callable[..., Any]:
        def change(*given: Any, **options: Any) -> Any:
            is_last = next(made) == number
            if is_last and when == "before":
                raise Killed
            done = real(*given, **options)
            if is_last:
                raise Killed
            return done

        return change

    for owner, name in CHANGES:
        armed.setattr(owner, name, dying(getattr(owner, name)))


def left_behind(life: Life) -> dict[str, Any]:
    """All that an activation leaves behind, but moments and ids."""
    files = {
        str(path.relative_to(life.schemas)): path.read_text().replace(str(life.schemas), "schemas")
        for path in life.schemas.rglob("*")
        if path.is_file()
    }
    logged = [{**row, "activated": None} for row in versions(life.catalog, TOPIC)]
    tables = {layer: life.catalog.load_table(table(layer, TOPIC)) for layer in (Layer.STANDARDIZED, Layer.CURATED)}
    columns = {
        layer: [(field.name, str(field.field_type)) for field in held.schema().fields] for layer, held in tables.items()
    }
    return {"files": files, "logged": logged, "columns": columns, "gate": life.gate}


def test_killed_at_any_point_and_repeated_it_ends_in_the_same_place(
    life: Life, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def activated(name: str, number: int = 0, when: str = "before") -> tuple[bool, dict[str, Any]]:
        """Whether it was killed, and what there is after it was done again."""
        one = Life(Home(tmp_path / f"home {name}").prepare(), tmp_path / f"schemas {name}", life.leanops)
        monkeypatch.setenv("LEANOPS_HOME", str(one.home.path))
        monkeypatch.setenv("LEANOPS_SCHEMAS", str(one.schemas))
        for contract in (VERSION_1, b"{"):
            one.upload(contract)
            take_all(taker())
        one.upload(VERSION_2)
        was_killed = False
        with monkeypatch.context() as armed:
            kill(armed, number, when)
            try:
                take_all(taker())
            except Killed:
                was_killed = True
        take_all(taker())
        return was_killed, left_behind(one)

    _, expected = activated("undisturbed")
    for number in count(1):
        killed = [activated(f"{number} {when}", number, when) for when in ("before", "after")]
        assert [found for _, found in killed] == [expected] * 2, f"killed at change {number}"
        if not any(was_killed for was_killed, _ in killed):
            break
    assert number > len(CHANGES)


def test_a_rebuild_that_is_cut_off_disturbs_no_reader_and_is_done_again(
    life: Life, monkeypatch: pytest.MonkeyPatch, spark: SparkSession
) -> None:
    """It is cut off before anything is published, between the two tables, and before the contract is in its place."""
    life.upload(VERSION_1)
    take_all(taker())
    keys = {number: {"key": f"k{number}", "order": f"o{number}"} for number in (1, 2, 3)}
    life.land(*(message(f"m{n}", f"2026-01-0{n}", items=str(n), _metadata=key) for n, key in keys.items()))
    life.build()
    before = life.seen()
    life.upload({**BREAKING, "envelope_columns": [{"name": "idempotency_key", "source": "_metadata.order"}]})
    expected = {f"m{number}": (str(number), f"o{number}") for number in keys}
    publish = rebuild._publish

    def fail(*_: object) -> None:
        raise OSError("the disk is gone")

    def publish_and_fail(*given: Any) -> None:
        publish(*given)
        fail()

    cuts = (
        (rebuild, "replace_rows", fail, list(Layer), []),
        (rebuild, "_publish", publish_and_fail, [Layer.RAW, Layer.CURATED, Layer.ERRORS], [Layer.STANDARDIZED]),
        (Activation, "_archive", fail, [Layer.RAW], [Layer.STANDARDIZED, Layer.CURATED]),
    )
    # Each time it begins with what the last cut has left behind, and gets further.
    for place, name, cut, untouched, published in cuts:
        with monkeypatch.context() as broken:
            broken.setattr(place, name, cut)
            with pytest.raises(OSError, match="the disk is gone"):
                take_all(taker(lambda: spark))
        seen = life.seen()
        assert {layer: seen[layer] for layer in untouched} == {layer: before[layer] for layer in untouched}
        assert [items_and_keys(life, layer) for layer in published] == [expected] * len(published)
        assert life.gate is not None
        assert life.gate.processing_enabled is False
        assert life.file("active/schema.json")["version"] == 1

    (activated,) = take_all(taker(lambda: spark))
    assert isinstance(activated, Activated)
    assert life.gate == READY
    life.assert_closed()
    assert items_and_keys(life, Layer.CURATED) == expected
    assert items_and_keys(life, Layer.STANDARDIZED) == expected
    assert not list(life.home.path.glob("branch_*"))


def items_and_keys(life: Life, layer: Layer) -> dict[str, tuple[str, str]]:
    return {row["message_id"]: (row["items"], row["idempotency_key"]) for row in rows(life.catalog, layer, TOPIC)}


def test_a_rebuild_of_tables_that_somebody_else_has_changed_meanwhile_is_done_again(
    life: Life, monkeypatch: pytest.MonkeyPatch, spark: SparkSession
) -> None:
    life.upload(VERSION_1)
    take_all(taker())
    life.land(message("m1", "2026-01-01"))
    life.build()
    life.upload(BREAKING)

    def commit_and_draw_up(*asked: Any) -> Any:
        """Somebody who does not ask for the lock commits to the table that readers see."""
        curated = life.catalog.load_table(table(Layer.CURATED, TOPIC))
        with curated.transaction() as transaction, transaction.update_snapshot().fast_append():
            pass
        return draw_up(*asked)

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(rebuild, "draw_up", commit_and_draw_up)
        (overtaken,) = take_all(taker(lambda: spark))
    assert isinstance(overtaken, BuildOvertaken)
    assert life.file("pending/schema.json") == BREAKING
    assert life.curated("items") == {"m1": (1,)}
    (activated,) = take_all(taker(lambda: spark))
    assert isinstance(activated, Activated)
    assert life.curated("items") == {"m1": ("1",)}


def test_of_two_uploads_at_once_one_wins_and_the_other_meets_the_winner(life: Life) -> None:
    store = schema_store(Settings.load().schemas)
    for contract in (VERSION_1, VERSION_2, {**VERSION_2, "description": "another second one"}):
        store.submit(TOPIC, json.dumps(contract).encode())
    first, second, third = take_all(taker())
    assert [each.contract.version for each in (first, second) if isinstance(each, Activated)] == [1, 2]
    assert "version 2 is taken by the active contract" in str(third)
    assert life.file("active/schema.json") == VERSION_2
    assert life.file("failed/schema.json")["description"] == "another second one"


def breaking_upload(life: Life) -> None:
    """A topic with a row, and an upload that takes a rebuild, and so Spark."""
    life.upload(VERSION_1)
    take_all(taker())
    life.land(message("m1", "2026-01-01"))
    life.build()
    life.upload(BREAKING)


def assert_still_pending(life: Life) -> None:
    """The upload waits, nobody is told that it is wrong, and the topic goes on with the contract that it has."""
    assert life.file("pending/schema.json") == BREAKING
    assert not (life.schemas / TOPIC / "failed").exists()
    assert life.gate == READY
    assert life.file("active/schema.json")["version"] == 1


def test_an_upload_that_finds_no_spark_stays_pending_and_is_tried_again(
    life: Life, monkeypatch: pytest.MonkeyPatch, spark: SparkSession
) -> None:
    breaking_upload(life)
    with monkeypatch.context() as away:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            away.setenv("SPARK_REMOTE", f"sc://localhost:{free.getsockname()[1]}/;token=x")
        said = life.leanops("schema", "activate")
    assert said.exit_code == 1
    assert said.err.startswith("error: No session could be opened on sc://localhost:")
    assert said.err.endswith(f" The upload of {TOPIC} stays pending.\n")
    assert len(said.err.splitlines()) == 1, "a person can read it"
    assert_still_pending(life)
    (activated,) = take_all(taker(lambda: spark))
    assert isinstance(activated, Activated)
    assert life.curated("items") == {"m1": ("1",)}


@pytest.mark.long
def test_an_upload_whose_rebuild_loses_its_server_stays_pending_and_is_tried_again(
    life: Life, monkeypatch: pytest.MonkeyPatch, spark: SparkSession
) -> None:
    breaking_upload(life)
    taking = taker(lambda: spark)
    with monkeypatch.context() as own_server:
        own_server.delenv("SPARK_REMOTE")

        def killed_when_it_begins(line: str) -> None:
            if "is rebuilt for" in line:
                server = Server.recorded(life.home)
                assert server
                psutil.Process(server.spark.pid).kill()

        (fault,) = take_all(replace(taking, settings=Settings.load(), say=killed_when_it_begins))
    assert isinstance(fault, SparkUnavailable)
    assert str(fault).startswith("The Spark server went away during a rebuild: ")
    assert len(str(fault).splitlines()) == 1
    assert_still_pending(life)
    (activated,) = take_all(taking)
    assert isinstance(activated, Activated)


@pytest.mark.parametrize("change", ["create_table", "commit_table"])
def test_an_upload_that_meets_a_full_disk_stays_pending(
    life: Life, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    life.upload(VERSION_1)

    def full(*_: object, **__: object) -> None:
        raise OperationalError("INSERT", {}, sqlite3.OperationalError("database or disk is full"))

    with monkeypatch.context() as disk:
        disk.setattr(SqlCatalog, change, full)
        (fault,) = take_all(taker())
    assert isinstance(fault, DiskFull)
    assert str(fault).startswith(f"There is no room left under {life.home.path}: database or disk is full.")
    assert life.file("pending/schema.json") == VERSION_1
    assert not (life.schemas / TOPIC / "failed").exists()
    (activated,) = take_all(taker())
    assert isinstance(activated, Activated)


def test_an_upload_waits_for_the_tick_that_builds_the_topic(life: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    life.upload(VERSION_1)
    monkeypatch.setattr(activation, "WAIT", timedelta(seconds=0.3))
    with lease(SqliteStateStore(life.home.state), f"build/{TOPIC}", "a tick", timedelta()):
        (busy,) = take_all(taker())
        assert isinstance(busy, TopicBusy)
        assert life.file("pending/schema.json") == VERSION_1
    (activated,) = take_all(taker())
    assert isinstance(activated, Activated)


def test_a_run_that_was_planned_with_an_earlier_contract_undoes_nothing(
    life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    life.upload(VERSION_1)
    take_all(taker())
    life.land(message("m1", "2026-01-01"))
    life.build()
    from leanops_assets import manifests

    planned = manifests.planned_manifest(Settings.load())
    life.upload(VERSION_2)
    take_all(taker())
    life.land(message("m2", "2026-01-02", items=str(2**40)))
    life.build()
    before = life.seen()
    life.land(message("m3", "2026-01-03"))
    monkeypatch.setattr(manifests, "planned_manifest", lambda _: planned)
    late = tick(life.home, "2026-01-03", TOPIC)
    assert late.success
    told = [event for event in late.all_events if event.event_type is dg.DagsterEventType.ASSET_OBSERVATION]
    assert "planned with version 1" in str(told[0].asset_observation_data.asset_observation.metadata["skipped"].value)
    monkeypatch.undo()
    after = life.seen()
    assert {layer: after[layer] for layer in Layer if layer is not Layer.RAW} == {
        layer: before[layer] for layer in Layer if layer is not Layer.RAW
    }


def test_a_topic_that_somebody_has_paused_stays_paused(life: Life) -> None:
    paused = Gate(processing_enabled=False, status=GateStatus.PAUSED, reason="audit")
    SqliteStateStore(life.home.state).set_gate(TOPIC, paused)
    life.upload(VERSION_1)
    (activated,) = take_all(taker())
    assert isinstance(activated, Activated)
    assert life.gate == paused
    life.upload(b"{", "another.json")
    take_all(taker())
    assert life.gate == paused


COLUMN = {"name": "c", "type": "INT"}
BAD: dict[str, tuple[bytes | dict[str, Any], str]] = {
    "not JSON": (b"{'table_name'", "not JSON"),
    "wrong encoding": ('{"table_name": "parcels"}'.encode("utf-16"), "UTF-16"),
    "10 MB": (b" " * 10 * 2**20, "too large"),
    "a path for a name": ({**VERSION_1, "table_name": "../x"}, "'../x' is no"),
    "a table of another topic": ({**VERSION_1, "table_name": "orders"}, "'orders' is not the topic of this folder"),
    "5,000 columns": (
        {**VERSION_1, "payload_columns": [{**COLUMN, "name": f"c{n}"} for n in range(5000)]},
        "5,000 columns are more than",
    ),
    "one name twice": (
        {**VERSION_1, "payload_columns": [COLUMN, {**COLUMN, "name": "C"}]},
        "names that differ in case alone are the same",
    ),
    "no such type": ({**VERSION_1, "payload_columns": [{**COLUMN, "type": "INTEGER"}]}, "there is no type 'INTEGER'"),
    "a version that goes backwards": ({**VERSION_1, "version": 3}, "version 3 goes back behind the active contract"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_upload_is_filed_with_its_reason_and_the_active_contract_goes_on(life: Life, case: str) -> None:
    content, reason = BAD[case]
    active = {**VERSION_1, "version": 7}
    life.upload(active)
    take_all(taker())
    life.upload(content)
    (refused,) = take_all(taker())
    assert isinstance(refused, LeanOpsError)
    told = life.file("failed/error.json")
    assert any(reason in problem["message"] for problem in told["problems"]), told
    assert all(problem["path"].startswith("$") and problem.get("found") for problem in told["problems"])
    failed = (life.schemas / TOPIC / "failed" / "schema.json").read_bytes()
    assert failed == (content if isinstance(content, bytes) else json.dumps(content).encode())[: MAX_BYTES + 1]
    assert life.file("active/schema.json") == active
    assert not list((life.schemas / TOPIC / "pending").iterdir())
    assert life.gate is not None
    assert (life.gate.status, life.gate.processing_enabled) == (GateStatus.ERROR, True)
    life.upload({**active, "version": 8})
    take_all(taker())
    assert life.gate == READY


def test_a_folder_that_is_no_topic_gets_its_answer_too(life: Life) -> None:
    pending = life.schemas / "Bad Name" / "pending"
    pending.mkdir(parents=True)
    (pending / "schema.json").write_text(json.dumps({**VERSION_1, "table_name": "Bad Name"}))
    (refused,) = take_all(taker())
    assert isinstance(refused, LeanOpsError)
    told = json.loads((life.schemas / "Bad Name" / "failed" / "error.json").read_text())
    assert "'Bad Name' cannot be a topic's name" in told["problems"][0]["message"]
    assert not list(pending.iterdir())
