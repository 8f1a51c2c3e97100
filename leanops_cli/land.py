"""`leanops land`: envelopes from a file into RAW."""

from pathlib import Path
from typing import Annotated

import typer

from leanops.errors import TopicUnknown
from leanops.home import Home
from leanops.names import topic_name
from leanops.progress import progress
from leanops.settings import Settings


def land(
    topic: Annotated[str, typer.Argument(help="The topic that the messages belong to.")],
    file: Annotated[Path, typer.Argument(help="Newline-delimited envelopes.")],
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Land the good lines of a file with bad ones.")] = False,
    new: Annotated[bool, typer.Option("--new", help="The topic is new: nothing is known of it yet.")] = False,
) -> None:
    """Append the messages of a file to a topic's RAW table, in one commit: all of them or none.

    Each line is an envelope: `{"message_id": "…", "publish_time": "2026-01-31T08:15:00Z", "payload": {…}}`. The payload
    is an object or a string and is kept to the letter. `ingestion_ts` (seconds since 1970) and `idempotency_key` are
    optional. Every bad line is reported with its number.
    """
    from leanops_assets.raw.landing import land_and_report

    settings = Settings.load()
    if not new:
        _require_known(topic_name(topic), settings)
    size = file.stat().st_size if file.is_file() else None
    with progress(f"Landing {file.name}", total=size) as advance:
        landed = land_and_report(settings, topic_name(topic), file, skip_bad, advance)
    for problem in landed.skipped:
        typer.echo(f"skipped {problem}", err=True)
    days = "no day" if not landed.rows_by_day else f"{len(landed.rows_by_day)} days"
    if len(landed.rows_by_day) == 1:
        days = str(next(iter(landed.rows_by_day)))
    messages = "1 message" if landed.rows == 1 else f"{landed.rows:,} messages"
    print(f"{messages} of {topic} landed in RAW, on {days}.")


def _require_known(topic: str, settings: Settings) -> None:
    """A misspelt name must not become a topic by itself."""
    from difflib import get_close_matches

    from leanops_resources.catalog import LocalCatalog
    from leanops_resources.schema_store import LocalSchemaStore

    known = {
        *LocalSchemaStore(settings.schemas).topics(),
        *LocalCatalog(Home(settings.home).prepare()).raw_topics(),
    }
    if topic not in known:
        nearest = get_close_matches(topic, sorted(known), n=1)
        meant = f"Did you mean {nearest[0]}? " if nearest else ""
        raise TopicUnknown(f"There is no topic {topic!r}.", f"{meant}If it is new, land its first messages with --new.")
