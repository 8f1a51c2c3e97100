"""`leanops trace`: the whole story of one message or record."""

from typing import Annotated

import typer

from leanops.errors import NothingCalledSo
from leanops.settings import Settings
from leanops_cli.known_topics import require_known
from leanops_cli.output import print_json_lines, printable
from leanops_cli.warm import warm_session


def trace(
    name: Annotated[str, typer.Argument(metavar="ID", help="A message_id, an idempotency_key or a dead letter's id.")],
    topic: Annotated[list[str] | None, typer.Option(help="Only this topic; may be given several times.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line of the story.")] = False,
) -> None:
    """Tell the story of a message or record: when it landed, what became of it, where it stands, what would heal it."""
    from leanops.ledger.trace import trace as tell
    from leanops_assets.manifests import planned_manifest

    settings = Settings.load()
    require_known(topic or (), settings)
    topics = planned_manifest(settings).topics
    with warm_session(settings) as (catalog, spark):
        events = list(tell(spark, catalog, topics, name, topic or ()))
    if not events:
        raise NothingCalledSo(
            f"No topic knows a message, a record or a dead letter called {name!r}.",
            "Check the spelling. A dead letter whose message_id could not be read is known by its own id alone: "
            "`leanops dlq list` shows it.",
        )
    if as_json:
        print_json_lines({"topic": event.topic, "what": event.what, **event.facts} for event in events)
        return
    told = None
    for event in events:
        if event.topic != told:
            print(f"{event.topic}: {printable(name)}")
            told = event.topic
        print(f"  - {printable(event.what)}")
