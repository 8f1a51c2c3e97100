"""The Iceberg catalog, as PyIceberg and as Spark see it: one catalog, two doors."""

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from urllib.parse import quote

from filelock import FileLock
from pyiceberg.catalog import Catalog
from sqlalchemy.exc import DatabaseError

from leanops.home import Home
from leanops.names import CATALOG, NAMESPACES, RAW_DB, stray_of_raw_table, topic_of_raw_table
from leanops_resources.sql_catalog import QuickCatalog
from leanops_resources.sqlite_faults import BUSY_SECONDS, named

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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

    @abstractmethod
    def branch(self) -> "AbstractContextManager[CatalogBranch]":
        """An empty catalog beside this one, for as long as a rebuild needs it."""

    @abstractmethod
    def metadata_locations(self) -> Mapping[tuple[str, str], str]:
        """Where the current metadata of every table is, by namespace and name: one question, however many there are."""

    def raw_topics(self) -> Sequence[str]:
        """The topics that have ever landed anything."""
        return sorted(topic for topic in map(topic_of_raw_table, self._raw_tables()) if topic)

    def raw_strays(self) -> Sequence[str]:
        """What RAW tables were named for that can be no topic."""
        return sorted(stray for stray in map(stray_of_raw_table, self._raw_tables()) if stray is not None)

    def _raw_tables(self) -> Iterator[str]:
        return (name for namespace, name in self.metadata_locations() if namespace == RAW_DB)


class CatalogBranch(IcebergCatalog):
    """A catalog beside the platform's, in which a topic is rebuilt."""

    @abstractmethod
    def seen_from(self, spark: "SparkSession", identifier: tuple[str, str]) -> "DataFrame":
        """A table of this catalog, in a session whose own catalog is the platform's."""


class LocalCatalog(IcebergCatalog):
    """The catalog in a SQLite file, the tables in a folder beside it."""

    def __init__(self, home: Home, file: Path | None = None, name: str = CATALOG) -> None:
        self._home = home
        self._file = file or home.catalog
        self._name = name

    @contextmanager
    def branch(self) -> "Iterator[CatalogBranch]":
        with TemporaryDirectory(prefix="branch_", dir=self._home.path) as folder:
            yield _LocalBranch(self._home, Path(folder) / "catalog.db")

    def load(self) -> Catalog:
        try:
            # Whoever is first creates the file; PyIceberg does not expect company at that.
            with FileLock(self._file.with_suffix(".lock")):
                _write_ahead(self._file)
                catalog = QuickCatalog(
                    self._name,
                    uri=f"sqlite:///{quote(str(self._file))}?timeout={BUSY_SECONDS}",
                    warehouse=f"file://{self._home.warehouse}",
                )
                missing = set(NAMESPACES) - {".".join(name) for name in catalog.list_namespaces()}
                for namespace in missing:
                    catalog.create_namespace(namespace)
        except (sqlite3.DatabaseError, DatabaseError) as error:
            raise named(error, self._file, _IF_DAMAGED) from error
        return catalog

    def metadata_locations(self) -> Mapping[tuple[str, str], str]:
        self.load()
        try:
            with closing(sqlite3.connect(self._file, timeout=BUSY_SECONDS)) as db:
                rows = db.execute(
                    "SELECT table_namespace, table_name, metadata_location FROM iceberg_tables WHERE catalog_name = ?",
                    (self._name,),
                ).fetchall()
        except sqlite3.DatabaseError as error:
            raise named(error, self._file, _IF_DAMAGED) from error
        return {(namespace, name): location for namespace, name, location in rows}

    def spark_conf(self) -> Mapping[str, str]:
        prefix = f"spark.sql.catalog.{self._name}"
        return {
            prefix: "org.apache.iceberg.spark.SparkCatalog",
            f"{prefix}.catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
            f"{prefix}.uri": f"jdbc:sqlite:{self._file}?busy_timeout={BUSY_SECONDS * 1000}",
            f"{prefix}.jdbc.schema-version": "V1",
            f"{prefix}.warehouse": f"file://{self._home.warehouse}",
            # With its cache on, Spark does not see what PyIceberg has just committed.
            f"{prefix}.cache-enabled": "false",
            "spark.sql.defaultCatalog": CATALOG,
        }


class _LocalBranch(LocalCatalog, CatalogBranch):
    """A catalog file of its own. The tables' files stand where those of the platform's tables do."""

    def seen_from(self, spark: "SparkSession", identifier: tuple[str, str]) -> "DataFrame":
        # Catalogs of one file are told apart by their names, and a session has its own catalog under ours.
        name = self._file.parent.name
        other = LocalCatalog(self._home, self._file, name)
        other.load().register_table(identifier, self.load().load_table(identifier).metadata_location)
        for key, value in other.spark_conf().items():
            spark.conf.set(key, value)
        return spark.read.table(".".join(f"`{part}`" for part in (name, *identifier)))


def _write_ahead(path: Path) -> None:
    """Readers and the one writer do not wait for each other in a write-ahead log. The file remembers it."""
    with closing(sqlite3.connect(path, timeout=BUSY_SECONDS)) as db:
        db.execute("PRAGMA journal_mode = WAL")
