from pathlib import Path

import pytest

from leanops.errors import ContractsMissing, TopicNameInvalid
from leanops_resources.schema_store import LocalSchemaStore, SchemaStore, Stage


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "schemas"


@pytest.fixture
def store(folder: Path) -> SchemaStore:
    return LocalSchemaStore(folder)


def put(folder: Path, topic: str, stage: str, content: bytes) -> Path:
    path = folder / topic / stage / "schema.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    return path


def test_a_contract_is_handed_out_byte_for_byte_from_its_stage(folder: Path, store: SchemaStore) -> None:
    contents = {stage: f"\xff not even JSON {stage}\r\n".encode("latin-1") for stage in Stage}
    paths = {stage: put(folder, "orders", stage.value, content) for stage, content in contents.items()}
    assert {stage: store.read("orders", stage) for stage in Stage} == contents
    assert {stage: store.where("orders", stage) for stage in Stage} == {
        stage: str(path) for stage, path in paths.items()
    }


def test_the_stages_are_pending_active_failed_and_archive() -> None:
    assert [stage.value for stage in Stage] == ["pending", "active", "failed", "archive"]


def test_where_no_contract_is_there_is_none(folder: Path, store: SchemaStore) -> None:
    assert store.read("orders", Stage.ACTIVE) is None
    put(folder, "orders", "pending", b"{}")
    assert store.read("orders", Stage.ACTIVE) is None
    (folder / "payments").write_text("a file where a folder should be")
    assert store.read("payments", Stage.ACTIVE) is None


def test_topics_are_the_folders_with_a_safe_name_in_order(folder: Path, store: SchemaStore) -> None:
    for name in ("orders", "events", "a1"):
        (folder / name).mkdir(parents=True)
    put(folder, "broken", "active", b"x")
    assert store.topics() == ["a1", "broken", "events", "orders"]
    assert store.strays() == []


@pytest.mark.parametrize("name", ["Orders", "a-b", "1a", "a b", "errors", "parse_errors", "dlq_errors", "a" * 65, "é"])
def test_a_folder_that_cannot_be_a_topics_is_a_stray(name: str, folder: Path, store: SchemaStore) -> None:
    (folder / name).mkdir(parents=True)
    (folder / "orders").mkdir()
    assert store.topics() == ["orders"]
    assert store.strays() == [name]


@pytest.mark.parametrize("name", [".git", ".DS_Store", ".pending"])
def test_hidden_folders_are_neither_topics_nor_strays(name: str, folder: Path, store: SchemaStore) -> None:
    (folder / name).mkdir(parents=True)
    assert (store.topics(), store.strays()) == ([], [])


def test_files_beside_the_topics_are_neither_topics_nor_strays(folder: Path, store: SchemaStore) -> None:
    folder.mkdir()
    (folder / "README.md").touch()
    (folder / "orders").touch()
    assert (store.topics(), store.strays()) == ([], [])


def test_a_folder_that_is_not_there_is_named_and_not_taken_for_an_empty_one(folder: Path, store: SchemaStore) -> None:
    for ask in (store.topics, store.strays):
        with pytest.raises(ContractsMissing, match="LEANOPS_SCHEMAS") as caught:
            ask()
        assert str(folder) in caught.value.problem


@pytest.mark.parametrize("topic", ["../orders", "..", "", "/etc", "a/b", "Orders", "errors", "a\0"])
def test_nothing_is_read_from_outside_a_topics_place(topic: str, folder: Path, store: SchemaStore) -> None:
    put(folder.parent, "orders", "active", b"outside")
    with pytest.raises(TopicNameInvalid):
        store.read(topic, Stage.ACTIVE)
    with pytest.raises(TopicNameInvalid):
        store.where(topic, Stage.ACTIVE)
