"""The outside as Dagster resources: what a step is handed, and what the UI shows of its configuration.

Nothing heavy is imported here: Spark and Iceberg are loaded by the first step that asks for them.
"""

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg
from dagster_pyspark import LazyPySparkResource
from pydantic import Field, PrivateAttr

from leanops.home import Home
from leanops.settings import STILL_SECONDS, Settings
from leanops_resources.schema_store import SchemaStore, schema_store
from leanops_resources.state.store import StateStore

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyspark.sql import SparkSession

    from leanops_resources.catalog import IcebergCatalog
    from leanops_resources.dlq_archive import DlqArchive
    from leanops_resources.sources.source import Sources


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
    """The state store of a deployment."""

    home: str
    kind: str = Field(default="sqlite", description="`sqlite`, in the home, or `dynamodb:TABLE`.")
    _store: StateStore | None = PrivateAttr(default=None)

    @property
    def store(self) -> StateStore:
        """The store, opened by the first of a run's steps that asks: each would look for its tables anew."""
        from leanops_resources.state.stores import state_store

        if self._store is None:
            settings = Settings.load().model_copy(update={"home": Path(self.home), "state": self.kind})
            self._store = state_store(settings)
        return self._store


class IntakeResource(dg.ConfigurableResource[None]):
    """Where messages come from, and where the bodies of those go that cannot land."""

    home: str
    queue_prefix: str | None = Field(default=None, description="Set where queues are drained, not the landing folder.")
    still_seconds: float = Field(default=STILL_SECONDS, description="How long a file of the landing folder is still.")
    dlq_archive: str | None = None

    @property
    def sources(self) -> "Sources":
        from leanops_resources.sources.sources import sources_of

        return sources_of(Path(self.home), self.queue_prefix, self.still_seconds)

    @property
    def archive(self) -> "DlqArchive":
        from leanops_resources.dlq_archive import dlq_archive

        return dlq_archive(self.dlq_archive or Home(Path(self.home)).dlq_archive)


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
        from leanops_resources.spark.faults import let_go

        if self._spark_session is not None:
            let_go(self._spark_session)
            self._spark_session = None

    def is_lost(self) -> bool:
        """Whether there was a session that does not answer any more, as after the end of its server.

        Whoever asks for a session next gets another one.
        """
        from leanops.batch.isolation import answers
        from leanops_resources.spark.faults import let_go

        session = self._spark_session
        if session is None:
            return False
        if answers(session):
            return False
        self._spark_session = None
        with suppress(Exception):
            let_go(session)
        return True

    def fault(self, error: Exception) -> Exception:
        """The error itself, or that the server is gone or cannot reach its catalog, which Spark tells in many ways."""
        from leanops_resources.spark.faults import let_go, went_away
        from leanops_resources.spark.recovery import catalog_fault

        session = self._spark_session
        if session is None:
            return error
        if fault := catalog_fault(error, Settings.load().model_copy(update={"home": Path(self.home)})):
            self._spark_session = None
            with suppress(Exception):
                let_go(session)
            return fault
        return went_away(error, "a build") if self.is_lost() else error

    def session(self) -> "SparkSession":
        """The session, typed."""
        session: SparkSession = self.spark_session
        return session


def embedded_resources(settings: Settings) -> dict[str, dg.ConfigurableResource[None]]:
    """Everything on this machine, under one home."""
    home = str(settings.home)
    return {
        "iceberg": CatalogResource(home=home),
        "state": StateStoreResource(home=home, kind=settings.state),
        "intake": IntakeResource(
            home=home,
            queue_prefix=settings.queue_prefix,
            still_seconds=settings.landing_still_seconds,
            dlq_archive=str(settings.dlq_archive) if settings.dlq_archive else None,
        ),
        "contracts": SchemaStoreResource(folder=str(settings.schemas)),
        "spark": SparkConnectResource(home=home),
        "builds": BuildOptions(),
    }
