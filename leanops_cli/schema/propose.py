"""`leanops schema propose`: a contract to start from, out of what has landed."""

from pathlib import Path
from typing import Annotated

import typer

from leanops.errors import NO_ROOM, ProposalImpossible
from leanops.home import Home
from leanops.progress import progress
from leanops.settings import Settings
from leanops_cli.known_topics import require_known
from leanops_cli.output import printable
from leanops_cli.schema.diff import active_contract
from leanops_cli.warm import warm_session


def propose(
    topic: Annotated[str, typer.Argument(help="The topic to propose a contract for.")],
    days: Annotated[
        int | None, typer.Option(min=1, help="Look at the last so many publish days that hold anything; else at all.")
    ] = None,
    output: Annotated[Path | None, typer.Option(help="Write it to this file, which must not be there yet.")] = None,
) -> None:
    """Propose a contract from what has landed: columns, the narrowest types that fit, samples, candidates for CDE.

    Where a contract is active, the proposal is its next version: what fits stays, what is new is added. Nothing is
    submitted. Samples in the descriptions are real values: take out what must not be known to readers of the contract.
    """
    from leanops.contracts.proposal import forms_to_count
    from leanops.contracts.proposal import propose as proposal_for
    from leanops.contracts.reading import read_contract
    from leanops.raw.profile import landed_table, profile_raw
    from leanops_resources.catalog import LocalCatalog

    settings = Settings.load()
    require_known([topic], settings)
    landed_table(LocalCatalog(Home(settings.home).prepare()).load(), topic)
    if output and output.exists():
        raise _cannot_be_written(output, "it is there already")
    active = active_contract(topic)
    with warm_session(settings) as (catalog, spark), progress(f"Reading {topic}"):
        profile = profile_raw(spark, catalog, topic, forms_to_count(active), days)
    proposal = proposal_for(topic, profile, active)
    text = proposal.text
    read_contract(text.encode(), topic, "the proposal")
    if output is None:
        print(text, end="")
    else:
        _write(output, text)
    for remark in proposal.remarks:
        typer.echo(f"note: {printable(remark)}", err=True)


def _write(file: Path, text: str) -> None:
    try:
        with file.open("x", encoding="utf-8") as opened:
            opened.write(text)
    except OSError as error:
        if error.errno in NO_ROOM:
            raise
        raise _cannot_be_written(file, error.strerror or str(error)) from error


def _cannot_be_written(file: Path, why: str) -> ProposalImpossible:
    return ProposalImpossible(
        f"{file} cannot be written: {why}.", "Name a file that is not there yet, in a folder of yours that is."
    )
