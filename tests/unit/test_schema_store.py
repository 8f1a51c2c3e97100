"""What only a folder of contracts has. What every store does is asked in tests/aws."""

import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest

from leanops.errors import ContractsMissing, TopicNameInvalid
from leanops_resources import schema_store as module
from leanops_resources.schema_store import LocalSchemaStore, SchemaStore, Stage, schema_store


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


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_the_stages_are_pending_active_failed_and_archive() -> None:
    assert [stage.value for stage in Stage] == ["pending", "active", "failed", "archive"]


def test_a_folder_is_a_store_and_no_library_for_buckets_is_loaded_for_it(folder: Path) -> None:
    script = """if True:
        import sys
        from leanops_resources.schema_store import LocalSchemaStore, schema_store
        assert isinstance(schema_store(sys.argv[1]), LocalSchemaStore)
        assert not {"boto3", "botocore"} & set(sys.modules), sys.modules
    """
    subprocess.run([sys.executable, "-B", "-c", script, str(folder)], cwd=Path(__file__).parents[2], check=True)
    assert schema_store(folder).where("orders", Stage.ACTIVE) == str(folder / "orders" / "active" / "schema.json")
    assert schema_store(str(folder)).where("orders", Stage.ACTIVE) == schema_store(folder).where("orders", Stage.ACTIVE)


def test_where_a_contract_is_is_the_path_of_its_file(folder: Path, store: SchemaStore) -> None:
    paths = {stage: put(folder, "orders", stage.value, b"x") for stage in Stage}
    assert {stage: store.where("orders", stage) for stage in Stage} == {
        stage: str(path) for stage, path in paths.items()
    }


def test_where_no_file_is_there_is_none(folder: Path, store: SchemaStore) -> None:
    assert store.read("orders", Stage.ACTIVE) is None
    (folder / "orders" / "active" / "schema.json").mkdir(parents=True)
    assert store.read("orders", Stage.ACTIVE) is None
    (folder / "payments").write_text("a file where a folder should be")
    assert store.read("payments", Stage.ACTIVE) is None


def test_an_empty_folder_is_a_topics_place_or_a_strays(folder: Path, store: SchemaStore) -> None:
    for name in ("orders", "Events", ".git"):
        (folder / name).mkdir(parents=True)
    assert (store.topics(), store.strays(), store.uploads()) == (["orders"], ["Events"], [])


def test_a_folder_that_is_not_there_is_named_and_not_taken_for_an_empty_one(folder: Path, store: SchemaStore) -> None:
    for ask in (store.topics, store.strays, store.uploads):
        with pytest.raises(ContractsMissing, match="LEANOPS_SCHEMAS") as caught:
            ask()
        assert str(folder) in caught.value.problem


@pytest.mark.parametrize("topic", ["../orders", "..", "", "/etc", "a/b", "Orders", "errors", "a\0"])
def test_nothing_is_read_or_written_outside_a_topics_place(topic: str, folder: Path, store: SchemaStore) -> None:
    put(folder.parent, "orders", "active", b"outside")
    for refused in (
        lambda: store.read(topic, Stage.ACTIVE),
        lambda: store.where(topic, Stage.ACTIVE),
        lambda: store.write(topic, Stage.ACTIVE, b"x"),
        lambda: store.submit(topic, b"x"),
    ):
        with pytest.raises(TopicNameInvalid):
            refused()
    assert files(folder.parent) == {"orders/active/schema.json"}


def test_what_is_written_and_submitted_leaves_no_drafts_behind(folder: Path, store: SchemaStore) -> None:
    store.write("orders", Stage.ACTIVE, b"x")
    store.write("orders", Stage.ACTIVE, b"y")
    submitted = {store.submit("orders", b"x") for _ in range(2)}
    assert files(folder) == {"orders/active/schema.json", *(str(Path(each).relative_to(folder)) for each in submitted)}


def test_an_upload_is_by_whoever_owns_its_file(folder: Path, store: SchemaStore) -> None:
    put(folder, "orders", "pending", b"x")
    (upload,) = store.uploads()
    assert upload.by == pwd.getpwuid(os.getuid()).pw_name


def test_an_upload_that_goes_at_the_last_moment_is_not_taken_for_an_empty_one(
    folder: Path, store: SchemaStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(folder, "events", "pending", b"stays")
    going = put(folder, "orders", "pending", b"goes")

    def age(path: Path) -> tuple[int, str]:
        going.unlink(missing_ok=True)
        return 0, str(path)

    monkeypatch.setattr(module, "_age", age)
    assert [upload.content for upload in store.uploads()] == [b"stays"]


def test_a_folder_under_pending_is_no_upload(folder: Path, store: SchemaStore) -> None:
    (folder / "orders" / "pending" / "schema.json").mkdir(parents=True)
    (folder / "payments").mkdir()
    (folder / "payments" / "pending").write_text("a file where a folder should be")
    assert store.uploads() == []
