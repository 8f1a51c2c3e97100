"""The asset graph, as Dagster sees it."""

import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.definitions.definitions_load_context import DefinitionsLoadContext, DefinitionsLoadType
from dagster._core.definitions.repository_definition import RepositoryLoadData

from benchmarks.topics import write_contracts
from leanops.home import Home
from leanops_assets.definitions import defs
from leanops_assets.manifests import PIN
from tests.conftest import PROJECT

LIGHT = """
import socket, sys

def no_network(*_):
    raise AssertionError("the definitions asked for the network")

socket.socket.connect = no_network
socket.getaddrinfo = no_network
from leanops_assets.definitions import defs

assert len(defs().resolve_asset_graph().get_all_asset_keys()) > 5
heavy = {"boto3", "pyspark.sql.connect.session"} & set(sys.modules)
assert not heavy, f"the definitions imported {heavy}"
"""


def graph(definitions: dg.Definitions) -> dg.AssetSelection:
    return definitions.resolve_asset_graph()


def contract(folder: Path, topic: str, content: str | None = None) -> None:
    file = folder / topic / "active" / "schema.json"
    file.parent.mkdir(parents=True)
    text = (PROJECT / "schemas" / "orders" / "active" / "schema.json").read_text()
    file.write_text(text.replace('"orders"', f'"{topic}"') if content is None else content)


def test_definitions_load_in_a_fresh_interpreter_without_network_or_spark(home: Home) -> None:
    loaded = subprocess.run([sys.executable, "-c", LIGHT], cwd=PROJECT, capture_output=True, text=True, check=False)
    assert loaded.returncode == 0, loaded.stderr


def test_every_topic_has_raw_and_only_those_with_a_contract_have_more(home: Home) -> None:
    keys = {key.to_user_string() for key in graph(defs()).get_all_asset_keys()}
    assert {"raw/orders", "standardized/orders", "standardized/orders/parse_errors"} <= keys
    assert {"curated/orders", "curated/orders/errors"} <= keys
    assert {key for key in keys if key.endswith("/support_chats")} == {"raw/support_chats"}


def test_a_broken_contract_is_the_trouble_of_its_topic_alone(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEANOPS_SCHEMAS", str(tmp_path / "contracts"))
    contract(tmp_path / "contracts", "whole")
    contract(tmp_path / "contracts", "broken", content='{"table_name": "broken"}')
    assets = graph(defs())
    keys = {key.to_user_string() for key in assets.get_all_asset_keys()}
    assert "curated/whole" in keys
    assert {key for key in keys if key.endswith("/broken")} == {"raw/broken"}
    problem = assets.get(dg.AssetKey(["raw", "broken"])).metadata["contract_problem"]
    assert "$.payload_columns: required, but missing." in str(problem)


@pytest.mark.long
def test_seven_hundred_topics_are_one_graph(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_contracts(tmp_path / "contracts", 700)
    monkeypatch.setenv("LEANOPS_SCHEMAS", str(tmp_path / "contracts"))
    definitions = defs()
    dg.Definitions.validate_loadable(definitions)
    keys = graph(definitions).get_all_asset_keys()
    assert sum(key.path[0] != "ops" for key in keys) == 700 * 5 + 1, "the dead letters of all topics are one table"


def test_a_run_is_built_from_the_manifest_it_was_planned_with(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEANOPS_SCHEMAS", str(tmp_path / "contracts"))
    contract(tmp_path / "contracts", "first")
    planned = defs().metadata[PIN].value
    contract(tmp_path / "contracts", "second")

    pinned = RepositoryLoadData(reconstruction_metadata={PIN: planned})
    with DefinitionsLoadContext.scoped(DefinitionsLoadContext(DefinitionsLoadType.RECONSTRUCTION, pinned)):
        in_the_run = {key.to_user_string() for key in graph(defs()).get_all_asset_keys()}
    now = {key.to_user_string() for key in graph(defs()).get_all_asset_keys()}
    assert "raw/second" not in in_the_run
    assert "raw/second" in now
