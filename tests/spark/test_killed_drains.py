"""A drain that is killed anywhere loses nothing and doubles nothing: the same messages come again, and are copies."""

from collections import Counter
from datetime import date

from pyspark.sql import SparkSession

from leanops.contracts.model import Contract
from leanops.home import Home
from leanops.names import Layer
from tests.accounting import accounts_of
from tests.building import standardize
from tests.draining import KILLED_AT, Landing, envelope, killed_drain

CONTRACT = Contract.model_validate(
    {
        "table_name": "killed",
        "envelope_columns": [{"name": "idempotency_key", "source": "key"}],
        "payload_columns": [{"name": "amount", "type": "INT"}],
    }
)
DAYS = [date(2025, 3, 1), date(2025, 3, 2)]
AFTER = {"leanops.raw.landing:append_raw", "leanops_resources.state.sqlite:SqliteStateStore.save_breakers"}
POINTS = [(place, call, True) for place, call in KILLED_AT] + [(place, 1, False) for place in AFTER]


def test_a_drain_that_is_killed_at_any_moment_loses_and_doubles_nothing(
    shared_home: Home, shared_spark: SparkSession
) -> None:
    landing = Landing(shared_home)
    sent: Counter[str] = Counter()
    for number, (place, call, is_before) in enumerate(POINTS):
        ids = [f"m{number}-{each}" for each in range(6)]
        landing.drop(
            "killed", [*(envelope(each, DAYS[number % 2], key=each, amount=1) for each in ids), b"no envelope"]
        )
        sent.update(ids)
        killed_drain(shared_home.path, place, call, is_before)
        landing.drain()
        assert landing.left() == [], (place, is_before)
        assert len(landing.dead("killed")) == number + 1, (place, is_before)
        landing.require_closed("killed")
    raw = landing.raw("killed")
    assert set(raw) == set(sent)
    copies = raw.total() - len(sent)
    assert copies == 6 * 3, "killed after the commit and before the file was gone: these came twice, and no others"

    standardize(shared_spark, landing.catalog, "killed", CONTRACT)
    accounts = accounts_of(shared_spark, landing.catalog, "killed", CONTRACT, Layer.STANDARDIZED)
    assert all(account.is_clean for account in accounts)
    assert sum(account.fates["standardized"] for account in accounts) == len(sent)
    assert sum(account.fates["duplicates"] for account in accounts) == copies
