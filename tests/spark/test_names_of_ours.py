"""No name in a payload or contract collides with one of ours: columns, partition fields, what rows carry inside."""

import re
from functools import reduce
from pathlib import Path

import pytest
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema

from leanops import curated, ops, raw, standardized
from leanops.curated.table import CURATED_PARTITIONS, ERRORS_PARTITIONS, ERRORS_SCHEMA
from leanops.names import METADATA_COLUMNS, RESERVED_COLUMNS, SAFE_NAME, Layer
from leanops.ops.drift_log import DRIFT_PARTITIONS, DRIFT_SCHEMA
from leanops.raw.dead_letters import DEAD_LETTERS_SCHEMA
from leanops.raw.table import RAW_PARTITIONS, RAW_SCHEMA
from leanops.standardized.flatten_plan import column_name
from leanops.standardized.table import PARSE_ERRORS_SCHEMA, STANDARDIZED_PARTITIONS, STANDARDIZED_SCHEMA, flat_columns
from tests.chosen_topic import ChosenTopic, Row, contract

SCHEMAS = (RAW_SCHEMA, STANDARDIZED_SCHEMA, PARSE_ERRORS_SCHEMA, ERRORS_SCHEMA, DRIFT_SCHEMA, DEAD_LETTERS_SCHEMA)
PARTITIONS = (RAW_PARTITIONS, STANDARDIZED_PARTITIONS, CURATED_PARTITIONS, ERRORS_PARTITIONS, DRIFT_PARTITIONS)
FOREIGN = (
    "file_path",
    "pos",
    "row",
    "partition",
    "spec_id",
    "operation",
    "snapshot_id",
    "select",
    "order",
    "current_date",
)
"""Names that Iceberg and SQL have for themselves elsewhere."""


def names_of(schemas: tuple[Schema, ...], specs: tuple[PartitionSpec, ...]) -> set[str]:
    columns = {field.name for schema in schemas for field in schema.fields}
    return columns | {field.name for spec in specs for field in spec.fields}


def names_inside() -> set[str]:
    """What rows carry while they are built: every plain word in quotes in the code that builds."""
    files = (file for package in (curated, ops, raw, standardized) for file in Path(package.__path__[0]).glob("*.py"))
    return {word for file in files for word in re.findall(r'"(_?[a-z][a-z0-9_]{0,40})"', file.read_text())}


NAMES = sorted({*names_of(SCHEMAS, PARTITIONS), *METADATA_COLUMNS, *RESERVED_COLUMNS, *FOREIGN, *names_inside(), "c0"})


def column_of(name: str) -> str | None:
    """The column that a contract may have for a payload field of that name."""
    plain = column_name((name,))
    return plain if SAFE_NAME.fullmatch(plain) else None


def nested(name: str) -> Row:
    """A payload in which the name is spread over levels: `publish_time` as `publish.Time`."""
    levels = [level.capitalize() if i else level for i, level in enumerate(name.split("_"))]
    return reduce(lambda below, level: {level: below}, reversed(levels), f"in {name}")  # type: ignore[arg-type, return-value]


def test_a_payload_and_a_contract_may_use_every_name_of_ours(chosen: ChosenTopic) -> None:
    assert {"publish_time_day", "overflow_json", "error_kind", "record_key", "closed", "_pos"} <= {*NAMES}
    columns = {name: column for name in NAMES if (column := column_of(name))}
    wanted = contract(
        [{"name": column, "type": "STRING"} for column in columns.values()],
        [{"name": f"of_{name}", "source": name} for name in NAMES if SAFE_NAME.fullmatch(f"of_{name}")],
    )
    chosen.land([{name: f"in {name}" for name in NAMES}, *map(nested, NAMES)])
    chosen.build(wanted)

    row = chosen.rows(Layer.CURATED)["m0"]
    assert {name: row[column] for name, column in columns.items()} == {name: f"in {name}" for name in columns}
    assert {name: row[f"of_{name}"] for name in columns} == {name: f"in {name}" for name in columns}
    held = flat_columns(chosen.table(Layer.STANDARDIZED).schema())
    rows = chosen.rows(Layer.STANDARDIZED)
    for i, name in enumerate(NAMES, 1):
        assert f"in {name}" in [rows[f"m{i}"][column.name] for column in held], name
    chosen.assert_closed(wanted)


@pytest.mark.parametrize("name", [name for name in NAMES if SAFE_NAME.fullmatch(name) and name not in RESERVED_COLUMNS])
def test_a_name_that_is_not_reserved_is_accepted_everywhere(name: str) -> None:
    assert contract([{"name": name, "type": "INT"}])
    assert contract([{"name": "any", "source": name, "type": "INT"}], [{"name": name, "source": name}])
