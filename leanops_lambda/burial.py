"""What is done about a dead letter outside the tables: its body is archived, and the error tracker knows it."""

from datetime import datetime
from typing import Any

from leanops.home import Home
from leanops.ingestion.dead_letter_row import dead_letter_row
from leanops.ingestion.processor import DeadLetter
from leanops.settings import Settings
from leanops_resources.dlq_archive import DlqArchive, dlq_archive
from leanops_resources.state.store import StateStore


def archive_of(settings: Settings) -> DlqArchive:
    """The archive that the settings ask for."""
    return dlq_archive(settings.dlq_archive or Home(settings.home).dlq_archive)


def bury(
    letter: DeadLetter, archive: DlqArchive, store: StateStore, source: str, delivery_id: str, now: datetime
) -> dict[str, Any]:
    """Keep a dead letter's body and note it; its row, which is yet to be brought to the table."""
    where = archive.put(letter)
    store.track_error(letter.dead_letter_id, letter.message.topic, letter.fault.value, letter.reason)
    return dead_letter_row(letter, where, source, delivery_id, now)
