"""A topic whose payloads and contract a test chooses."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.expressions import And, EqualTo, IsNull
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from leanops.contracts.model import Contract
from leanops.contracts.reading import read_contract
from leanops.home import Home
from leanops.names import SOURCE, Layer, table
from leanops.raw.landing import land_file
from tests.accounting import all_accounts_of
from tests.building import curate, standardize

Row = dict[str, Any]


@dataclass(frozen=True)
class ChosenTopic:
    """A topic, how it is landed into and built, and what its tables hold then."""

    home: Home
    catalog: Catalog
    spark: SparkSession
    topic: str

    def land(self, payloads: Sequence[object], first: int = 0) -> None:
        lines = (
            {
                "message_id": f"m{first + i}",
                "publish_time": f"2026-01-01T08:{(first + i) // 60:02}:{(first + i) % 60:02}Z",
                "payload": payload,
            }
            for i, payload in enumerate(payloads)
        )
        file = self.home.path / f"{self.topic}.ndjson"
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
        land_file(self.catalog, self.topic, file, date(2025, 1, 1))

    def build(self, contract: Contract) -> None:
        for build in (standardize, curate):
            build(self.spark, self.catalog, self.topic, contract)

    def table(self, layer: Layer) -> Table:
        return self.catalog.load_table(table(layer, self.topic))

    def rows(self, layer: Layer) -> dict[str, Row]:
        """What a table holds, by message; of the errors those that are open."""
        held = self.table(layer)
        own = And(EqualTo("topic_name", self.topic), IsNull("closed")) if layer is Layer.ERRORS else None  # type: ignore[call-arg, misc]
        rows = (held.scan(row_filter=own) if own else held.scan()).to_arrow().to_pylist()
        return {row["message_id"]: row for row in rows}

    def broken(self) -> dict[str, list[tuple[str, str]]]:
        errors = self.rows(Layer.ERRORS)
        return {name: [(rule["column"], rule["rule"]) for rule in row["broken_rules"]] for name, row in errors.items()}

    def assert_closed(self, contract: Contract) -> None:
        accounts = all_accounts_of(self.spark, self.catalog, self.topic, contract)
        assert {account.layer for account in accounts} == {*SOURCE}
        assert all(account.is_clean for account in accounts)


def contract(columns: Sequence[Row], envelope: Sequence[Row] = (), **more: Any) -> Contract:
    """A contract that the linter accepts."""
    document = {"table_name": "t", "envelope_columns": [*envelope], "payload_columns": [*columns], **more}
    return read_contract(json.dumps(document).encode(), "t", "the test's contract")
