"""`leanops schema`: contracts, from a draft to the one that is active."""

import typer

from leanops_cli.schema.activate import activate
from leanops_cli.schema.diff import diff
from leanops_cli.schema.history import history
from leanops_cli.schema.json_schema import json_schema
from leanops_cli.schema.lint import lint
from leanops_cli.schema.propose import propose
from leanops_cli.schema.rehearse import rehearse
from leanops_cli.schema.submit import submit

schema = typer.Typer(
    help="Contracts: check, compare, submit, rehearse and propose them, and see their history.", no_args_is_help=True
)
schema.command()(lint)
schema.command()(propose)
schema.command()(rehearse)
schema.command()(diff)
schema.command()(submit)
schema.command()(activate)
schema.command()(history)
schema.command()(json_schema)
