"""`leanops schema diff`: what a contract changes, and how grave that is."""

from pathlib import Path
from typing import Annotated

import typer

from leanops.contracts.diff import Diff, Impact
from leanops.contracts.diff import diff as compare
from leanops.contracts.model import Contract
from leanops.contracts.reading import read_contract
from leanops.settings import Settings
from leanops_cli.output import print_json_lines, print_table
from leanops_cli.schema.contract_files import contract_in
from leanops_resources.schema_store import read_active, schema_store

MEANING = {
    Impact.NOTED: "Nothing about rows changes.",
    Impact.COMPATIBLE: "The tables follow in place.",
    Impact.BREAKING: "The topic will be paused, rebuilt beside its tables, and published when its ledger closes.",
}


def diff(
    path: Annotated[Path, typer.Argument(help="A contract file.")],
    against: Annotated[Path | None, typer.Option(help="Another contract file, instead of the active one.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per change.")] = False,
) -> None:
    """Compare a contract with the active one: every change, and whether the tables can follow it in place."""
    topic, content = contract_in(path)
    new = read_contract(content, topic, str(path))
    if against:
        old: Contract | None = read_contract(contract_in(against)[1], topic, str(against))
    else:
        old = active_contract(topic)
    found = compare(old, new)
    if as_json:
        print_json_lines(
            {"impact": change.impact.value, "path": change.path, "what": change.what} for change in found.changes
        )
    else:
        print_diff(found)


def active_contract(topic: str) -> Contract | None:
    """The active contract of a topic, or None. One that is broken is told."""
    return read_active(schema_store(Settings.load().schemas), topic)


def print_diff(found: Diff) -> None:
    """The changes, the gravest last word on top."""
    if not found.changes:
        print("Nothing is different.")
        return
    print_table(("impact", "where", "what"), [(each.impact, each.path, each.what) for each in found.changes])
    print(f"\n{found.impact.capitalize()}: {MEANING[found.impact]}")
