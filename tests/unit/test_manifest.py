import json
from collections.abc import Callable
from pathlib import Path

import pytest

from leanops.contracts.manifest import Manifest, Topic
from leanops.contracts.model import Contract
from leanops.contracts.reading import read_contract
from leanops.errors import StateCorrupt
from leanops.home import Home
from leanops.names import RAW_DB
from leanops.raw.table import RAW_SCHEMA, ensure_raw_table
from leanops_resources import contract_cache, known_topics
from leanops_resources.catalog import LocalCatalog
from leanops_resources.known_topics import compile_manifest
from leanops_resources.schema_store import LocalSchemaStore

from .conftest import Together

Compile = Callable[[], Manifest]


def document(topic: str, **changes: object) -> bytes:
    columns = [{"name": "amount", "type": "DECIMAL(18,2)", "default": "0.00"}]
    contract = {"table_name": topic, "description": "Größe", "envelope_columns": [], "payload_columns": columns}
    return json.dumps({**contract, **changes}).encode()


def topic(name: str, **changes: object) -> Topic:
    return Topic(name=name, contract=read_contract(document(name, **changes), name, name))


MANIFEST = Manifest(
    topics=(
        topic("orders", version=3, owners=["team:commerce"]),
        topic("payments"),
        Topic(name="support_chats"),
        Topic(name="user_profiles", contract_problem="it is broken:\n  $.é: unknown key."),
    )
)

OTHERS = [
    Manifest(topics=()),
    Manifest(topics=MANIFEST.topics[:-1]),
    Manifest(topics=MANIFEST.topics[::-1]),
    Manifest(topics=(topic("orders", version=4, owners=["team:commerce"]), *MANIFEST.topics[1:])),
    Manifest(topics=(*MANIFEST.topics[:-1], Topic(name="user_profiles", contract_problem="another"))),
]

DAMAGES: dict[str, Callable[[Path], object]] = {
    "gone": Path.unlink,
    "empty": lambda path: path.write_bytes(b""),
    "cut short": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "not JSON": lambda path: path.write_bytes(b"x"),
    "not UTF-8": lambda path: path.write_bytes(b"\xff" + path.read_bytes()),
    "another document": lambda path: path.write_bytes(b"{}"),
    "another manifest": lambda path: path.write_text(OTHERS[1].content, "utf-8"),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
}


@pytest.fixture
def schemas(tmp_path: Path) -> Path:
    return tmp_path / "schemas"


@pytest.fixture
def compiled(home: Home, schemas: Path) -> Compile:
    return lambda: compile_manifest(home, LocalSchemaStore(schemas), LocalCatalog(home))


def put(schemas: Path, name: str, content: bytes, stage: str = "active") -> Path:
    path = schemas / name / stage / "schema.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def test_a_manifest_comes_back_as_it_was_saved(tmp_path: Path) -> None:
    MANIFEST.save(tmp_path)
    loaded = Manifest.load(tmp_path, MANIFEST.version)
    assert loaded == MANIFEST
    assert (loaded.version, loaded.content) == (MANIFEST.version, MANIFEST.content)
    assert loaded.by_name["orders"].contract == MANIFEST.topics[0].contract


def test_a_manifest_is_named_by_its_content() -> None:
    same = Manifest(topics=tuple(each.model_copy(deep=True) for each in MANIFEST.topics))
    assert same.version == MANIFEST.version
    versions = {each.version for each in (MANIFEST, *OTHERS)}
    assert len(versions) == 1 + len(OTHERS)


