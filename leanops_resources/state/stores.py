"""Which state store the settings ask for."""

from leanops.home import Home
from leanops.settings import Settings
from leanops_resources.state.sqlite import SqliteStateStore
from leanops_resources.state.store import StateStore


def state_store(settings: Settings) -> StateStore:
    """A SQLite file in the home, or `dynamodb:TABLE`, which alone needs boto3."""
    kind, _, table = settings.state.partition(":")
    if kind == "dynamodb":
        from leanops_resources.state.dynamodb import DynamoStateStore

        return DynamoStateStore(table)
    return SqliteStateStore(Home(settings.home).prepare().state)
