"""Names of topics that people type: a misspelt one is caught before anything happens."""

from collections.abc import Collection
from difflib import get_close_matches

from leanops.errors import TopicUnknown
from leanops.home import Home
from leanops.names import topic_name
from leanops.settings import Settings


def require_known(topics: Collection[str], settings: Settings, otherwise: str = "`leanops topics` lists them.") -> None:
    """Each topic has a folder among the contracts, or something has landed for it."""
    if not topics:
        return
    from leanops_resources.catalog import LocalCatalog
    from leanops_resources.schema_store import schema_store

    known = {
        *schema_store(settings.schemas).topics(),
        *LocalCatalog(Home(settings.home).prepare()).raw_topics(),
    }
    for topic in map(topic_name, topics):
        if topic not in known:
            nearest = get_close_matches(topic, sorted(known), n=1)
            meant = f"Did you mean {nearest[0]}? " if nearest else ""
            raise TopicUnknown(f"There is no topic {topic!r}.", f"{meant}{otherwise}")
