"""`ops/error_groups`: what is wrong at present, over all topics, drawn anew every hour."""

import dagster as dg

from leanops.contracts.manifest import Manifest
from leanops_assets.metadata import markdown_table
from leanops_assets.ops.table_asset import ops_asset
from leanops_resources.dagster_resources import CatalogResource, SparkConnectResource

_SHOWN = ("topic", "rule", "column", "count", "first_seen", "last_seen", "owner")
_GROUPS_SHOWN = 30


def build_error_groups(manifest: Manifest) -> dg.AssetsDefinition:
    """The asset of `ops_db.error_groups`; `manifest` says whose the topics are."""

    @ops_asset("error_groups", "Open errors of all topics by rule and column: how many, since when, whose.", __file__)
    def error_groups(iceberg: CatalogResource, spark: SparkConnectResource) -> dg.MaterializeResult[None]:
        from leanops.ops.error_groups import ERROR_GROUPS, save_error_groups

        catalog = iceberg.load()
        save_error_groups(spark.session(), catalog, manifest.owners)
        groups = catalog.load_table(ERROR_GROUPS).scan(selected_fields=_SHOWN).to_arrow()
        rows = groups.sort_by([("count", "descending")]).slice(0, _GROUPS_SHOWN).to_pylist()
        return dg.MaterializeResult(
            metadata={
                "dagster/row_count": groups.num_rows,
                "errors": sum(groups["count"].to_pylist()),
                "largest": markdown_table(_SHOWN, ([row[name] for name in _SHOWN] for row in rows)),
            }
        )

    return error_groups
