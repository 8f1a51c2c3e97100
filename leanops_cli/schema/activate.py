"""`leanops schema activate`: take in at once what is pending."""

from typing import TYPE_CHECKING, Annotated

import typer

from leanops.errors import LeanOpsError, TopicUnknown
from leanops.home import Home
from leanops.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def activate(
    topic: Annotated[list[str] | None, typer.Argument(help="Only these topics.")] = None,
) -> None:
    """Do once, in the foreground, what the sensor `contracts` would: take in all that is under `pending/`.

    Exit code 1 if any upload was refused; it is then under `failed/`, with all that is wrong in `error.json`. One that
    could not be taken in for another reason, such as Spark's absence, stays under `pending/`.
    """
    from leanops_assets.contracts.activation import REFUSALS, Activation, described
    from leanops_resources.catalog import LocalCatalog
    from leanops_resources.schema_store import schema_store
    from leanops_resources.spark.faults import let_go
    from leanops_resources.spark.session import attach
    from leanops_resources.state.stores import state_store

    settings = Settings.load()
    home = Home(settings.home).prepare()
    store, catalog = schema_store(settings.schemas), LocalCatalog(home)
    uploads = [upload for upload in store.uploads() if not topic or upload.topic in topic]
    if topic and (missing := set(topic) - {upload.topic for upload in uploads}):
        raise TopicUnknown(
            f"Nothing is pending for {', '.join(sorted(missing))}.", "`leanops schema submit` puts a contract there."
        )
    opened: list[SparkSession] = []

    def session() -> "SparkSession":
        if not opened:
            opened.append(attach(settings, catalog))
        return opened[0]

    activation = Activation(settings, store, state_store(settings), catalog, session, print)
    refused = False
    try:
        for upload in uploads:
            try:
                if activated := activation.take_in(upload):
                    print("\n".join(described(activated)))
            except LeanOpsError as error:
                stays = "" if isinstance(error, REFUSALS) else f" The upload of {upload.topic} stays pending."
                typer.echo(f"error: {error}{stays}", err=True)
                refused = True
    finally:
        for each in opened:
            let_go(each)
    if not uploads:
        print("Nothing is pending.")
    if refused:
        raise typer.Exit(1)
