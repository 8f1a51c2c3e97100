"""`leanops errors`: what is wrong at present, grouped."""

from typing import Annotated

import typer

from leanops.settings import Settings
from leanops_cli.known_topics import require_known
from leanops_cli.output import print_json_lines, print_table
from leanops_cli.warm import warm_session


def errors(
    topic: Annotated[list[str] | None, typer.Option(help="Only this topic; may be given several times.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per group.")] = False,
) -> None:
    """Group the open errors of all topics by rule and column: how many, since when, samples, and whose they are."""
    from leanops.ops.error_groups import error_groups
    from leanops_assets.manifests import planned_manifest

    settings = Settings.load()
    require_known(topic or (), settings)
    owners = planned_manifest(settings).owners
    with warm_session(settings) as (catalog, spark):
        found = error_groups(spark, catalog, owners, topic or None).toLocalIterator()
        groups = [row.asDict(recursive=True) for row in found]
    if as_json:
        print_json_lines(groups)
    elif not groups:
        print("No errors.")
    else:
        columns = ("topic", "rule", "column", "count", "first_seen", "last_seen", "by_day", "samples", "owner")
        print_table(columns, ([_cell(group[name]) for name in columns] for group in groups), right=("count",))


def _cell(value: object) -> object:
    if isinstance(value, list):
        return ", ".join("=".join(str(each) for each in item.values() if each is not None) for item in value)
    return value
