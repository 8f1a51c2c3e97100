"""`leanops inject`: made-up messages by a scenario; `leanops inject-check`: whether the tables hold what they must."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from leanops.errors import ExpectationUnmet, NotAllowed, Problem, ScenarioInvalid, SettingsInvalid
from leanops.home import Home
from leanops.injector.injection import Carrier, Injection, checked
from leanops.progress import progress
from leanops.settings import Settings
from leanops_cli.output import print_table

if TYPE_CHECKING:
    from leanops.contracts.model import Contract
    from leanops.injector.feeding import Feed
    from leanops.injector.scenario import Scenario
    from leanops_resources.schema_store import SchemaStore

_HINT = "Name a scenario file, or a shipped scenario."


def inject(
    scenario: Annotated[str, typer.Argument(help="A scenario file, or the name of a shipped one, such as `steady`.")],
    to: Annotated[Carrier, typer.Option(help="The landing folder, or the topics' SQS queues.")] = Carrier.FOLDER,
    seed: Annotated[int | None, typer.Option(min=0, help="Another seed than the scenario's: other messages.")] = None,
    topic: Annotated[list[str] | None, typer.Option(help="Only this topic; may be given several times.")] = None,
    day: Annotated[
        list[int] | None, typer.Option(min=1, help="Only this day, by its number in the scenario; may be repeated.")
    ] = None,
    paced: Annotated[
        bool, typer.Option("--paced/--as-fast-as-possible", help="At the scenario's rate, or all at once.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Write `landing/` and `injected/` here, and not into LEANOPS_HOME.")
    ] = None,
) -> None:
    """Feed made-up messages, with all that can go wrong, to the landing folder or to queues.

    The same scenario and seed are the same messages on the same day. What the tables must hold when all of them have
    been drained and built is written down under `injected/`, over all injections into this home; `leanops inject-check`
    compares. `docs/injector.md` says what a scenario may hold.
    """
    from leanops.injector.feeding import feed_at_once, feed_paced
    from leanops.injector.history import History
    from leanops.injector.plan import Kind

    settings = Settings.load()
    folder = out.absolute() if out else Home(settings.home).prepare().path
    injection = _injection(settings, scenario, to, seed, topic or (), day or ())
    history = History(folder / "injected")
    past = history.injections()
    feed = _feed(settings, injection, folder, len(past) + 1)
    history.add(injection)
    run = feed_paced if paced else feed_at_once
    fed = []
    with progress("Injecting", total=injection.messages_of_a_topic * len(injection.topics)) as advance:
        for each in run(injection, past, feed, advance):
            history.expect(each.expectation)
            fed.append((each.expectation.topic, each.kinds))
    shown = [kind for kind in Kind if kind is not Kind.RECORDS and any(kinds[kind] for _, kinds in fed)]
    headings = ["messages", *(kind.name.lower().replace("_", " ") for kind in shown)]
    rows = ([topic, f"{kinds.total():,}", *(f"{kinds[kind]:,}" for kind in shown)] for topic, kinds in fed)
    print_table(["topic", *headings], rows, right=headings)


def inject_check(
    out: Annotated[
        Path | None, typer.Option(help="Where `injected/` was written to, if not into LEANOPS_HOME.")
    ] = None,
) -> None:
    """Compare the tables with what was injected. Exit code 1 if anything differs, and every difference is named.

    All of it must have been drained and built (`leanops tick`), and nothing else may have landed for those topics.
    """
    from leanops.injector.comparison import compare
    from leanops.injector.history import History
    from leanops_resources.catalog import LocalCatalog

    home = Home(Settings.load().home).prepare()
    history, catalog = History((out or home.path) / "injected"), LocalCatalog(home).load()
    count, problems = 0, []
    for expectation in history.expectations():
        count += 1
        problems += compare([expectation], catalog)
    if problems:
        raise ExpectationUnmet(
            "What the tables hold",
            problems,
            "`leanops tick` builds what has landed; `leanops trace ID` tells what became of a message.",
        )
    topics = {0: "Nothing has been injected.", 1: "1 topic holds what it must."}
    print(topics.get(count, f"{count} topics hold what they must."))


def _injection(
    settings: Settings,
    name: str,
    carrier: Carrier,
    seed: int | None,
    topics: Sequence[str],
    days: Sequence[int],
) -> Injection:
    from leanops.injector.reading import read_scenario

    path = _path(name)
    try:
        scenario = read_scenario(path.read_bytes(), str(path))
    except OSError as error:
        raise ScenarioInvalid(f"{path}", [Problem("$", f"it cannot be read: {error.strerror}.")], _HINT) from error
    if seed is not None:
        scenario = scenario.model_copy(update={"seed": seed})
    names = [topic.name for topic in scenario.topics]
    chosen = {_chosen("--topic", topic, names) for topic in topics}
    numbers = {int(_chosen("--day", str(day), [str(n + 1) for n in range(len(scenario.days))])) for day in days}
    return checked(
        Injection(
            name=path.stem,
            scenario=scenario,
            contracts=_contracts(settings, scenario, path),
            today=datetime.now(UTC).date(),
            carrier=carrier,
            topics=tuple(name for name in names if not chosen or name in chosen),
            days=tuple(sorted(numbers)) or tuple(range(1, len(scenario.days) + 1)),
        ),
        settings.first_day,
    )


def _path(name: str) -> Path:
    """A file that is there, or the shipped scenario of that name."""
    if (path := Path(name)).suffix or path.parent != Path():
        return path
    from leanops_assets.instance import PROJECT

    shipped = {path.stem: path for path in sorted((PROJECT / "scenarios").glob("*.json"))}
    return shipped[_chosen("SCENARIO", name, list(shipped))]


def _contracts(settings: Settings, scenario: "Scenario", path: Path) -> dict[str, "Contract | None"]:
    """The contract that each topic follows, or `ScenarioInvalid` with all that cannot be found."""
    from leanops_resources.schema_store import schema_store

    store = schema_store(settings.schemas)
    contracts: dict[str, Contract | None] = {}
    problems = []
    for index, topic in enumerate(scenario.topics):
        try:
            contracts[topic.name] = _contract(store, topic.contract, path) if topic.contract else None
        except NotAllowed as refusal:
            place = f"$.topics[{index}].contract"
            problems.append(Problem(place, f"{refusal.message}.", refusal.fix, found=topic.contract))
    if problems:
        raise ScenarioInvalid(str(path), problems, "`leanops topics` lists the topics and their contracts.")
    return contracts


def _contract(store: "SchemaStore", name: str, scenario: Path) -> "Contract":
    """The contract in a file that is named from where the scenario is, or the active one of a topic."""
    from leanops.contracts.reading import read_contract
    from leanops_resources.schema_store import read_active

    if name.endswith(".json"):
        file = scenario.parent / name
        try:
            return read_contract(file.read_bytes(), None, str(file))
        except OSError as error:
            raise NotAllowed(f"{file} cannot be read: {error.strerror}") from error
    known = store.topics()
    if name in known and (contract := read_active(store, name)):
        return contract
    nearest = get_close_matches(name, [each for each in known if each != name], n=1)
    fix = f"Did you mean {nearest[0]!r}?" if nearest else None
    raise NotAllowed(f"{name!r} has no active contract", fix=fix)


def _feed(settings: Settings, injection: Injection, folder: Path, number: int) -> "Feed":
    from leanops.injector.feeding import FolderFeed

    if injection.carrier is Carrier.FOLDER:
        name = re.sub(r"[^A-Za-z0-9_-]", "_", injection.name)
        return FolderFeed(folder / "landing", f"{number:04}-{name}")
    if settings.queue_prefix is None:
        variable = Settings.variable("queue_prefix")
        raise SettingsInvalid(
            "The environment",
            [Problem(variable, "it is not set, and queues are called by it and the topic's name.")],
            f"Set {variable}, such as leanops-, or feed the landing folder.",
        )
    from leanops_resources.sqs_feed import QueueFeed

    return QueueFeed(settings.queue_prefix)


def _chosen(what: str, name: str, known: Sequence[str]) -> str:
    """A name that somebody typed, if it is one of those that there are."""
    if name in known:
        return name
    nearest = get_close_matches(name, known, n=1)
    names = ", ".join(known)
    fix = f"Did you mean {nearest[0]!r}?" if nearest else f"There are: {names}."
    raise ScenarioInvalid(
        "The command", [Problem(what, f"there is no {name!r}.", fix, found=name, allowed=names)], _HINT
    )
