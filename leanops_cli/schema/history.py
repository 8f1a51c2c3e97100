"""`leanops schema history`: every contract that was activated."""

from typing import Annotated

import typer

from leanops.home import Home
from leanops.settings import Settings
from leanops_cli.known_topics import require_known
from leanops_cli.output import print_json_lines, print_table


def history(
    topic: Annotated[str | None, typer.Argument(help="Only this topic.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per version, with the contract.")] = False,
) -> None:
    """List the versions of contracts that were activated: when, by whom, and what each changed."""
    from leanops.ops.schema_versions import versions
    from leanops_resources.catalog import LocalCatalog

    settings = Settings.load()
    if topic:
        require_known([topic], settings)
    found = versions(LocalCatalog(Home(settings.home).prepare()).load(), topic)
    if as_json:
        print_json_lines(found)
    elif found:
        rows = (
            (
                row["topic"],
                row["version"],
                f"{row['activated']:%Y-%m-%d %H:%M:%S}",
                row["submitted_by"],
                *line.split(": ", 1),
            )
            for row in found
            for line in row["changes"].splitlines()
        )
        print_table(("topic", "version", "activated", "by", "impact", "what changed"), rows, right=("version",))
    else:
        whose = f"of {topic} " if topic else ""
        print(f"No activation {whose}is logged. The job `catch_up` logs contracts that were active before the log was.")
