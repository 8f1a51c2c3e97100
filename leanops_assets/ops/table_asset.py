"""How an asset of `ops_db` presents itself in the UI."""

from collections.abc import Callable
from typing import Any

import dagster as dg


def ops_asset(
    name: str, description: str, code: str, check_specs: list[dg.AssetCheckSpec] | None = None
) -> Callable[[Callable[..., Any]], dg.AssetsDefinition]:
    """The asset of the table `ops_db.NAME`, filled by the function that it decorates, which stands in `code`."""
    return dg.asset(
        key=["ops", name],
        group_name="ops",
        kinds={"iceberg"},
        description=description,
        check_specs=check_specs,
        metadata={
            "dagster/table_name": f"leanops.ops_db.{name}",
            "dagster/code_references": dg.CodeReferencesMetadataValue(
                code_references=[dg.LocalFileCodeReference(file_path=code)]
            ),
        },
    )
