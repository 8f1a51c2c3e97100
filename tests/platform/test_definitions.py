"""The asset graph, as Dagster sees it."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.code_pointer import CodePointer
from dagster._core.definitions.definitions_load_context import DefinitionsLoadContext, DefinitionsLoadType
from dagster._core.definitions.reconstruct import (
    initialize_repository_def_from_pointer,
    reconstruct_repository_def_from_pointer,
)
from dagster._core.definitions.repository_definition import RepositoryLoadData
from dagster_shared.serdes import deserialize_value, serialize_value

from benchmarks.topics import write_contracts
from leanops.home import Home
from leanops_assets.definitions import defs
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


@pytest.fixture
def own_load_context() -> Iterator[None]:
    """What is noted while definitions are loaded is noted for this test alone."""
    with DefinitionsLoadContext.scoped(DefinitionsLoadContext(DefinitionsLoadType.INITIALIZATION)):
        yield


def test_a_run_is_built_from_the_manifest_it_was_planned_with(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_load_context: None
) -> None:
    monkeypatch.setenv("LEANOPS_SCHEMAS", str(tmp_path / "contracts"))
    contract(tmp_path / "contracts", "first")
    location = CodePointer.from_module("leanops_assets.definitions", "defs", None)
    planned = initialize_repository_def_from_pointer(location)
    contract(tmp_path / "contracts", "second")

    # As the code server puts it into the plan of a run, and as the run's own process reads it there.
    load_data = deserialize_value(serialize_value(planned.repository_load_data), RepositoryLoadData)
    run = reconstruct_repository_def_from_pointer(location, load_data)
    in_the_run = {key.to_user_string() for key in run.asset_graph.get_all_asset_keys()}
    assert "raw/first" in in_the_run
    now = {
        key.to_user_string()
        for key in initialize_repository_def_from_pointer(location).asset_graph.get_all_asset_keys()
    }
    assert "raw/second" not in in_the_run
    assert "raw/second" in now
