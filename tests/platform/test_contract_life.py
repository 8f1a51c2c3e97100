"""The whole life of a topic's contracts, on real Spark and Iceberg, through Dagster: from none to a failed rebuild."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import EqualTo

from leanops import rebuild
from leanops.batch.isolation import Jobs
from leanops.home import Home
from leanops.ledger.draw_up import draw_up
from leanops.names import Layer, spark_table, table
from leanops.ops.drift_log import DRIFT_LOG
from leanops.ops.schema_versions import versions
from leanops_assets.contracts.job import contracts_sensor
from leanops_assets.instance import dagster_instance
from leanops_assets.specs import asset_key
from leanops_resources.catalog import LocalCatalog
from leanops_resources.dagster_resources import SchemaStoreResource
from leanops_resources.state.sqlite import SqliteStateStore
from leanops_resources.state.store import Gate, GateStatus
from tests.conftest import Said
from tests.platform.test_asking_for_ledgers import run_job
from tests.platform.test_tick import rows

Leanops = Callable[..., Said]
TOPIC = "parcels"
READY = Gate(processing_enabled=True, status=GateStatus.READY)

WEEKS = range(1, 10)
"""Messages that land for weeks, one on every third day."""

COLUMNS: dict[str, dict[str, Any]] = {
    "sku": {"type": "STRING", "cde": True},
    "items": {"type": "INT"},
    "price": {"type": "DECIMAL(10,2)"},
}
VERSION_1 = {
    "table_name": TOPIC,
    "version": 1,
    "envelope_columns": [{"name": "idempotency_key", "source": "_metadata.key"}],
    "payload_columns": [{"name": name, **column} for name, column in COLUMNS.items()],
}


def version(number: int, **columns: dict[str, Any]) -> dict[str, Any]:
    """The first contract with other columns, and columns of another kind."""
    merged = [{"name": name, **column} for name, column in {**COLUMNS, **columns}.items()]
    return {**VERSION_1, "version": number, "payload_columns": merged}


@dataclass(frozen=True)
class Life:
    """A topic, its contracts and its tables, and the ways in which people and the platform deal with them."""

    home: Home
    schemas: Path
    leanops: Leanops

    @property
    def catalog(self) -> Catalog:
        return LocalCatalog(self.home).load()

    @property
    def gate(self) -> Gate | None:
        return SqliteStateStore(self.home.state).gate(TOPIC)

    def land(self, *lines: dict[str, Any]) -> None:
        file = self.home.path / "some.ndjson"
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
        said = self.leanops("land", TOPIC, file, "--new")
        assert said.exit_code == 0, said.err

    def upload(self, contract: Mapping[str, Any] | bytes, name: str = "schema.json") -> None:
        path = self.schemas / TOPIC / "pending" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(contract if isinstance(contract, bytes) else json.dumps(contract).encode())

    def take_in(self) -> dg.ExecuteInProcessResult:
        """What the daemon does: ask the sensor, and start the run that it requests."""
        with dagster_instance(self.home) as instance:
            asked = contracts_sensor(
                dg.build_sensor_context(instance=instance), contracts=SchemaStoreResource(folder=str(self.schemas))
            )
        assert isinstance(asked, list)
        (request,) = asked
        return run_job(self.home, "contract", request.run_config)

    def build(self) -> None:
        said = self.leanops("tick")
        assert said.exit_code == 0, said.err
        self.assert_closed()

    def assert_closed(self) -> None:
        said = self.leanops("ledger", "--json")
        assert said.exit_code == 0, said.err
        assert all(json.loads(line)["closed"] for line in said.out.splitlines())

    def curated(self, *names: str) -> dict[str, tuple[Any, ...]]:
        """What Curated holds of each message."""
        found = rows(self.catalog, Layer.CURATED, TOPIC)
        return {row["message_id"]: tuple(row[name] for name in names) for row in found}

    def seen(self) -> dict[Layer, Any]:
        """All that readers can see of the topic: columns, rows and errors."""
        columns = {layer: self.catalog.load_table(table(layer, TOPIC)).schema().fields for layer in Layer}
        return {layer: (list(map(str, columns[layer])), rows(self.catalog, layer, TOPIC)) for layer in Layer}

    def file(self, place: str) -> Any:
        return json.loads((self.schemas / TOPIC / place).read_text())


@pytest.fixture
def life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warm_home: Home, leanops: Leanops) -> Life:
    """A home with a folder of contracts that has none in it."""
    schemas = tmp_path / "schemas"
    schemas.mkdir()
    monkeypatch.setenv("LEANOPS_SCHEMAS", str(schemas))
    return Life(warm_home, schemas, leanops)


def message(message_id: str, day: str, **payload: Any) -> dict[str, Any]:
    fields = {"_metadata": {"key": message_id}, "sku": f"s-{message_id}", "items": "1", "price": "1.50", **payload}
    return {"message_id": message_id, "publish_time": f"{day}T08:00:00Z", "payload": fields}


def test_the_whole_life_of_a_topic(life: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    lands_for_weeks_without_a_contract(life)
    gets_a_broken_one(life)
    gets_a_good_one(life)
    drifts(life)
    gets_a_compatible_change(life)
    gets_a_breaking_change(life, monkeypatch)
    gets_a_rebuild_that_fails_half_way(life, monkeypatch)
    gets_it_again(life)
    everything_can_be_asked_for(life)


def lands_for_weeks_without_a_contract(life: Life) -> None:
    life.land(*(message(f"m{number:02}", f"2026-01-{3 * number:02}", items=str(number)) for number in WEEKS))
    said = life.leanops("tick")
    assert "skipped parcels: no active contract: 9 messages are kept in RAW" in said.out


def gets_a_broken_one(life: Life) -> None:
    columns = [{"name": "sku", "type": "TEXT"}, {"name": "SKU", "kind": "INT"}]
    life.upload({**VERSION_1, "payload_columns": columns})
    assert not life.take_in().success
    assert {problem["path"] for problem in life.file("failed/error.json")["problems"]} >= {
        "$.payload_columns[0].type",
        "$.payload_columns[1].kind",
        "$.payload_columns[1].name",
    }
    assert not list((life.schemas / TOPIC / "pending").iterdir())
    assert life.gate is not None
    assert (life.gate.status, life.gate.processing_enabled) == (GateStatus.ERROR, False)
    assert not life.catalog.table_exists(table(Layer.CURATED, TOPIC))


def gets_a_good_one(life: Life) -> None:
    """All that was kept in RAW is built by one run."""
    life.upload(VERSION_1)
    assert life.take_in().success
    assert life.file("active/schema.json") == VERSION_1
    assert life.gate == READY
    assert life.catalog.table_exists(table(Layer.CURATED, TOPIC))
    life.build()
    assert len(life.curated()) == len(WEEKS)
    with dagster_instance(life.home) as instance:
        assert len(instance.get_runs(dg.RunsFilter(job_name="tick"))) == 1
        assert len(instance.get_materialized_partitions(asset_key(Layer.CURATED, TOPIC))) == len(WEEKS)


def drifts(life: Life) -> None:
    life.land(message("m30", "2026-01-30", items=str(2**40), colour="red"))
    life.build()
    assert "m30" not in life.curated()


def gets_a_compatible_change(life: Life) -> None:
    """What stood there before is judged by it too."""
    life.upload(version(2, items={"type": "BIGINT"}, colour={"type": "STRING"}))
    assert life.take_in().success
    life.build()
    assert life.curated("items", "colour")["m30"] == (2**40, "red")
    assert life.curated("items", "colour")["m01"] == (1, None)


def gets_a_breaking_change(life: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers see the old tables until the new ones are whole; what landed meanwhile is in these."""
    life.land(message("m31", "2026-01-31"))
    before, seen = life.seen(), []

    def watch(*asked: Any) -> Any:
        assert life.gate is not None
        assert (life.gate.processing_enabled, life.gate.reason) == (False, "it is being rebuilt for version 3")
        seen.append(life.seen() == before)
        return draw_up(*asked)

    with monkeypatch.context() as patched:
        patched.setattr(rebuild, "draw_up", watch)
        life.upload(version(3, items={"type": "STRING"}, colour={"type": "STRING", "cde": True}))
        rebuilt = life.take_in()
    assert rebuilt.success
    assert seen == [True]
    assert life.gate == READY
    life.assert_closed()
    assert life.curated("items", "colour") == {"m30": (str(2**40), "red")}
    is_open = {row["message_id"] for row in rows(life.catalog, Layer.ERRORS, TOPIC) if row["closed"] is None}
    assert is_open == {*(f"m{number:02}" for number in WEEKS), "m31"}
    materialised = {event.partition for event in rebuilt.get_asset_materialization_events()}
    assert {"2026-01-03", "2026-01-30"} <= materialised
    life.land(message("m32", "2026-02-01", items="many", colour="blue"))
    life.build()
    assert life.curated("items")["m32"] == ("many",)


