"""`leanops spark`: the Spark server of this home."""

import time

import typer

from leanops.home import Home
from leanops.progress import progress
from leanops.settings import Settings

spark = typer.Typer(help="The warm Spark server of this home: start it, look at it, stop it.", no_args_is_help=True)


@spark.command()
def start() -> None:
    """Start the server if it is not up yet. Other commands do that by themselves when they need Spark."""
    from leanops_resources.spark.server import server_url

    settings = Settings.load()
    begun = time.monotonic()
    with progress("Starting Spark"):
        server_url(settings)
    if settings.spark_remote:
        print("SPARK_REMOTE is set: no server is started here.")
    else:
        print(f"Up after {time.monotonic() - begun:.1f} s.")


@spark.command()
def status() -> None:
    """Say whether the server is up, where, and since when. Exit code 1 if it is not."""
    import psutil

    from leanops_resources.spark.server import running

    settings = Settings.load()
    if settings.spark_remote:
        print(f"SPARK_REMOTE is set: {settings.spark_remote.partition(';')[0]} is used, and no server is kept here.")
        return
    server = running(Home(settings.home))
    if server is None:
        print(f"No Spark server is up for {settings.home}. The next command that needs one starts it.")
        raise typer.Exit(1)
    process = psutil.Process(server.spark.pid)
    minutes = (time.time() - server.spark.started) / 60
    print(
        f"Up for {minutes:.0f} min: process {server.spark.pid} on localhost:{server.port}, master {server.master}, "
        f"driver memory {server.driver_memory}, {process.memory_info().rss / 2**20:,.0f} MB in use."
    )


@spark.command()
def stop() -> None:
    """End the server. Whoever needs Spark next starts a new one."""
    from leanops_resources.spark.server import stop as stop_server

    home = Home(Settings.load().home)
    with progress("Stopping Spark"):
        stopped = stop_server(home)
    print("Stopped." if stopped else f"No Spark server was up for {home.path}.")
