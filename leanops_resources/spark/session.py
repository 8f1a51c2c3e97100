"""A session on the Spark server, with the catalog in it."""

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from leanops.errors import SparkUnavailable
from leanops.settings import Settings
from leanops_resources.catalog import IcebergCatalog
from leanops_resources.spark.server import server_url


def attach(settings: Settings, catalog: IcebergCatalog) -> SparkSession:
    """A new session of its own on the server that `settings` mean."""
    builder = SparkSession.builder.remote(server_url(settings))
    for key, value in {**catalog.spark_conf(), "spark.sql.session.timeZone": "UTC"}.items():
        builder = builder.config(key, value)
    try:
        session: SparkSession = builder.create()
    except PySparkException as error:
        where = settings.spark_remote or "this home's Spark server"
        raise SparkUnavailable(
            f"No session could be opened on {where}: {error}.", "Check that it is up and that the token is right."
        ) from error
    return session
