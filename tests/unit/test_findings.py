"""What is pending is read from metadata once, and again after every commit."""

import json
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest

from leanops.contracts.manifest import Topic
from leanops.contracts.reading import read_contract
from leanops.home import Home
from leanops.names import RAW_DB, Layer, table
from leanops.raw.landing import land_file
from leanops.raw.table import RAW_PARTITIONS, RAW_SCHEMA
from leanops.tables import ensure_table
from leanops_resources import findings as module
from leanops_resources.catalog import LocalCatalog
from leanops_resources.findings import Finding, findings

FIRST_DAY = date(2025, 1, 1)
Land = Callable[..., int]


def orders(**changes: object) -> Topic:
    columns = [{"name": "amount", "type": "DECIMAL(18,2)"}]
    contract = {"table_name": "orders", "envelope_columns": [], "payload_columns": columns, **changes}
    return Topic(name="orders", contract=read_contract(json.dumps(contract).encode(), "orders", "orders"))


@pytest.fixture
def land(home: Home, tmp_path: Path) -> Land:
    """Land a message of a day; how large the file is that it is in."""
    numbers = iter(range(1_000))

    def land(day: str = "2026-01-15", topic: str = "orders") -> int:
        line = {"message_id": f"m{next(numbers)}", "publish_time": f"{day}T08:00:00Z", "payload": {}}
        (tmp_path / "one.ndjson").write_text(json.dumps(line))
        before = set(home.warehouse.rglob("*.parquet"))
        land_file(LocalCatalog(home).load(), topic, tmp_path / "one.ndjson", FIRST_DAY)
        (file,) = set(home.warehouse.rglob("*.parquet")) - before
        return file.stat().st_size

    return land


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The topics whose metadata was read."""
    seen: list[str] = []
    pending, buffered = module.pending, module.buffered
    monkeypatch.setattr(module, "pending", lambda *of: (seen.append(of[1]), pending(*of))[1])
    monkeypatch.setattr(module, "buffered", lambda *of: (seen.append(of[1]), buffered(*of))[1])
    return seen


def look(home: Home, topic: Topic | None = None) -> Finding:
    with findings(home, LocalCatalog(home)) as found:
        return found.of(topic or orders())


def say_built(home: Home, layer: Layer, **checkpoint: str) -> None:
    """Commit to a layer what a build would say."""
    built = ensure_table(LocalCatalog(home).load(), table(layer, "orders"), RAW_SCHEMA, RAW_PARTITIONS)
    properties = {f"leanops.{key.replace('_', '-')}": value for key, value in checkpoint.items()}
    with built.transaction() as change, change.update_snapshot(snapshot_properties=properties).fast_append():
        pass


def raw_snapshot(home: Home) -> str:
    snapshot = LocalCatalog(home).load().load_table((RAW_DB, "orders_staging")).current_snapshot()
    assert snapshot
    return str(snapshot.snapshot_id)


def test_what_has_landed_is_pending_with_its_days_and_its_size(home: Home, land: Land) -> None:
    assert look(home) == Finding()
    size = land("2026-01-15") + land("2026-01-03")
    found = look(home).pending
    assert found
    assert (found.days, found.upto, found.bytes) == ({date(2026, 1, 15), date(2026, 1, 3)}, 2, size)


def test_only_what_has_landed_since_the_last_build_is_counted(home: Home, land: Land) -> None:
    land("2026-01-15")
    say_built(home, Layer.STANDARDIZED, upto="1", raw_snapshot=raw_snapshot(home))
    size = land("2026-01-16")
    found = look(home).pending
    assert found
    assert (found.days, found.bytes) == ({date(2026, 1, 16)}, size)


def test_a_table_without_a_commit_since_is_not_read_again_by_whatever_process(
    home: Home, land: Land, reads: list[str]
) -> None:
    land()
    first = look(home)
    assert first.pending
    assert look(home) == first
    assert reads == ["orders"]


def test_every_commit_to_any_layer_and_every_change_of_the_contract_is_seen(
    home: Home, land: Land, reads: list[str]
) -> None:
    land()
    snapshot, contract = raw_snapshot(home), orders().contract
    assert contract
    assert look(home).pending
    say_built(home, Layer.STANDARDIZED, upto="1", raw_snapshot=snapshot)
    assert look(home).pending, "Curated lags behind"
    say_built(home, Layer.CURATED, upto="1", contract=contract.fingerprint, contract_version=str(contract.version))
    assert look(home).pending is None
    assert look(home).pending is None
    changed = orders(payload_columns=[{"name": "amount", "type": "STRING"}])
    assert look(home, changed).pending, "it is built for another contract"
    assert look(home, orders(version=contract.version + 1)).pending, "its open errors are of an earlier version"
    assert look(home).pending is None
    land("2026-01-16")
    found = look(home).pending
    assert found
    assert found.days == {date(2026, 1, 16)}
    assert len(reads) == 7


def test_what_a_topic_without_a_contract_buffers_is_counted_until_it_has_one(home: Home, land: Land) -> None:
    land(topic="orders")
    land(topic="orders")
    assert look(home, Topic(name="orders")) == Finding(buffered=2)
    assert look(home).pending


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"rules": 0, "topics": {}}', b'{"rules": 2, "topics": {"orders": 1}}']
)
def test_a_file_that_cannot_be_read_is_written_anew(home: Home, land: Land, content: bytes, reads: list[str]) -> None:
    land()
    (home.cache / "pending.json").write_bytes(content)
    assert look(home).pending
    assert look(home).pending
    assert reads == ["orders"]


def test_a_topic_that_cannot_be_read_is_not_remembered(home: Home, land: Land) -> None:
    land()
    metadata = home.warehouse / RAW_DB / "orders_staging" / "metadata"
    aside = metadata.rename(metadata.with_name("aside"))
    with findings(home, LocalCatalog(home)) as found, pytest.raises(FileNotFoundError):
        found.of(orders())
    aside.rename(metadata)
    assert look(home).pending
