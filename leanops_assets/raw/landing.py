"""Land a file and tell Dagster which days of RAW have grown: one landing can touch many publish days."""

from pathlib import Path

import dagster as dg

from leanops.home import Home
from leanops.names import Layer
from leanops.progress import Advance
from leanops.raw.landing import Landed, land_file
from leanops.settings import Settings
from leanops_assets.instance import dagster_instance
from leanops_assets.metadata import days_metadata
from leanops_assets.specs import asset_key
from leanops_resources.catalog import LocalCatalog


def land_and_report(settings: Settings, topic: str, file: Path, skip_bad: bool, advance: Advance) -> Landed:
    """Append `file` to RAW in one commit and record a materialisation for each day that it touched."""
    home = Home(settings.home).prepare()
    catalog = LocalCatalog(home).load()
    landed = land_file(catalog, topic, file, settings.first_day, skip_bad, advance)
    if landed.rows:
        shown = days_metadata(catalog, Layer.RAW, topic, landed.rows_by_day)
        with dagster_instance(home) as instance:
            for day, rows in landed.rows_by_day.items():
                instance.report_runless_asset_event(
                    dg.AssetMaterialization(
                        asset_key(Layer.RAW, topic),
                        partition=day.isoformat(),
                        metadata={
                            **shown[day],
                            "rows_landed": rows,
                            "landed_from": file.name,
                        },
                    )
                )
    return landed
