"""What the UI shows of a materialised day."""

from datetime import date
from typing import TYPE_CHECKING, Any

import dagster as dg

from leanops.contracts.model import Contract
from leanops.names import Layer, table
from leanops_assets.specs import asset_key

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table


def day_metadata(catalog: "Catalog", layer: Layer, topic: str, day: date) -> dict[str, Any]:
    """A day of a topic's own table, with the table's columns."""
    from leanops.inventory import table_day

    held = catalog.load_table(table(layer, topic))
    return {**_day(table_day(held, day)), "dagster/column_schema": _column_schema(held)}


def errors_day_metadata(errors: "Table", topic: str, day: date) -> dict[str, Any]:
    """A day of a topic in a table that all topics share."""
    from pyiceberg.expressions import EqualTo

    from leanops.inventory import table_day

    errors.refresh()
    return _day(table_day(errors, day, EqualTo(term="topic_name", value=topic)))


def column_lineage(topic: str, contract: Contract) -> dg.TableColumnLineage:
    """Each column of Curated comes from the column of that name in Standardized."""
    source = asset_key(Layer.STANDARDIZED, topic)
    names = [column.name for column in contract.envelope_columns] + [column.name for column in contract.payload_columns]
    return dg.TableColumnLineage({name: [dg.TableColumnDep(asset_key=source, column_name=name)] for name in names})


def snapshot_text(snapshot_id: int | None) -> str:
    """A snapshot id as text: the UI would round a number of this size."""
    return "none yet" if snapshot_id is None else str(snapshot_id)


def _day(held: Any) -> dict[str, Any]:
    return {
        "dagster/partition_row_count": held.rows,
        "data_files": held.data_files,
        "bytes": held.bytes,
        "snapshot_id": snapshot_text(held.snapshot_id),
    }


def _column_schema(held: "Table") -> dg.TableSchema:
    return dg.TableSchema(
        [dg.TableColumn(field.name, str(field.field_type), description=field.doc) for field in held.schema().fields]
    )
