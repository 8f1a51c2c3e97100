import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest
from pyiceberg.types import StringType

from leanops.errors import HomeNotWritable, LeanOpsError, StateCorrupt
from leanops.home import Home
from leanops.names import CATALOG, NAMESPACES, RAW_DB
from leanops.raw.table import RAW_SCHEMA, ensure_raw_table
from leanops.tables import PROPERTIES
from leanops_resources import sql_catalog
from leanops_resources.catalog import LocalCatalog

from .conftest import PROCESSES, InProcesses, Together

HOMES = ["plain", "with space", "per%20cent", "ümlaut", "quo'te", "amper&sand", "semi;colon"]


def namespaces(home: Home) -> set[str]:
    return {".".join(name) for name in LocalCatalog(home).load().list_namespaces()}


def new_raw_table(home: Home, topic: str) -> str:
    return ensure_raw_table(LocalCatalog(home).load(), topic).location()


def test_a_catalog_has_the_platforms_namespaces_from_the_start(home: Home) -> None:
    assert namespaces(home) == set(NAMESPACES)
    assert namespaces(home) == set(NAMESPACES)


def test_a_table_is_there_for_whoever_loads_the_catalog_next(home: Home) -> None:
    location = new_raw_table(home, "orders")
    assert LocalCatalog(home).load().load_table((RAW_DB, "orders_staging")).location() == location


def test_a_raw_table_is_as_the_spec_has_it(home: Home) -> None:
    table = ensure_raw_table(LocalCatalog(home).load(), "orders")
    assert table.format_version == 2
    names = [field.name for field in table.schema().fields]
    assert names[:5] == ["message_id", "topic_name", "json_payload", "ingestion_ts", "publish_time"]
    assert [field.name for field in table.schema().fields if field.required] == ["message_id"]
    (partition,) = table.spec().fields
    assert (str(partition.transform), table.schema().find_column_name(partition.source_id)) == ("day", "publish_time")
    assert PROPERTIES["write.target-file-size-bytes"] == "268435456"
    assert PROPERTIES["commit.manifest.target-size-bytes"] == "8388608"
    assert {**PROPERTIES, **table.properties}.items() - table.properties.items() <= {("format-version", "2")}


def test_metadata_that_a_process_has_written_or_read_is_not_read_again(home: Home) -> None:
    catalog = LocalCatalog(home).load()
    made = ensure_raw_table(catalog, "orders")
    with made.update_schema() as update:
        update.add_column("more", StringType())
    files = [*home.warehouse.rglob("*.metadata.json")]
    hidden = [file.rename(file.with_suffix(".hidden")) for file in files]
    assert catalog.load_table(made.name()).metadata == made.metadata
    sql_catalog._kept.clear()
    with pytest.raises(FileNotFoundError):
        catalog.load_table(made.name())
    for file, place in zip(hidden, files, strict=True):
        file.rename(place)
    assert catalog.load_table(made.name()).metadata == made.metadata


def test_topics_that_ever_landed_are_the_ones_with_a_raw_table(home: Home) -> None:
    assert LocalCatalog(home).raw_topics() == []
    catalog = LocalCatalog(home).load()
    for topic in ("payments", "orders", "x_staging"):
        ensure_raw_table(catalog, topic)
    catalog.create_table((RAW_DB, "dlq_errors"), RAW_SCHEMA)
    assert LocalCatalog(home).raw_topics() == ["orders", "payments", "x_staging"]


def test_the_place_of_every_tables_metadata_is_known_at_once_and_changes_with_every_commit(home: Home) -> None:
    assert LocalCatalog(home).metadata_locations() == {}
    table = ensure_raw_table(LocalCatalog(home).load(), "orders")
    other = ensure_raw_table(LocalCatalog(home).load(), "payments")
    before = {table.name(): table.metadata_location, other.name(): other.metadata_location}
    assert LocalCatalog(home).metadata_locations() == before
    with table.transaction() as change:
        change.set_properties(said="something")
    assert LocalCatalog(home).metadata_locations() == {**before, table.name(): table.metadata_location}
    assert table.metadata_location != before[table.name()]


