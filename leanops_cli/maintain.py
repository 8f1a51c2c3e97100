"""`leanops maintain`: keeps tables quick to read and small on disk, at once."""

from typing import Annotated

import typer

from leanops.settings import Settings
from leanops_cli.known_topics import require_known
from leanops_cli.output import print_json_lines, print_table


def maintain(
    topic: Annotated[
        list[str] | None, typer.Option(help="Only this topic's tables; may be given several times.")
    ] = None,
    weekly: Annotated[bool, typer.Option("--weekly", help="Also what is done once a week: lost files.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per table.")] = False,
) -> None:
    """Compact files and manifests and expire snapshots: what the automation does every night. No row changes.

    The last 20 snapshots of a table are kept, those of the last six hours, and those that something rests on. Exit code
    1 if any table could not be maintained; the others are.
    """
    from leanops_assets.ops.maintenance import COLUMNS, MAINTAINED
    from leanops_assets.run_job import rows_told, run_job

    settings = Settings.load()
    require_known(topic or (), settings)
    run = run_job(settings, "maintenance", "maintain", {"topics": topic or [], "weekly": weekly})
    rows = rows_told(run, MAINTAINED)
    if as_json:
        print_json_lines(rows)
    elif rows:
        shown = [name for name in COLUMNS if name in ("table", "said") or any(row[name] for row in rows)]
        print_table(shown, ([row[name] or None for name in shown] for row in rows), right=shown[1:-1])
    else:
        print("No table needs anything.")
    if any(row["failed"] for row in rows):
        raise typer.Exit(1)