def test_manifests_lie_side_by_side_and_a_second_save_changes_nothing(tmp_path: Path) -> None:
    for manifest in (MANIFEST, *OTHERS, MANIFEST, *OTHERS):
        manifest.save(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {f"{each.version}.json" for each in (MANIFEST, *OTHERS)}
    assert all(Manifest.load(tmp_path, each.version) == each for each in (MANIFEST, *OTHERS))


def test_many_may_save_the_same_manifest_at_the_same_moment(tmp_path: Path, together: Together) -> None:
    for number in range(30):
        manifest = Manifest(topics=tuple(Topic(name=f"t{number}_{each}") for each in range(200)))
        together([lambda manifest=manifest: manifest.save(tmp_path)] * 8)
        assert Manifest.load(tmp_path, manifest.version) == manifest
    assert len(list(tmp_path.iterdir())) == 30


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_manifest_that_is_gone_or_damaged_is_told_with_what_to_do(
    damage: Callable[[Path], object], tmp_path: Path
) -> None:
    MANIFEST.save(tmp_path)
    damage(tmp_path / f"{MANIFEST.version}.json")
    with pytest.raises(StateCorrupt) as caught:
        Manifest.load(tmp_path, MANIFEST.version)
    assert MANIFEST.version in caught.value.problem
    assert "Reload the code location" in caught.value.hint


@pytest.mark.parametrize("damage", [key for key in DAMAGES if key != "a folder"])
def test_a_reload_mends_a_manifest_that_was_damaged(damage: str, tmp_path: Path) -> None:
    MANIFEST.save(tmp_path)
    DAMAGES[damage](tmp_path / f"{MANIFEST.version}.json")
    MANIFEST.save(tmp_path)
    assert Manifest.load(tmp_path, MANIFEST.version) == MANIFEST


def test_a_topic_is_known_by_its_folder_or_by_what_landed(schemas: Path, home: Home, compiled: Compile) -> None:
    put(schemas, "orders", document("orders"))
    put(schemas, "payments", document("payments"), stage="pending")
    (schemas / "empty").mkdir()
    catalog = LocalCatalog(home).load()
    ensure_raw_table(catalog, "landed")
    ensure_raw_table(catalog, "orders")
    manifest = compiled()
    assert [each.name for each in manifest.topics] == ["empty", "landed", "orders", "payments"]
    assert {each.name for each in manifest.topics if each.contract} == {"orders"}
    assert not any(each.contract_problem for each in manifest.topics)


def test_where_nothing_is_there_are_no_topics(schemas: Path, compiled: Compile) -> None:
    schemas.mkdir()
    assert compiled() == Manifest(topics=())


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not JSON",
        b"\xff",
        b"[]",
        b"[" * 100_000,
        document("payments"),
        document("broken", owners=["nobody"]),
        document("broken", owners=[5]),
        document("broken", payload_columns=[{"name": 5, "type": "INT"}]),
        document("broken", description="\ud800"),
        document("broken", **{"\ud800": 1}),
    ],
    ids=lambda content: content[-40:],
)
def test_a_broken_contract_is_its_topics_trouble_alone(
    content: bytes, schemas: Path, home: Home, compiled: Compile
) -> None:
    put(schemas, "orders", document("orders"))
    path = put(schemas, "broken", content)
    put(schemas, "payments", document("payments"))
    manifest = compiled()
    manifest.save(home.manifests)
    topics = Manifest.load(home.manifests, manifest.version).by_name
    assert topics["orders"].contract is not None
    assert topics["payments"].contract is not None
    assert topics["broken"].contract is None
    assert str(path) in str(topics["broken"].contract_problem)


def test_a_folder_in_a_contracts_place_is_its_topics_trouble_alone(schemas: Path, compiled: Compile) -> None:
    put(schemas, "orders", document("orders"))
    (schemas / "broken" / "active" / "schema.json").mkdir(parents=True)
    topics = compiled().by_name
    assert topics["orders"].contract is not None
    assert topics["broken"].contract is None


def test_a_folder_or_a_table_that_cannot_be_a_topics_stops_nobody(schemas: Path, home: Home, compiled: Compile) -> None:
    put(schemas, "orders", document("orders"))
    put(schemas, "Bad-Name", document("orders"))
    LocalCatalog(home).load().create_table((RAW_DB, "Bad-Name_staging"), RAW_SCHEMA)
    assert list(compiled().by_name) == ["orders"]


def test_a_contract_that_is_mended_is_in_the_next_manifest(schemas: Path, compiled: Compile) -> None:
    put(schemas, "orders", b"{")
    broken = compiled()
    put(schemas, "orders", document("orders"))
    mended = compiled()
    assert mended.version != broken.version
    assert mended.by_name["orders"].contract_problem is None


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """The topics whose contracts were read, and not taken from among those that were read before."""
    seen: list[str | None] = []

    def read(content: bytes, topic: str | None, where: str) -> Contract:
        seen.append(topic)
        return read_contract(content, topic, where)

    monkeypatch.setattr(known_topics, "read_contract", read)
    return seen


def test_a_contract_that_has_not_changed_is_read_once(
    schemas: Path, compiled: Compile, reads: list[str | None]
) -> None:
    for name in ("orders", "payments"):
        put(schemas, name, document(name, version=2, owners=["team:commerce"]))
    first = compiled()
    assert compiled() == first
    assert compiled().version == first.version
    assert reads == ["orders", "payments"]
    put(schemas, "payments", document("payments", version=3))
    changed = compiled().by_name["payments"].contract
    assert changed
    assert changed.version == 3
    assert reads == ["orders", "payments", "payments"]


def test_a_contract_that_is_broken_is_told_each_time_and_a_good_one_before_it_does_not_count(
    schemas: Path, compiled: Compile
) -> None:
    put(schemas, "orders", document("orders"))
    assert compiled().by_name["orders"].contract
    path = put(schemas, "orders", b"{")
    for _ in range(2):
        topic = compiled().by_name["orders"]
        assert topic.contract is None
        assert str(path) in str(topic.contract_problem)
    path.unlink()
    assert compiled().by_name["orders"] == Topic(name="orders")


def test_what_other_code_has_read_is_read_again(
    schemas: Path, compiled: Compile, reads: list[str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    put(schemas, "orders", document("orders"))
    compiled()
    monkeypatch.setattr(contract_cache, "_reader", lambda: "another")
    compiled()
    compiled()
    assert reads == ["orders", "orders"]


@pytest.mark.parametrize("damage", [key for key in DAMAGES if key != "a folder"])
def test_contracts_are_read_again_where_those_that_were_read_are_damaged(
    damage: str, schemas: Path, home: Home, compiled: Compile
) -> None:
    put(schemas, "orders", document("orders"))
    before = compiled()
    DAMAGES[damage](home.cache / "contracts.json")
    assert compiled() == before
    file = home.cache / "contracts.json"
    file.write_bytes(file.read_bytes().replace(b'"table_name"', b'"no_such_key"'))
    assert compiled() == before