def test_two_homes_know_nothing_of_each_other(tmp_path: Path) -> None:
    one, other = (Home(tmp_path / name).prepare() for name in ("one", "other"))
    new_raw_table(one, "orders")
    assert LocalCatalog(one).raw_topics() == ["orders"]
    assert LocalCatalog(other).raw_topics() == []


@pytest.mark.parametrize("name", HOMES)
def test_whatever_a_home_is_called_all_of_it_lies_inside(name: str, tmp_path: Path) -> None:
    home = Home(tmp_path / name).prepare()
    new_raw_table(home, "orders")
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert home.catalog.is_file()
    assert list(home.warehouse.rglob("*.metadata.json"))


@pytest.mark.parametrize("name", ["quest?ion", "ha#sh"])
def test_a_home_whose_name_no_address_can_hold_works_or_is_refused_and_nothing_lies_outside(
    name: str, tmp_path: Path
) -> None:
    with suppress(LeanOpsError):
        new_raw_table(Home(tmp_path / name).prepare(), "orders")
    assert {path.name for path in tmp_path.iterdir()} <= {name}


def test_spark_is_told_of_the_same_catalog_and_warehouse(home: Home) -> None:
    conf = LocalCatalog(home).spark_conf()
    assert conf["spark.sql.defaultCatalog"] == CATALOG
    assert conf[f"spark.sql.catalog.{CATALOG}.uri"].startswith(f"jdbc:sqlite:{home.catalog}")
    assert new_raw_table(home, "orders").startswith(conf[f"spark.sql.catalog.{CATALOG}.warehouse"])


def test_readers_do_not_wait_for_the_writer(home: Home) -> None:
    LocalCatalog(home).load()
    with closing(sqlite3.connect(home.catalog)) as db:
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def damaged_pages(path: Path) -> None:
    """A file that still begins like a database and is none any more."""
    LocalCatalog(Home(path.parent)).load().close()
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    content = bytearray(path.read_bytes())
    content[100:] = b"\xa5" * (len(content) - 100)
    path.write_bytes(content)


UNUSABLE: dict[str, tuple[Callable[[Path], object], type[LeanOpsError]]] = {
    "garbage": (lambda path: path.write_bytes(b"this is no database at all" * 100), StateCorrupt),
    "damaged pages": (damaged_pages, StateCorrupt),
    "a folder": (Path.mkdir, HomeNotWritable),
}


@pytest.mark.parametrize(("spoil", "error"), UNUSABLE.values(), ids=UNUSABLE.keys())
def test_a_catalog_that_cannot_be_used_is_named_with_what_to_do(
    spoil: Callable[[Path], object], error: type[LeanOpsError], home: Home
) -> None:
    spoil(home.catalog)
    with pytest.raises(error) as caught:
        LocalCatalog(home).load()
    assert str(home.catalog) in caught.value.problem
    assert caught.value.hint


def test_a_damaged_catalog_is_left_as_it_is(home: Home) -> None:
    home.catalog.write_bytes(b"this is no database at all" * 100)
    with pytest.raises(StateCorrupt):
        LocalCatalog(home).load()
    assert home.catalog.read_bytes() == b"this is no database at all" * 100


def test_ten_threads_may_load_a_new_catalog_at_the_same_moment(home: Home, together: Together) -> None:
    assert together([lambda: namespaces(home)] * 10) == [set(NAMESPACES)] * 10


def test_ten_threads_may_create_a_topics_table_at_the_same_moment(home: Home, together: Together) -> None:
    catalogs = [LocalCatalog(home).load() for _ in range(10)]
    tables = together([lambda catalog=catalog: ensure_raw_table(catalog, "orders").location() for catalog in catalogs])
    assert len(set(tables)) == 1
    assert LocalCatalog(home).raw_topics() == ["orders"]


def test_several_processes_may_begin_with_one_new_catalog_at_the_same_moment(
    home: Home, in_processes: InProcesses
) -> None:
    assert len(set(in_processes(new_raw_table, [(home, "orders")] * PROCESSES))) == 1
    assert LocalCatalog(home).raw_topics() == ["orders"]
