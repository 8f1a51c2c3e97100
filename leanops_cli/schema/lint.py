"""`leanops schema lint`: every problem of contract files, before anybody submits them."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from leanops.contracts.reading import read_contract
from leanops.errors import ContractInvalid, Problem
from leanops_cli.output import print_json_lines, printable
from leanops_cli.schema.contract_files import contract_in
from leanops_resources.schema_store import CONTRACT_FILE, ERROR_FILE, Stage

_IN_A_STAGE = {Stage.PENDING: "*.json", Stage.ACTIVE: CONTRACT_FILE}
"""Where contracts stand that are in use or are to be. What was refused or replaced is not to be mended any more."""


@dataclass(frozen=True)
class Linted:
    """A contract file, and what is wrong in it."""

    file: Path
    topic: str | None
    problems: tuple[Problem, ...]


def lint(
    paths: Annotated[
        list[Path], typer.Argument(metavar="PATH", help="Contract files, or folders of them such as `schemas`.")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per file.")] = False,
) -> None:
    """Check contract files, and tell all that is wrong in them. Exit code 1 if anything is.

    In a folder those are checked that are active or pending. The topic is the one whose folder a file stands in;
    elsewhere it is the file's own `table_name`.
    """
    found = [_linted(file) for file in dict.fromkeys(file for path in paths for file in _files(path))]
    if as_json:
        print_json_lines(_document(each) for each in found)
    else:
        _print(found)
    if any(each.problems for each in found):
        raise typer.Exit(1)


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        if not (files := sorted(set(_contracts_under(path)))):
            typer.echo(f"warning: there is no contract under {path}, neither active nor pending.", err=True)
        return files
    return [path]


def _contracts_under(folder: Path) -> Iterator[Path]:
    """The contracts of a folder of topics, of one topic, or of one stage of it."""
    for stage, names in _IN_A_STAGE.items():
        places = [f"*/{stage}/{names}", f"{stage}/{names}", *([names] if folder.absolute().name == stage else [])]
        for file in (file for place in places for file in folder.glob(place)):
            is_hidden = any(part.startswith(".") for part in file.relative_to(folder).parts)
            if file.is_file() and not is_hidden and file.name != ERROR_FILE:
                yield file


def _linted(file: Path) -> Linted:
    topic, content = contract_in(file)
    try:
        read_contract(content, topic, str(file))
    except ContractInvalid as error:
        return Linted(file, topic, error.problems)
    return Linted(file, topic, ())


def _document(linted: Linted) -> dict[str, object]:
    return {
        "file": printable(str(linted.file)),
        "topic": linted.topic,
        "ok": not linted.problems,
        "problems": [problem.document() for problem in linted.problems],
    }


def _print(found: list[Linted]) -> None:
    for each in found:
        print(f"{printable(str(each.file))}: {_counted(len(each.problems), 'problem') if each.problems else 'ok'}")
        for problem in each.problems:
            print(f"  {printable(str(problem))}")
    broken = [each for each in found if each.problems]
    problems = sum(len(each.problems) for each in broken)
    verdict = f"{_counted(problems, 'problem')} in {len(broken)} of them" if broken else "all of them ok"
    print(f"{_counted(len(found), 'contract')}, {verdict}." if found else "0 contracts.")


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}" + ("" if count == 1 else "s")
