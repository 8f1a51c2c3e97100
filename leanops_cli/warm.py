"""What commands that ask Spark have in common: a session on the home's warm server, for as long as they need it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from leanops.home import Home
from leanops.progress import progress
from leanops.settings import Settings

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyspark.sql import SparkSession


@contextmanager
def warm_session(settings: Settings) -> "Iterator[tuple[Catalog, SparkSession]]":
    """The home's catalog, and a session that sees it."""
    from leanops_resources.catalog import LocalCatalog
    from leanops_resources.spark.faults import let_go
    from leanops_resources.spark.recovery import spark_faults_named
    from leanops_resources.spark.session import attach

    catalog = LocalCatalog(Home(settings.home).prepare())
    loaded = catalog.load()
    with progress("Spark"):
        session = attach(settings, catalog)
    try:
        with spark_faults_named(session, settings, "this command"):
            yield loaded, session
    finally:
        let_go(session)