def gets_a_rebuild_that_fails_half_way(life: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing has changed, and the topic goes on as it was."""

    def damage(jobs: Jobs, *others: Any) -> Any:
        jobs.sessions().sql(f"DELETE FROM {spark_table(Layer.CURATED, TOPIC)} WHERE message_id = 'm32'")
        return draw_up(jobs, *others)

    before = life.seen()
    with monkeypatch.context() as patched:
        patched.setattr(rebuild, "draw_up", damage)
        life.upload(version(4, items={"type": "STRING"}, colour={"type": "STRING"}, price={"type": "STRING"}))
        assert not life.take_in().success
    assert life.seen() == before
    assert life.file("active/schema.json")["version"] == 3
    (problem,) = life.file("failed/error.json")["problems"]
    assert "does not close: curated of 2026-02-01" in problem["message"]
    assert life.gate is not None
    assert (life.gate.status, life.gate.processing_enabled) == (GateStatus.ERROR, True)
    life.land(message("m33", "2026-02-02", colour="green"))
    life.build()
    assert "m33" in life.curated()


def gets_it_again(life: Life) -> None:
    life.upload((life.schemas / TOPIC / "failed" / "schema.json").read_bytes())
    assert life.take_in().success
    life.assert_closed()
    assert life.curated("price")["m01"] == ("1.50",)
    assert len(life.curated()) == len(WEEKS) + 4
    assert life.gate == READY


def everything_can_be_asked_for(life: Life) -> None:
    assert [(row["version"], row["impact"]) for row in versions(life.catalog, TOPIC)] == [
        (1, "compatible"),
        (2, "compatible"),
        (3, "breaking"),
        (4, "breaking"),
    ]
    archived = (life.schemas / TOPIC / "archive").rglob("schema.json")
    assert sorted(path.parent.name for path in archived) == ["v1", "v2", "v3"]
    is_of_types = EqualTo(term="change", value="type_change")
    drift = life.catalog.load_table(DRIFT_LOG).scan(row_filter=is_of_types).to_arrow()
    assert sorted(drift["detail"].to_pylist()) == [
        "version 2: INT → BIGINT (compatible)",
        "version 3: BIGINT → STRING (breaking)",
        "version 4: DECIMAL(10,2) → STRING (breaking)",
    ]
    said = life.leanops("schema", "history", TOPIC)
    assert "$.payload_columns.items.type: INT → BIGINT" in said.out
