"""`leanops land`: envelopes from a file into RAW."""

from pathlib import Path
from typing import Annotated

import typer

from leanops.names import topic_name
from leanops.progress import progress
from leanops.settings import Settings
from leanops_cli.known_topics import require_known


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
        require_known([topic], settings, otherwise="If it is new, land its first messages with --new.")
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
