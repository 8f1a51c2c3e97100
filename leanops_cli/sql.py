"""`leanops sql`: a statement on the warm Spark server."""

import os
import time
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from leanops.errors import QueryInvalid
from leanops.settings import Settings
from leanops_cli.output import print_json_lines, print_table
from leanops_cli.warm import warm_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROWS_SHOWN = 1000
_ASK = '`leanops sql "SHOW TABLES IN iceberg_raw_db"` lists the tables of a layer.'


def sql(
    statement: Annotated[str, typer.Argument(help="A Spark SQL statement.")],
    as_json: Annotated[bool, typer.Option("--json", help="Every row, as one JSON object per line.")] = False,
) -> None:
    """Run a Spark SQL statement over the tables of this home.

    For example: `leanops sql "SELECT topic_name, count(*) FROM iceberg_raw_db.orders_staging GROUP BY ALL"`.
    A table shows the first 1,000 rows; `--json` streams all of them. Times are in UTC.
    """
    from pyspark.errors import PySparkException

    from leanops_resources.spark.recovery import server_fault

    # Python would show Spark's moments in this machine's zone.
    os.environ["TZ"] = "UTC"
    time.tzset()
    settings = Settings.load()
    with warm_session(settings) as (_, session):
        try:
            _print(session.sql(statement), as_json)
        except PySparkException as error:
            if fault := server_fault(error, session, settings, "this command"):
                raise fault from error
            raise QueryInvalid(f"Spark could not do this: {_first_line(error)}", _ASK) from error


def _print(result: "DataFrame", as_json: bool) -> None:
    columns, rows = result.columns, result.toLocalIterator()
    if as_json:
        print_json_lines(row.asDict(recursive=True) for row in rows)
    elif columns:
        print_table(columns, (["NULL" if cell is None else cell for cell in row] for row in islice(rows, ROWS_SHOWN)))
        if next(rows, None) is not None:
            typer.echo(f"… and more: only the first {ROWS_SHOWN:,} rows are shown; --json has all.", err=True)


def _first_line(error: Exception) -> str:
    """Spark's own words without its plan and its stack."""
    return str(error).strip().split(" SQLSTATE")[0].splitlines()[0]
