"""A table of an Iceberg catalog: loaded, created, and given the properties that commits of pipelines need.

1. `commit.retry.num-retries` is 0: a commit that is refused is not repeated by pyiceberg.
2. The metrics of the columns that the table is partitioned by are `full`: pyiceberg takes the values of a file from
   them, and takes a null where metrics are missing, as on a table with `write.metadata.metrics.default=none`.
3. A table that a pipeline creates merges its manifests, and keeps a bounded number of old metadata files: there is one
   of each for each batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from gnomon.spark.tables.lake_package import lake_package
from gnomon.spark.tables.table import BadTable

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table as LoadedTable

_FILE_IO: Final = "gnomon.spark.tables.synced_file_io.SyncedFileIO"
_TIDY: Final = {
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
}


class CatalogEntry:
    """A table of a catalog; its arguments are those of `iceberg_table.IcebergTable`.

    Raises:
        BadTable: the identifier has no namespace.
        ModuleNotFoundError: pyiceberg is not installed.
    """

    def __init__(self, identifier: str, catalog: Mapping[str, str], partition_by: Sequence[str]) -> None:
        self._errors = lake_package("pyiceberg.exceptions")
        self._load_catalog = lake_package("pyiceberg.catalog").load_catalog
        self._name = f"the Iceberg table {identifier}"
        self._identifier = tuple(identifier.split("."))
        if len(self._identifier) < 2 or not all(self._identifier):
            raise BadTable(f"{identifier!r} is no name of an Iceberg table: write namespace.table")
        self._catalog_name = catalog.get("name", "default")
        self._properties = {"py-io-impl": _FILE_IO, **catalog}
        self._properties.pop("name", None)
        self._partition_by = tuple(partition_by)
        self._needed = {"commit.retry.num-retries": "0"}
        self._needed |= {f"write.metadata.metrics.column.{column}": "full" for column in partition_by}

    def load(self) -> LoadedTable | None:
        """The state of the table now; None if it does not exist."""
        try:
            return self._catalog().load_table(self._identifier)
        except (self._errors.NoSuchTableError, self._errors.NoSuchNamespaceError):
            return None

    def loaded(self) -> LoadedTable:
        """The state of the table now.

        Raises:
            BadTable: the table does not exist.
        """
        table = self.load()
        if table is None:
            raise BadTable(f"{self._name} does not exist any more: it was dropped")
        return table

    def create(self, schema: pa.Schema) -> LoadedTable:
        """Creates the table; if another driver has just done so, this is that driver's."""
        catalog = self._catalog()
        namespace = self._identifier[:-1]
        try:
            catalog.create_namespace_if_not_exists(namespace)
        except Exception:  # of the catalog's database, if another driver has just created it
            if not catalog.namespace_exists(namespace):
                raise
        try:
            transaction = catalog.create_table_transaction(
                self._identifier, schema, properties={**_TIDY, **self._needed}
            )
            if self._partition_by:
                with transaction.update_spec() as spec:
                    for column in self._partition_by:
                        spec.add_identity(column)
            transaction.commit_transaction()
        except (self._errors.TableAlreadyExistsError, self._errors.CommitFailedException):
            pass  # another driver has created it
        return self.loaded()

    def has_properties(self, table: LoadedTable) -> bool:
        """Whether the table has the properties of invariants 1 and 2."""
        return self._needed.items() <= table.properties.items()

    def set_properties(self, table: LoadedTable) -> None:
        """Gives the table these properties, unless another writer changes the table at the same time."""
        if self.has_properties(table):
            return
        try:
            with table.transaction() as transaction:
                transaction.set_properties(self._needed)
        except self._errors.CommitFailedException:
            pass  # the property is looked at before each commit

    def _catalog(self) -> Catalog:
        try:
            catalog: Catalog = self._load_catalog(self._catalog_name, **self._properties)
        except Exception:  # a new database, whose tables two drivers create at the same time, fails for one of them
            catalog = self._load_catalog(self._catalog_name, **self._properties)
        return catalog
