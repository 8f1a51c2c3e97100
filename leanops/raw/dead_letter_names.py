"""Dead letters as people name them: by their id, or by as much of its beginning as tells it from the others."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Sequence

from pyiceberg.catalog import Catalog

from leanops.errors import DeadLetterUnknown
from leanops.raw.dead_letters import find_dead_letters

FEWEST_SIGNS = 6
_LIST = "`leanops dlq list --all` shows every one there is."


def named_letters(catalog: Catalog, names: Collection[str], topics: Collection[str] = ()) -> dict[str, list[str]]:
    """The full ids of the letters that are named so, by topic; of some topics only, if these are given."""
    found = find_dead_letters(catalog, columns=("dead_letter_id", "topic_name", "received"))
    topic_of = {row["dead_letter_id"]: row["topic_name"] for row in found if not topics or row["topic_name"] in topics}
    known = sorted(topic_of)
    ids: defaultdict[str, list[str]] = defaultdict(list)
    for full in dict.fromkeys(_full_id(name, known) for name in names):
        ids[topic_of[full]].append(full)
    return dict(ids)


def open_letters(catalog: Catalog, topics: Collection[str] = ()) -> dict[str, list[str]]:
    """The ids of all open letters, by topic, the oldest first; of some topics only, if these are given."""
    ids: defaultdict[str, list[str]] = defaultdict(list)
    for row in find_dead_letters(catalog, only_open=True, columns=("dead_letter_id", "topic_name", "received")):
        if not topics or row["topic_name"] in topics:
            ids[row["topic_name"]].append(row["dead_letter_id"])
    return dict(ids)


def _full_id(name: str, known: Sequence[str]) -> str:
    """The one id that is this or begins so."""
    at = bisect_left(known, name)
    if known[at : at + 1] == [name]:
        return name
    if len(name) < FEWEST_SIGNS:
        raise DeadLetterUnknown(
            f"{name!r} is too short to name a dead letter.", f"Give at least {FEWEST_SIGNS} signs of its id. {_LIST}"
        )
    match [each for each in known[at : at + 2] if each.startswith(name)]:
        case [full]:
            return full
        case []:
            raise DeadLetterUnknown(f"There is no dead letter {name!r}.", _LIST)
        case several:
            raise DeadLetterUnknown(
                f"{name!r} may be {' or '.join(several)}, or another.", "Give more signs of the id."
            )
