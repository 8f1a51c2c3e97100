"""What the UI shows of a materialised day."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any

import dagster as dg

from leanops.contracts.model import Contract
from leanops.names import Layer, table
from leanops_assets.specs import asset_key

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from leanops.curated.binding import BoundColumn
    from leanops.inventory import TableDay


def days_metadata(held: "Table", days: Collection[date]) -> dict[date, dict[str, Any]]:
    """What a table holds of each day, its columns and its rows."""
    from leanops.inventory import table_days

    return shown_days(table_days(held, days), held)


def shown_days(days: "Mapping[date, TableDay]", held: "Table") -> dict[date, dict[str, Any]]:
    """What is shown of these days, and of the whole table."""
    from leanops.inventory import row_count

    whole = {"dagster/row_count": row_count(held), "dagster/column_schema": _columns(held)}
    return {
        day: {
            "dagster/partition_row_count": found.rows,
            "data_files": found.data_files,
            "bytes": found.bytes,
            "snapshot_id": snapshot_text(found.snapshot_id),
            **whole,
        }
        for day, found in days.items()
    }


def day_query(layer: Layer, topic: str, day: date) -> dg.MarkdownMetadataValue:
    """A query for some rows of a day. The rows themselves stay in their table: whoever sees the UI may not see them."""
    name = ".".join(table(layer, topic))
    return dg.MetadataValue.md(f"```sql\nSELECT * FROM {name} WHERE to_date(publish_time) = DATE '{day}' LIMIT 5\n```")


def markdown_table(names: Sequence[str], rows: Iterable[Sequence[object]], signs: int = 40) -> dg.MarkdownMetadataValue:
    """Rows under their headings, with so many signs in a cell at most."""
    lines = [names, ["---"] * len(names), *([_cell(value, signs) for value in row] for row in rows)]
    return dg.MetadataValue.md("\n".join(f"| {' | '.join(line)} |" for line in lines))


def column_lineage(topic: str, contract: Contract, bound: "Iterable[BoundColumn]") -> dg.TableColumnLineage:
    """From which columns of Standardized each column of Curated comes."""
    source = asset_key(Layer.STANDARDIZED, topic)
    origins: dict[str, Sequence[str]] = {column.name: [column.name] for column in contract.envelope_columns}
    origins |= {each.column.name: each.fields for each in bound}
    return dg.TableColumnLineage(
        {
            name: [dg.TableColumnDep(asset_key=source, column_name=each) for each in fields]
            for name, fields in origins.items()
        }
    )


def snapshot_text(snapshot_id: int | None) -> str:
    """A snapshot id as text: the UI would round a number of this size."""
    return "none yet" if snapshot_id is None else str(snapshot_id)


def _cell(value: object, signs: int) -> str:
    """A value as it can stand in a table of Markdown: shortened, and nothing in it obeyed."""
    text = "" if value is None else str(value)
    short = text if len(text) <= signs else f"{text[: signs - 1]}…"
    return "".join(f"\\{sign}" if sign in "\\`*_{}[]<>()#+-!|~&" else " " if sign.isspace() else sign for sign in short)


def _columns(held: "Table") -> dg.TableSchema:
    return dg.TableSchema(
        [dg.TableColumn(field.name, str(field.field_type), description=field.doc) for field in held.schema().fields]
    )
