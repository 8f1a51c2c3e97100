"""Contracts on the command line, and what the UI's other jobs and sensors do with them. No Spark is needed."""

import json
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from leanops.batch.topics import TopicTables
from leanops.home import Home
from leanops.ops.drift_log import DRIFT_LOG
from leanops.ops.schema_versions import versions
from leanops.settings import Settings
from leanops.standardized.flatten_plan import FlatColumn
from leanops.standardized.table import add_columns, ensure_standardized_table
from leanops_assets.contracts.reload import build_graph_sensor
from leanops_assets.manifests import planned_manifest
from leanops_resources.catalog import LocalCatalog
from leanops_resources.dagster_resources import CatalogResource, SchemaStoreResource
from tests.platform.test_asking_for_ledgers import Leanops, logged, run_job
from tests.platform.test_contract_life import TOPIC, VERSION_1, version


@pytest.fixture
def schemas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: Home) -> Path:
    """A folder of contracts, with one topic in it."""
    assert home.path.is_dir()
    folder = tmp_path / "schemas"
    active = folder / TOPIC / "active" / "schema.json"
    active.parent.mkdir(parents=True)
    active.write_text(json.dumps(VERSION_1))
    monkeypatch.setenv("LEANOPS_SCHEMAS", str(folder))
    return folder


def draft(tmp_path: Path, contract: dict[str, Any]) -> Path:
    file = tmp_path / "draft.json"
    file.write_text(json.dumps(contract))
    return file


def test_a_contract_is_compared_submitted_activated_and_looked_back_at(
    schemas: Path, tmp_path: Path, leanops: Leanops
) -> None:
    file = draft(tmp_path, version(2, items={"type": "BIGINT"}, sku={"type": "STRING"}))
    said = leanops("schema", "diff", file)
    assert said.exit_code == 0
    assert "Breaking: The topic will be paused, rebuilt" in said.out
    changes = [json.loads(line) for line in leanops("schema", "diff", file, "--json").out.splitlines()]
    assert [(change["impact"], change["path"]) for change in changes] == [
        ("noted", "$.version"),
        ("breaking", "$.payload_columns.sku.cde"),
        ("compatible", "$.payload_columns.items.type"),
    ]
    assert leanops("schema", "diff", file, "--against", file).out == "Nothing is different.\n"

    file = draft(tmp_path, version(2, items={"type": "BIGINT"}))
    said = leanops("schema", "submit", file)
    assert said.exit_code == 0, said.err
    assert "Compatible: The tables follow in place." in said.out
    assert (schemas / TOPIC / "pending" / "schema.json").read_bytes() == file.read_bytes()
    said = leanops("schema", "activate", TOPIC)
    assert said.exit_code == 0, said.err
    assert f"{TOPIC}: version 2 is active (compatible)." in said.out
    assert leanops("schema", "activate").out == "Nothing is pending.\n"
    said = leanops("schema", "history", TOPIC)
    assert "$.payload_columns.items.type: INT → BIGINT" in said.out
    (line,) = leanops("schema", "history", "--json").out.splitlines()
    assert json.loads(json.loads(line)["contract"])["version"] == 2


def test_what_would_be_refused_is_not_submitted_and_what_was_uploaded_all_the_same_is_told(
    schemas: Path, tmp_path: Path, leanops: Leanops
) -> None:
    for contract, problem in (
        (VERSION_1, "version 1 is taken by the active contract"),
        (version(2, items={"type": "INTEGER"}), "there is no type 'INTEGER'. Did you mean INT?"),
    ):
        said = leanops("schema", "submit", draft(tmp_path, contract))
        assert said.exit_code == 1
        assert problem in said.err
    assert not (schemas / TOPIC / "pending").exists()
    assert "Nothing is pending for parcels." in leanops("schema", "activate", TOPIC).err
    (schemas / TOPIC / "pending").mkdir()
    (schemas / TOPIC / "pending" / "mine.json").write_text("{")
    said = leanops("schema", "activate")
    assert said.exit_code == 1
    assert "mine.json has one problem" in said.err
    assert leanops("schema", "history", TOPIC).out.startswith("No activation of parcels is logged.")
    assert leanops("schema", "diff", tmp_path / "nowhere.json").exit_code == 1


def test_what_is_older_than_the_logs_is_logged_once(schemas: Path, home: Home) -> None:
    catalog = LocalCatalog(home).load()
    manifest = planned_manifest(Settings.load())
    contract = manifest.by_name[TOPIC].contract
    assert contract is not None
    assert schemas.is_dir()
    add_columns(ensure_standardized_table(TopicTables(catalog, TOPIC), contract), [FlatColumn(("sku",), "sku")])
    for _ in range(2):
        assert run_job(home, "catch_up").success
        rows = [(row["column"], row["change"], row["field"]) for row in logged(home, DRIFT_LOG)]
        assert rows == [("sku", "existing_column", '["sku"]')]
        assert [row["version"] for row in versions(catalog)] == [1]


def test_the_graph_notices_contracts_and_topics_that_it_does_not_show(schemas: Path, home: Home) -> None:
    settings = Settings.load()
    sensor = build_graph_sensor(planned_manifest(settings), settings)

    def asked() -> str:
        context = dg.build_sensor_context(
            resources={
                "contracts": SchemaStoreResource(folder=str(schemas)),
                "iceberg": CatalogResource(home=str(home.path)),
            }
        )
        said = sensor(context)
        assert isinstance(said, dg.SkipReason)
        return str(said.skip_message)

    assert asked() == "The graph shows all 1 topics as they are."
    (schemas / "newcomers").mkdir()
    (schemas / TOPIC / "active" / "schema.json").write_text(json.dumps(version(2)))
    assert asked() == "Reload the code location to see newcomers, parcels as they are now."
