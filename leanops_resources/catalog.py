"""The Iceberg catalog, as PyIceberg and as Spark see it: one catalog, two doors."""

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from filelock import FileLock
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from sqlalchemy.exc import DatabaseError

from leanops.home import Home
from leanops.names import CATALOG, NAMESPACES, RAW_DB, topic_of_raw_table
from leanops_resources.sqlite_faults import BUSY_SECONDS, named

_IF_DAMAGED = (
    "It is the catalog; the tables' files under warehouse/ are untouched. Put its last good copy in its place, or "
    "remove LEANOPS_HOME to begin anew."
)


class IcebergCatalog(ABC):
    """One catalog for the metadata plane (PyIceberg) and the data plane (Spark)."""

    @abstractmethod
    def load(self) -> Catalog:
        """The catalog for PyIceberg, with the platform's namespaces in it."""

    @abstractmethod
    def spark_conf(self) -> Mapping[str, str]:
        """What a Spark session has to be told to see the same catalog."""

    def raw_topics(self) -> Sequence[str]:
        """The topics that have ever landed anything."""
        topics = (topic_of_raw_table(name) for _, name in self.load().list_tables(RAW_DB))
        return sorted(topic for topic in topics if topic)


class LocalCatalog(IcebergCatalog):
    """The catalog in a SQLite file, the tables in a folder beside it."""

    def __init__(self, home: Home) -> None:
        self._home = home

    def load(self) -> Catalog:
        try:
            # Whoever is first creates the file; PyIceberg does not expect company at that.
            with FileLock(self._home.catalog.with_suffix(".lock")):
                _write_ahead(self._home.catalog)
                catalog = SqlCatalog(
                    CATALOG,
                    uri=f"sqlite:///{quote(str(self._home.catalog))}?timeout={BUSY_SECONDS}",
                    warehouse=f"file://{self._home.warehouse}",
                )
                missing = set(NAMESPACES) - {".".join(name) for name in catalog.list_namespaces()}
                for namespace in missing:
                    catalog.create_namespace(namespace)
        except (sqlite3.DatabaseError, DatabaseError) as error:
            raise named(error, self._home.catalog, _IF_DAMAGED) from error
        return catalog

    def spark_conf(self) -> Mapping[str, str]:
        prefix = f"spark.sql.catalog.{CATALOG}"
        return {
            prefix: "org.apache.iceberg.spark.SparkCatalog",
            f"{prefix}.catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
            f"{prefix}.uri": f"jdbc:sqlite:{self._home.catalog}?busy_timeout={BUSY_SECONDS * 1000}",
            f"{prefix}.jdbc.schema-version": "V1",
            f"{prefix}.warehouse": f"file://{self._home.warehouse}",
            # With its cache on, Spark does not see what PyIceberg has just committed.
            f"{prefix}.cache-enabled": "false",
            "spark.sql.defaultCatalog": CATALOG,
        }


def _write_ahead(path: Path) -> None:
    """Readers and the one writer do not wait for each other in a write-ahead log. The file remembers it."""
    with closing(sqlite3.connect(path, timeout=BUSY_SECONDS)) as db:
        db.execute("PRAGMA journal_mode = WAL")
