"""Land a file and tell Dagster which days of RAW have grown: one landing can touch many publish days."""

from pathlib import Path

import dagster as dg

from leanops.home import Home
from leanops.names import Layer
from leanops.progress import Advance
from leanops.raw.landing import Landed, land_file
from leanops.settings import Settings
from leanops_assets.instance import dagster_instance
from leanops_assets.metadata import day_metadata
from leanops_assets.specs import asset_key
from leanops_resources.catalog import LocalCatalog
from leanops_resources.state.sqlite import SqliteStateStore


def land_and_report(settings: Settings, topic: str, file: Path, skip_bad: bool, advance: Advance) -> Landed:
    """Append `file` to RAW in one commit and record a materialisation for each day that it touched."""
    home = Home(settings.home).prepare()
    catalog = LocalCatalog(home).load()
    reserve = SqliteStateStore(home.state).reserve
    landed = land_file(catalog, reserve, topic, file, settings.first_day, skip_bad, advance)
    if landed.rows:
        with dagster_instance(home) as instance:
            for day, rows in landed.rows_by_day.items():
                instance.report_runless_asset_event(
                    dg.AssetMaterialization(
                        asset_key(Layer.RAW, topic),
                        partition=day.isoformat(),
                        metadata={
                            **day_metadata(catalog, Layer.RAW, topic, day),
                            "rows_landed": rows,
                            "landed_from": file.name,
                        },
                    )
                )
    return landed
