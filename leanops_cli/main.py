"""The `leanops` command: its subcommands, and how a fault is told to a person."""

import sys
import traceback
from pathlib import Path

import typer

from leanops.errors import LeanOpsError
from leanops.home import Home
from leanops.settings import Settings
from leanops_cli.demo import demo
from leanops_cli.dev import dev
from leanops_cli.dlq import dlq
from leanops_cli.drain import drain
from leanops_cli.errors import errors
from leanops_cli.gate import pause, resume
from leanops_cli.inject import inject, inject_check
from leanops_cli.land import land
from leanops_cli.ledger import ledger
from leanops_cli.maintain import maintain
from leanops_cli.schema import schema
from leanops_cli.spark import spark
from leanops_cli.sql import sql
from leanops_cli.tick import tick
from leanops_cli.topics import topics
from leanops_cli.trace import trace
from leanops_resources.surroundings import fault_of_surroundings

app = typer.Typer(
    help="Events into exact Iceberg tables, every row accounted for.",
    epilog="Settings come from LEANOPS_* variables (docs/settings.md). All local state is under LEANOPS_HOME.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(demo)
app.command()(dev)
app.command()(land)
app.command()(drain)
app.command()(tick)
app.command()(ledger)
app.command()(trace)
app.command()(errors)
app.command()(maintain)
app.command()(pause)
app.command()(resume)
app.command()(sql)
app.command()(topics)
app.command()(inject)
app.command(name="inject-check")(inject_check)
app.add_typer(dlq, name="dlq")
app.add_typer(schema, name="schema")
app.add_typer(spark, name="spark")


def run() -> None:
    """What the shell calls: a known fault ends in one sentence, an unknown one in a trace in the log."""
    try:
        app()
    except LeanOpsError as error:
        sys.exit(f"error: {error}")
    except Exception as error:  # noqa: BLE001 - the last stop before the user
        fault = fault_of_surroundings(error, _home())
        sys.exit(f"error: {fault}" if fault else _unexpected(error))


def _home() -> Path:
    try:
        return Settings.load().home
    except LeanOpsError:
        return Path()


def _unexpected(error: Exception) -> str:
    """A fault that nobody foresaw. Its trace goes to the log, or to the terminal where there is no log."""
    trace = "".join(traceback.format_exception(error))
    try:
        log = Home(Settings.load().home).prepare().logs / "leanops.log"
        with log.open("a") as file:
            file.write(trace)
    except (LeanOpsError, OSError):
        return trace
    return f"error: something unforeseen went wrong: {type(error).__name__}: {error}\nThe trace is at the end of {log}."
