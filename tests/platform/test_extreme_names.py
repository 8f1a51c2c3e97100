"""No topic's name disturbs the others: what is accepted works, and what is refused is told, alone."""

import json
import keyword
from collections.abc import Callable
from pathlib import Path

import dagster as dg
import pytest

from leanops.contracts.manifest import Manifest, Topic
from leanops.contracts.reading import read_contract
from leanops.home import Home
from leanops.landing_file import write_into_place
from leanops.names import LONGEST_TOPIC, Layer, is_topic, step_name
from leanops.raw.table import ensure_raw_table
from leanops.settings import Settings
from leanops_assets.definitions import defs
from leanops_assets.factory import define_topics
from leanops_assets.run_batch import BatchResource
from leanops_resources.catalog import LocalCatalog
from leanops_resources.dagster_resources import embedded_resources
from tests.conftest import PROJECT, Said

Leanops = Callable[..., Said]

TOO_LONG = "a" * 64
LONGEST = ["a" * LONGEST_TOPIC, "a" * (LONGEST_TOPIC - 1) + "_", "a" + "_" * (LONGEST_TOPIC - 1)]
UNDERSCORES = ["a_", "a__", "a__b", "a__errors", "a__parse_errors", "a", "b", "a_b", "a___b"]
OURS = ["raw", "standardized", "curated", "ops", "error", "errors_staging", "parse_errors_staging", "x", "x_staging"]
OURS += ["dlq_errors_staging", "raw__x", "curated__x", "curated__x__errors", "standardized__x", "topic_registry"]
JOBS = [
    "tick",
    "drain",
    "drain_sources",
    "contract",
    "take_in",
    "ledger",
    "freshness",
    "raw_is_fresh",
    "result",
    "graph",
]
RESERVED = ["select", "table", "from", "null", "context", "config", "type", "input", "output", "con", "nul"]
PYTHONS = [word for word in keyword.kwlist if is_topic(word)]
ACCEPTED = list(dict.fromkeys([*LONGEST, *UNDERSCORES, *OURS, *JOBS, *RESERVED, *PYTHONS]))
ENVELOPE = {"message_id": "1", "publish_time": "2026-01-14T00:00:00Z", "payload": {"order_id": "1"}}


def contract(topic: str, **changed: object) -> str:
    shipped = json.loads((PROJECT / "schemas" / "orders" / "active" / "schema.json").read_text())
    return json.dumps({**shipped, "table_name": topic, **changed})


