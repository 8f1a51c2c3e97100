"""Contract files that people name: what is in them, and of which topic they are."""

from pathlib import Path

from leanops.contracts.reading import MAX_BYTES, own_topic
from leanops.errors import ContractFileUnreadable
from leanops_resources.schema_store import Stage

# Stands where people are told what to write into a file that names no topic.
_PLACEHOLDER = "name_of_the_topic"


def contract_in(path: Path) -> tuple[str, bytes]:
    """The topic that a contract file is of, and its content; what is beyond the size of any contract is cut off.

    A file in its place, such as `orders/pending/schema.json`, is of the topic whose folder that is; any other is of the
    topic that it names itself.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ContractFileUnreadable(f"{path} cannot be read: {error.strerror}.", "Name a contract file.") from error
    return _topic_of_place(path.absolute()) or own_topic(content) or _PLACEHOLDER, content


def _topic_of_place(path: Path) -> str | None:
    """A contract that was replaced stands one folder deeper than the others, under its version."""
    stage = path.parent.parent if path.parent.parent.name == Stage.ARCHIVE else path.parent
    return stage.parent.name if stage.name in tuple(Stage) else None
