"""The outside as Dagster resources: what a step is handed, and what the UI shows of its configuration.

Nothing heavy is imported here: Spark and Iceberg are loaded by the first step that asks for them.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg
from dagster_pyspark import LazyPySparkResource
from pydantic import Field

from leanops.home import Home
from leanops.settings import Settings
from leanops_resources.schema_store import SchemaStore, schema_store
from leanops_resources.state.sqlite import SqliteStateStore
from leanops_resources.state.store import StateStore

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyspark.sql import SparkSession

    from leanops_resources.catalog import IcebergCatalog


class CatalogResource(dg.ConfigurableResource[None]):
    """The Iceberg catalog of a home."""

    home: str

    @property
    def catalog(self) -> "IcebergCatalog":
        from leanops_resources.catalog import LocalCatalog

        return LocalCatalog(Home(Path(self.home)).prepare())

    def load(self) -> "Catalog":
        return self.catalog.load()


class StateStoreResource(dg.ConfigurableResource[None]):
    """The state store of a home."""

    home: str

    @property
    def store(self) -> StateStore:
        return SqliteStateStore(Home(Path(self.home)).prepare().state)


class SchemaStoreResource(dg.ConfigurableResource[None]):
    """The contracts."""

    folder: str

    @property
    def store(self) -> SchemaStore:
        return schema_store(self.folder)


class BuildOptions(dg.ConfigurableResource[None]):
    """What a run is asked for beyond what is new."""

    rebuild: bool = Field(
        default=False, description="Make the run's day anew from all that the layer before holds of it."
    )


class SparkConnectResource(LazyPySparkResource):
    """A session on this home's Spark server, or on the cluster that `SPARK_REMOTE` names; opened on first use."""

    spark_config: dict[str, str] = Field(default_factory=dict)
    home: str

    def _init_session(self) -> None:
        from leanops_resources.spark.session import attach

        if self._spark_session is None:
            settings = Settings.load().model_copy(update={"home": Path(self.home)})
            self._spark_session = attach(settings, CatalogResource(home=self.home).catalog)

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:  # noqa: ARG002 - Dagster's signature
        """A run's session ends with the run; the server goes on."""
        if self._spark_session is not None:
            self._spark_session.stop()
            self._spark_session = None

    def session(self) -> "SparkSession":
        """The session, typed."""
        session: SparkSession = self.spark_session
        return session


def embedded_resources(settings: Settings) -> dict[str, dg.ConfigurableResource[None]]:
    """Everything on this machine, under one home."""
    home = str(settings.home)
    return {
        "iceberg": CatalogResource(home=home),
        "state": StateStoreResource(home=home),
        "contracts": SchemaStoreResource(folder=str(settings.schemas)),
        "spark": SparkConnectResource(home=home),
        "builds": BuildOptions(),
    }
