"""`leanops dlq`: messages that never reached RAW."""

import getpass
import sys
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from leanops.errors import DeadLetterMissing, LeanOpsError
from leanops.home import Home
from leanops.settings import Settings
from leanops_cli.known_topics import require_known
from leanops_cli.output import print_json_lines, print_table, printable

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from leanops_assets.raw.drain import Intake
    from leanops_assets.raw.replay import Discarded, Replayed

dlq = typer.Typer(
    help="Dead letters, which never reached RAW: list them, look at them, replay or discard them.",
    no_args_is_help=True,
)
Names = Annotated[
    list[str] | None, typer.Argument(metavar="ID", help="Dead letters, by at least 6 signs of their ids.")
]
Topics = Annotated[list[str] | None, typer.Option("--topic", help="Only this topic; may be given several times.")]
_LETTERS_SHOWN = 1000
_SIGNS_SHOWN = 4000
_BYTES_SHOWN = 256


@dlq.command(name="list")
def list_letters(
    topic: Topics = None,
    is_all: Annotated[bool, typer.Option("--all", help="Those that were replayed or discarded, too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per dead letter, with all of them.")] = False,
) -> None:
    """List the dead letters that are open, the oldest first."""
    from leanops.raw.dead_letters import find_dead_letters

    settings = Settings.load()
    catalog = _intake(settings).catalog
    topics = _known(settings, catalog, topic)
    found = find_dead_letters(catalog, only_open=not is_all)
    letters = [row for row in found if not topics or row["topic_name"] in topics]
    if as_json:
        print_json_lines(letters)
    elif not letters:
        print("No dead letters." if is_all else "No open dead letters.")
    else:
        rows = [_row(letter, is_all) for letter in letters[:_LETTERS_SHOWN]]
        print_table(list(rows[0]), (list(row.values()) for row in rows), right=("receives", "bytes", "age"))
        if len(letters) > len(rows):
            typer.echo(f"… and {len(letters) - len(rows):,} more; --json has all.", err=True)


@dlq.command()
def show(
    name: Annotated[str, typer.Argument(metavar="ID", help="A dead letter, by at least 6 signs of its id.")],
    only_body: Annotated[
        bool, typer.Option("--body", help="The body alone, byte for byte: to save it, mend it and replay it.")
    ] = False,
) -> None:
    """Show all that is known of a dead letter, and its body."""
    from leanops.raw.dead_letter_names import named_letters
    from leanops.raw.dead_letters import find_dead_letters

    intake = _intake(Settings.load())
    [(topic, ids)] = named_letters(intake.catalog, [name]).items()
    letter = find_dead_letters(intake.catalog, topic, ids)[0]
    if only_body:
        sys.stdout.buffer.write(intake.archive.get(letter["body_archive"]))
        return
    for key, value in letter.items():
        if value is not None:
            print(f"{key:<16} {printable(str(value))}")
    try:
        body = intake.archive.get(letter["body_archive"])
    except DeadLetterMissing as error:
        print(f"\n{error}")
    else:
        print(f"\n{_told(body)}")


@dlq.command()
def replay(
    name: Names = None,
    topic: Topics = None,
    is_all: Annotated[bool, typer.Option("--all", help="All that are open.")] = False,
    mended: Annotated[
        Path | None,
        typer.Option("--with", help="A file with the mended body of the one ID.", exists=True, dir_okay=False),
    ] = None,
) -> None:
    """Judge dead letters by today's rules, and bring those that are good to RAW.

    Name them, or take all open ones of a topic, or `--all`. One that was replayed before is left alone, so the same
    command may be given again. Exit code 1 if any is not in RAW now.
    """
    from leanops_assets.raw.replay import replay as bring_back

    if mended and len(name or ()) != 1:
        raise typer.BadParameter("a mended body is that of one dead letter: name exactly one.", param_hint="--with")
    settings = Settings.load()
    intake = _intake(settings)
    topics = _known(settings, intake.catalog, topic)
    if not (name or topics or is_all):
        raise typer.BadParameter("name dead letters, or give --topic or --all.", param_hint="ID")
    wanted = _wanted(intake, name, topics)
    bodies = {each: mended.read_bytes() for ids in wanted.values() for each in ids} if mended else {}

    def work(topic: str, ids: list[str]) -> bool:
        done = bring_back(intake, topic, ids, bodies, _somebody())
        _report(settings, intake, done)
        _print(done, len(done.replayed), "are in RAW now" if len(done.replayed) != 1 else "is in RAW now")
        return done.is_complete

    _each_topic(wanted, work)


