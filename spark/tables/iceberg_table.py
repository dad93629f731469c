"""An Iceberg table that a pipeline writes: tasks write its files, and a transaction of the driver adds them.

1. The record of a pipeline is a property of the table, which stays when snapshots expire. One transaction sets it and
   adds a snapshot.
2. A transaction requires that the snapshot is the last one of the table that the handle has loaded. So the record is
   compared and set (invariant 4 of `table`).
3. pyiceberg does not repeat a commit that was refused (`catalog_entry`): it would load a newer state by itself, and
   commit a batch that a rival has committed.
4. Files have the columns that the table is partitioned by.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from gnomon.spark.tables.catalog_entry import CatalogEntry
from gnomon.spark.tables.data_files.data_file import DataFile, FileLayout
from gnomon.spark.tables.lake_package import lake_package
from gnomon.spark.tables.local_folder import local_folder, make_folder
from gnomon.spark.tables.replaced_rows import Condition, as_expression
from gnomon.spark.tables.schema_fit import DELETED, Evolution, additions, check_partitioning, check_rows, with_columns
from gnomon.spark.tables.staged_files import remove_staged, remove_unused, staged_folder, staged_layout
from gnomon.spark.tables.table import (
    AGAIN,
    BadTable,
    CommitMode,
    CommitVerdict,
    TableBatch,
    checked_pipeline_name,
    decided,
    verdict,
)
from gnomon.spark.tables.upsert_rows import check_keys, read_rows, rows_near_keys, rows_with_other_keys

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.table import Table as LoadedTable
    from pyiceberg.table import Transaction

SNAPSHOT_DAYS: Final = 7
"""Snapshots that are older than this, counted from the last commit, expire."""
_DAY_MS: Final = 24 * 3600 * 1000
_RECORD: Final = re.compile(r"([0-9a-f]{15})/([0-9]{1,19})")


class IcebergTable:
    """An Iceberg table whose files are in a local folder.

    Args:
        identifier: the names of its namespace and of the table, with dots.
        pipeline: the name of the pipeline; several may write to one table.
        catalog: the properties of the catalog, as for pyiceberg's `load_catalog`; `name` is the name of the catalog.
        partition_by: the columns that the table is partitioned by, as they are (`identity`).
        keys: the columns that identify a row; for upserts.
        evolve: see `schema_fit`.
        replaces: the query whose place this one takes.

    Raises:
        BadTable: no Iceberg table can be written so.
        ModuleNotFoundError: pyiceberg is not installed.
    """

    def __init__(
        self,
        identifier: str,
        pipeline: str,
        *,
        catalog: Mapping[str, str],
        partition_by: Sequence[str] = (),
        mode: CommitMode = CommitMode.APPEND,
        keys: Sequence[str] = (),
        evolve: Evolution = "fail",
        replaces: str | None = None,
    ) -> None:
        self._errors = lake_package("pyiceberg.exceptions")
        self._name = f"the Iceberg table {identifier}"
        self._entry = CatalogEntry(identifier, catalog, partition_by)
        self._pipeline = checked_pipeline_name(pipeline)
        self._record = f"gnomon.{self._pipeline}.last-batch"
        self._partition_by = tuple(partition_by)
        self._upserts = mode is CommitMode.UPSERT
        self._keys = tuple(keys)
        self._evolve: Evolution = evolve
        self._replaces = replaces

    def check(self, schema: pa.Schema) -> None:
        """See `LakeTable`."""
        self._check(schema)
        table = self._entry.load()
        if table is not None:
            _folder(table)
            self._additions(table, schema)

    def recover(self) -> None:
        """See `LakeTable`: a commit shows all rows."""

    def prepare(self, schema: pa.Schema) -> FileLayout:
        """See `LakeTable`."""
        self._check(schema)
        table = self._entry.load() or self._entry.create(schema)
        folder = _folder(table)
        self._additions(table, schema)
        self._entry.set_properties(table)
        if self._upserts:
            return staged_layout(folder)
        make_folder(folder / "data")
        return FileLayout(str(folder / "data"), self._partition_by)

    def schema(self) -> pa.Schema | None:
        """See `LakeTable`."""
        table = self._entry.load()
        return None if table is None else table.schema().as_arrow()

    def last(self) -> TableBatch | None:
        """See `LakeTable`."""
        table = self._entry.load()
        return None if table is None else self._last(table)

    def commit(self, batch: TableBatch, schema: pa.Schema, files: Sequence[DataFile]) -> CommitVerdict:
        """See `LakeTable`."""
        found = decided(self._name, lambda: self._attempt(batch, schema, files))
        if self._upserts and found is not CommitVerdict.FENCED:
            remove_staged(_folder(self._entry.loaded()), files)
        return found

    def replace(self, schema: pa.Schema, files: Sequence[DataFile], replaced: Condition) -> None:
        """See `ReplacingTable`."""
        decided(self._name, lambda: self._replaced(schema, files, replaced))

    def maintain(self) -> str:
        """Forgets old snapshots; see `LakeTable`."""
        table = self._entry.load()
        if table is None:
            return "nothing to expire: the table does not exist"
        oldest_ms = table.metadata.last_updated_ms - SNAPSHOT_DAYS * _DAY_MS
        heads = {ref.snapshot_id for ref in table.metadata.refs.values()}
        old = [each.snapshot_id for each in table.snapshots() if each.timestamp_ms < oldest_ms]
        expired = [each for each in old if each not in heads]
        if expired:
            try:
                table.maintenance.expire_snapshots().by_ids(expired).commit()
            except self._errors.CommitFailedException:
                return "no snapshot expired, since another writer changed the table: try again later"
        removed = remove_unused(staged_folder(_folder(table)))
        return (
            f"{len(expired)} snapshots expired, {removed} staged files removed; pyiceberg neither merges small files"
            " nor removes the files of expired snapshots: use Spark's rewrite_data_files and remove_orphan_files"
        )

    def _attempt(self, batch: TableBatch, schema: pa.Schema, files: Sequence[DataFile]) -> CommitVerdict | None:
        table = self._entry.load()
        if table is None:
            self.prepare(schema)
            return AGAIN
        found = verdict(self._last(table), batch, self._replaces)
        if found is not CommitVerdict.OPEN:
            return found
        if not self._entry.has_properties(table):
            self._entry.set_properties(table)
            return AGAIN
        people = {"gnomon.pipeline": self._pipeline, "gnomon.query": batch.query, "gnomon.batch": str(batch.number)}
        transaction = self._begun(table, schema)
        transaction.set_properties({self._record: f"{batch.query_digits}/{batch.number}"})
        if self._upserts and files:
            self._upsert(table, transaction, files, people)
        else:
            _add_files(transaction, table, files, people)
        return self._committed(transaction)

    def _replaced(self, schema: pa.Schema, files: Sequence[DataFile], replaced: Condition) -> CommitVerdict | None:
        table = self._entry.loaded()
        if not self._entry.has_properties(table):
            self._entry.set_properties(table)
            return AGAIN
        people = {"gnomon.pipeline": self._pipeline, "gnomon.replay": "true"}
        transaction = self._begun(table, schema)
        _delete(transaction, as_expression(replaced), people)
        if files:
            _add_files(transaction, table, files, people)
        return self._committed(transaction)

    def _begun(self, table: LoadedTable, schema: pa.Schema) -> Transaction:
        """A transaction, which adds the columns that the table lacks; raises as `_additions`."""
        transaction = table.transaction()
        added = self._additions(table, schema)
        if added:
            with transaction.update_schema() as update:
                update.union_by_name(pa.schema(added))
        return transaction

    def _committed(self, transaction: Transaction) -> CommitVerdict | None:
        try:
            transaction.commit_transaction()
        except self._errors.CommitFailedException:
            return AGAIN
        return CommitVerdict.COMMITTED

    def _upsert(
        self, table: LoadedTable, transaction: Transaction, files: Sequence[DataFile], people: dict[str, str]
    ) -> None:
        """Deletes all rows with the keys of the batch, and adds those of the batch that are no deletions.

        The addition makes a snapshot even if it adds no row, which invariant 2 needs.
        """
        columns = transaction.table_metadata.schema().as_arrow()
        rows = read_rows(self._name, _folder(table), files, columns, self._keys)
        near = rows_near_keys(rows, self._keys)
        kept = rows.filter(pc.invert(rows.column(DELETED))).select(columns.names).cast(columns)
        if len(self._keys) > 1:
            others = rows_with_other_keys(table.scan(row_filter=near).to_arrow(), rows, self._keys)
            kept = pa.concat_tables([kept, with_columns(others, columns)])
        _delete(transaction, near, people)
        transaction.append(kept, snapshot_properties=people)

    def _last(self, table: LoadedTable) -> TableBatch | None:
        text = table.properties.get(self._record)
        if text is None:
            return None
        found = _RECORD.fullmatch(text)
        if found is None:
            raise BadTable(f"{self._name} has the property {self._record}={text!r:.60}, which is no batch: restore it")
        return TableBatch(found[1], int(found[2]))

    def _check(self, schema: pa.Schema) -> None:
        check_rows(self._name, schema, self._partition_by, self._keys)
        if self._upserts:
            check_keys(self._name, schema, self._keys)

    def _additions(self, table: LoadedTable, schema: pa.Schema) -> list[pa.Field]:
        """The columns that the table lacks.

        Raises:
            BadTable: the rows do not fit.
        """
        self._check(schema)
        fields = table.spec().fields
        transforms = {str(field.transform) for field in fields} - {"identity"}
        if transforms:
            raise BadTable(
                f"{self._name} is partitioned by {', '.join(sorted(transforms))}: only columns are supported"
            )
        columns = [table.schema().find_column_name(field.source_id) or "" for field in fields]
        check_partitioning(self._name, columns, self._partition_by)
        return additions(self._name, schema, table.schema().as_arrow(), self._evolve, _iceberg_type)


def _add_files(transaction: Transaction, table: LoadedTable, files: Sequence[DataFile], people: dict[str, str]) -> None:
    paths = [f"{table.location().rstrip('/')}/data/{file.path}" for file in files]
    transaction.add_files(paths, snapshot_properties=people, check_duplicate_files=False)


def _delete(transaction: Transaction, rows: BooleanExpression, people: dict[str, str]) -> None:
    """Deletes the rows that fulfil an expression, if there are some."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Delete operation did not match any records")
        transaction.delete(rows, snapshot_properties=people)


def _folder(table: LoadedTable) -> Path:
    return local_folder(table.location())


def _iceberg_type(kind: pa.DataType) -> pa.DataType:
    """Iceberg's type for one of Arrow: it has no whole numbers below 32 bits."""
    return pa.int32() if pa.types.is_int8(kind) or pa.types.is_int16(kind) else kind
