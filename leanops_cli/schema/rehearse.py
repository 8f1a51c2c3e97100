"""`leanops schema rehearse`: what a contract would do, before it does it."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from leanops.contracts.reading import read_contract
from leanops.settings import Settings
from leanops_cli.output import print_json_lines, print_table, printable
from leanops_cli.schema.contract_files import contract_in
from leanops_cli.schema.diff import active_contract
from leanops_cli.warm import warm_session

if TYPE_CHECKING:
    from leanops.curated.rehearsal import Rehearsal


def rehearse(
    path: Annotated[Path, typer.Argument(help="A contract file.")],
    days: Annotated[int, typer.Option(min=1, help="How many of the last publish days that hold rows.")] = 7,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Run a contract that is not active against the last days of Standardized, and write nothing.

    Says how many rows would pass, which rules and columns the others would break, and what changes against the active
    contract. Exit code 1 if rows that pass today would fail, so that a pull request can be stopped.
    """
    from leanops.curated.rehearsal import rehearse as run

    topic, content = contract_in(path)
    contract = read_contract(content, topic, str(path))
    active = active_contract(topic)
    with warm_session(Settings.load()) as (catalog, spark):
        rehearsal = run(spark, catalog, topic, contract, active, days)
    if as_json:
        print_json_lines([asdict(rehearsal)])
    else:
        _print(rehearsal)
    if rehearsal.newly_failing:
        raise typer.Exit(1)


def _print(rehearsal: "Rehearsal") -> None:
    for sentence in rehearsal.sentences:
        print(printable(sentence))
    if rehearsal.failures:
        print()
        rows = (
            (each.column, each.rule, f"{each.rows:,}", rehearsal.percent(each.rows), ", ".join(map(str, each.samples)))
            for each in rehearsal.failures
        )
        print_table(("column", "rule", "rows", "%", "samples"), rows, right=("rows", "%"))
    if rehearsal.newly_failing_samples:
        print("\nSome that pass today and would fail:")
        for row in rehearsal.newly_failing_samples:
            print(printable(f"  {row.message_id}: {'; '.join(map(str, row.broken_rules))}"))