@dlq.command()
def discard(
    reason: Annotated[str, typer.Option(help="Why nobody wants them in RAW, for whoever wonders.")],
    name: Names = None,
    topic: Topics = None,
) -> None:
    """Close dead letters that are not to be replayed. They stay in the list, with the reason and your name.

    Name them, or take all open ones of a topic.
    """
    from leanops_assets.raw.replay import discard as close

    if not reason.strip():
        raise typer.BadParameter("say why.", param_hint="--reason")
    settings = Settings.load()
    intake = _intake(settings)
    topics = _known(settings, intake.catalog, topic)
    if not (name or topics):
        raise typer.BadParameter("name dead letters, or give --topic.", param_hint="ID")
    wanted = _wanted(intake, name, topics)

    def work(topic: str, ids: list[str]) -> bool:
        done = close(intake, topic, ids, reason, _somebody())
        _print(done, len(done.discarded), "are discarded" if len(done.discarded) != 1 else "is discarded")
        return True

    _each_topic(wanted, work)


def _intake(settings: Settings) -> "Intake":
    from leanops_assets.raw.drain import Intake
    from leanops_resources.catalog import LocalCatalog
    from leanops_resources.dlq_archive import dlq_archive
    from leanops_resources.state.stores import state_store

    home = Home(settings.home).prepare()
    archive = dlq_archive(settings.dlq_archive or home.dlq_archive)
    return Intake(LocalCatalog(home).load(), state_store(settings), archive, settings.first_day)


def _known(settings: Settings, catalog: "Catalog", topics: list[str] | None) -> list[str]:
    """The topics that were given. Something is known of each, were it nothing but dead letters."""
    from leanops.raw.dead_letters import find_dead_letters

    if topics:
        with_letters = {row["topic_name"] for row in find_dead_letters(catalog, columns=("topic_name", "received"))}
        require_known([topic for topic in topics if topic not in with_letters], settings)
    return topics or []


def _wanted(intake: "Intake", names: list[str] | None, topics: list[str]) -> dict[str, list[str]]:
    """The ids of the letters that are meant, by topic."""
    from leanops.raw.dead_letter_names import named_letters, open_letters

    return named_letters(intake.catalog, names, topics) if names else open_letters(intake.catalog, topics)


def _each_topic(wanted: dict[str, list[str]], work: Callable[[str, list[str]], bool]) -> None:
    """Work on each topic's letters. What goes wrong with one topic leaves the others alone."""
    if not wanted:
        print("No open dead letters.")
    failed = False
    for topic, ids in wanted.items():
        try:
            failed |= not work(topic, ids)
        except LeanOpsError as error:
            typer.echo(f"error: {topic}: {error}", err=True)
            failed = True
    if failed:
        raise typer.Exit(1)


def _report(settings: Settings, intake: "Intake", replayed: "Replayed") -> None:
    """Record on the topic's asset what came to RAW."""
    from leanops_assets.instance import dagster_instance
    from leanops_assets.raw.replay import SOURCE
    from leanops_assets.raw.report import landed_days

    if replayed.landed:
        with dagster_instance(Home(settings.home)) as instance:
            # Not what the checks say: outside of a run Dagster takes that once for each day, and never again.
            for event in landed_days(intake.catalog, replayed.topic, replayed.landed, SOURCE):
                instance.report_runless_asset_event(event)


def _print(done: "Replayed | Discarded", count: int, what: str) -> None:
    print(f"{count:,} dead letter{'' if count == 1 else 's'} of {done.topic} {what}.")
    for each, became in done.letters:
        if " " in became:
            print(printable(f"  {each} {became}"))


def _somebody() -> str:
    """Who gives the command, as far as this machine knows."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "somebody"


def _row(letter: dict[str, Any], with_outcome: bool) -> dict[str, Any]:
    row = {
        "id": letter["dead_letter_id"],
        "topic": letter["topic_name"],
        "day": letter["day"],
        "fault": letter["fault"],
        "reason": letter["reason"],
        "receives": letter["receives"],
        "message_id": letter["message_id"],
        "bytes": letter["body_bytes"],
        "age": _age(datetime.now(UTC) - letter["received"]),
    }
    return {**row, "outcome": letter["outcome"] or "open"} if with_outcome else row


def _age(age: timedelta) -> str:
    seconds = age.total_seconds()
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def _told(body: bytes) -> str:
    """A body for people: its text, or the beginning of its bytes where it is none."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        lines = list(_hex_lines(body[:_BYTES_SHOWN]))
        shown, more = "\n".join(lines), len(body) - _BYTES_SHOWN
    else:
        shown = "\n".join(printable(line) for line in text[:_SIGNS_SHOWN].splitlines())
        more = len(text) - _SIGNS_SHOWN
    return f"{shown}\n… and {more:,} more; --body has all." if more > 0 else shown


def _hex_lines(data: bytes) -> Iterable[str]:
    for at in range(0, len(data), 16):
        part = data[at : at + 16]
        signs = "".join(chr(each) if 32 <= each < 127 else "." for each in part)
        yield f"{at:08x}  {part.hex(' '):<47}  {signs}"
