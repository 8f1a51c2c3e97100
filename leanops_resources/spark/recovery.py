"""What is done about a Spark server that is gone, or that is there and cannot reach its catalog.

A server that comes up while the disk is full cannot unpack SQLite's library, and tries it once only: from then on it
answers, and fails everything that has to do with tables. Whoever meets that ends it, and the next one to need Spark
starts another.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from leanops.errors import SparkUnavailable
from leanops.home import Home
from leanops.names import CATALOG
from leanops.settings import Settings
from leanops_resources.spark.faults import describe, let_go, went_away

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NO_CATALOG = ("NativeDB._open_utf8", "Failed to connect: jdbc:")


@contextmanager
def spark_faults_named(session: "SparkSession", settings: Settings, what: str) -> Iterator[None]:
    """Tell what fails because of the session's server as just that. Anything else is raised as it is."""
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as error:
        if fault := server_fault(error, session, settings, what):
            raise fault from error
        raise


def server_fault(
    error: BaseException, session: "SparkSession", settings: Settings, what: str
) -> SparkUnavailable | None:
    """That a session's server is gone or cannot reach its catalog, if that is why something failed."""
    from leanops.batch.isolation import answers

    return catalog_fault(error, settings) or (None if answers(session) else went_away(error, what))


def catalog_fault(error: BaseException, settings: Settings) -> SparkUnavailable | None:
    """That the server cannot reach its catalog, if an error says so. A home's own server is ended then."""
    if not any(sign in describe(error) for sign in _NO_CATALOG):
        return None
    if not settings.spark_remote:
        _end_without_catalog(settings)
    return SparkUnavailable(
        f"The Spark server cannot reach its catalog: {describe(error)}.",
        "It was ended, and is started anew by whoever needs it next.",
    )


def _end_without_catalog(settings: Settings) -> None:
    """End the home's server if it cannot reach the catalog. Somebody may have replaced it by one that can."""
    from leanops_resources.catalog import LocalCatalog
    from leanops_resources.spark.server import running, stop
    from leanops_resources.spark.session import attach

    home = Home(settings.home)
    if running(home) is None:
        return
    try:
        session = attach(settings, LocalCatalog(home))
        try:
            session.sql(f"SHOW NAMESPACES IN {CATALOG}").collect()
        finally:
            let_go(session)
    except Exception:  # noqa: BLE001 - whatever it says, it cannot
        stop(home)