@pytest.fixture
def contracts(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Active contracts, one for each call."""
    monkeypatch.setenv("LEANOPS_SCHEMAS", str(tmp_path / "contracts"))

    def activate(topic: str, **changed: object) -> None:
        file = tmp_path / "contracts" / topic / "active" / "schema.json"
        file.parent.mkdir(parents=True)
        file.write_text(contract(topic, **changed))

    return activate


def drop(home: Home, topic: str) -> None:
    folder = home.landing / topic
    folder.mkdir()
    write_into_place(folder / "1.ndjson", json.dumps(ENVELOPE).encode())


def keys_of(definitions: dg.Definitions) -> set[str]:
    return {key.to_user_string() for key in definitions.resolve_asset_graph().get_all_asset_keys()}


def test_every_name_that_is_accepted_is_in_the_graph_and_drained(
    home: Home, contracts: Callable[..., None], leanops: Leanops
) -> None:
    for topic in ACCEPTED:
        assert is_topic(topic)
        contracts(topic)
        drop(home, topic)
    definitions = defs()
    dg.Definitions.validate_loadable(definitions)
    layers = ("raw/{}", "standardized/{}", "standardized/{}/parse_errors", "curated/{}", "curated/{}/errors")
    assert {layer.format(topic) for layer in layers for topic in ACCEPTED} <= keys_of(definitions)
    steps = {step.name for step in definitions.resolve_job_def("tick").nodes}
    assert {
        step_name(layer, topic) for layer in (Layer.RAW, Layer.STANDARDIZED, Layer.CURATED) for topic in ACCEPTED
    } <= steps

    said = leanops("drain", "--json")
    assert said.exit_code == 0, said.err
    assert {row["topic"]: row["landed"] for row in map(json.loads, said.out.splitlines())} == dict.fromkeys(ACCEPTED, 1)


def test_a_landing_folder_that_no_topic_can_have_is_left_alone_and_told(
    home: Home, contracts: Callable[..., None], leanops: Leanops
) -> None:
    contracts("orders")
    drop(home, TOO_LONG)
    drop(home, "orders")
    said = leanops("drain", "--json")
    assert [json.loads(row)["topic"] for row in said.out.splitlines()] == ["orders"]
    assert (home.landing / TOO_LONG / "1.ndjson").exists()
    told = leanops("topics")
    assert told.exit_code == 0
    assert f"warning: {home.landing / TOO_LONG} is no topic's: '{TOO_LONG}' of 64 letters cannot be" in told.err


def test_a_raw_table_whose_name_was_allowed_once_leaves_the_others_in_the_graph(
    home: Home, contracts: Callable[..., None], leanops: Leanops
) -> None:
    contracts("orders")
    ensure_raw_table(LocalCatalog(home).load(), TOO_LONG)
    assert "curated/orders" in keys_of(defs())
    assert f"warning: The RAW table of '{TOO_LONG}' is no topic's: " in leanops("topics").err


def test_an_upload_for_a_name_that_is_too_long_is_refused_with_the_reason(
    home: Home, contracts: Callable[..., None], tmp_path: Path, leanops: Leanops
) -> None:
    contracts("orders")
    (tmp_path / "long.json").write_text(contract(TOO_LONG))
    for command in (("lint", tmp_path / "long.json"), ("submit", tmp_path / "long.json")):
        said = leanops("schema", *command)
        assert said.exit_code == 1
        assert f"at most {LONGEST_TOPIC} lower-case letters" in said.out + said.err


@pytest.mark.parametrize("owner", ["ops@example.technology", "jörg@example.com", "o'neil@example.com", "a@b.c"])
def test_an_owner_that_dagster_does_not_know_as_an_address_is_shown_beside_the_others(
    home: Home, contracts: Callable[..., None], owner: str
) -> None:
    contracts("orders", owners=[owner, "team:commerce"])
    asset = defs().resolve_asset_graph().get(dg.AssetKey(["curated", "orders"]))
    assert list(asset.owners) == ["team:commerce"]
    assert asset.metadata["other_owners"] == owner


def refused(topic: str) -> Topic:
    """A topic whose contract Dagster does not take, which no linter lets pass: its version does not fit into a tag."""
    read = read_contract(contract(topic).encode(), topic, "a test")
    return Topic(name=topic, contract=read.model_copy(update={"version": 10**70}))


def test_a_topic_that_dagster_does_not_take_leaves_the_others_in_the_graph(home: Home) -> None:
    fine = Topic(name="fine", contract=read_contract(contract("fine").encode(), "fine", "a test"))
    manifest = Manifest(topics=(Topic(name=TOO_LONG), fine, refused("refused")))
    defined = define_topics(manifest, Settings.load())
    graph = dg.Definitions(
        defined.assets, resources={**embedded_resources(Settings.load()), "batch": BatchResource()}
    ).resolve_asset_graph()
    keys = {key.to_user_string() for key in graph.get_all_asset_keys()}
    assert "curated/fine" in keys
    assert {key for key in keys if "refused" in key} == {"raw/refused"}
    problem = graph.get(dg.AssetKey(["raw", "refused"])).metadata["contract_problem"]
    assert "Dagster does not take its definition (DagsterInvalidDefinitionError: " in str(problem)
    assert {topic.name: topic.contract is None for topic in defined.manifest.topics} == {"fine": False, "refused": True}
    assert list(defined.left_out) == [TOO_LONG]


def test_what_is_refused_is_told_by_the_graph_and_by_the_command_line(
    home: Home, contracts: Callable[..., None], monkeypatch: pytest.MonkeyPatch, leanops: Leanops
) -> None:
    contracts("orders")
    manifest = Manifest(topics=(Topic(name=TOO_LONG), refused("refused")))
    monkeypatch.setattr("leanops_resources.known_topics.compile_manifest", lambda *_: manifest)
    registry = defs().resolve_asset_graph().get(dg.AssetKey(["ops", "topic_registry"]))
    assert f"Not in the graph: {TOO_LONG!r}"[:40] in str(registry.description)
    said = leanops("topics")
    assert said.exit_code == 1
    assert "error: 'refused' cannot be built: Dagster does not take its definition" in said.err
