"""Land a file and tell Dagster which days of RAW have grown: one landing can touch many publish days."""

from pathlib import Path

from leanops.home import Home
from leanops.progress import Advance
from leanops.raw.landing import Landed, check_file, land_checked
from leanops.raw.table import DELIVERY
from leanops.settings import Settings
from leanops_assets.instance import dagster_instance
from leanops_assets.raw.deliveries import deliver, intake_of, new_delivery
from leanops_assets.raw.report import landed_days
from leanops_assets.run_batch import WAIT
from leanops_resources.catalog import LocalCatalog
from leanops_resources.state.store import Table
from leanops_resources.state.stores import state_store


def land_and_report(settings: Settings, topic: str, file: Path, skip_bad: bool, advance: Advance) -> Landed:
    """Append `file` to RAW in one commit and record a materialisation for each day that it touched."""
    home = Home(settings.home).prepare()
    checked = check_file(file, settings.first_day, skip_bad, advance)
    catalog, store = LocalCatalog(home).load(), state_store(settings)
    if not checked.days:
        return land_checked(catalog, topic, checked)
    with intake_of(catalog, store, topic, f"leanops land {file.name}", WAIT):
        delivery = new_delivery(topic, file.name, Table.RAW, checked.days)
        said = {DELIVERY: delivery.delivery_id}
        landed = deliver(store, delivery, lambda: land_checked(catalog, topic, checked, said))
    with dagster_instance(home) as instance:
        for event in landed_days(catalog, topic, landed.rows_by_day, file.name):
            instance.report_runless_asset_event(event)
    return landed
