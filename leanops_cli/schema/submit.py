"""`leanops schema submit`: put a contract where it is taken in."""

from pathlib import Path
from typing import Annotated

import typer

from leanops.contracts.diff import diff, require_successor
from leanops.contracts.reading import read_contract
from leanops.settings import Settings
from leanops_cli.schema.contract_files import contract_in
from leanops_cli.schema.diff import active_contract, print_diff
from leanops_resources.schema_store import schema_store


def submit(path: Annotated[Path, typer.Argument(help="A contract file.")]) -> None:
    """Put a contract under `pending/` of its topic, where the sensor `contracts` takes it in.

    A contract that would be refused is not submitted: its problems are told here.
    """
    topic, content = contract_in(path)
    contract, active = read_contract(content, topic, str(path)), active_contract(topic)
    if active:
        require_successor(active, contract, str(path))
    print_diff(diff(active, contract))
    where = schema_store(Settings.load().schemas).submit(topic, content)
    print(f"\nSubmitted as {where}.")
    print(f"With `make dev` running it is taken in by itself; to do it now: leanops schema activate {topic}")
