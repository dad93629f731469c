"""A Delta table that a pipeline writes: tasks write its files, and a commit of the driver adds them.

1. A commit has two application transactions. That of the pipeline has the number of the query: its first digits as a
   whole number. That of the pipeline and the query has the number of the batch.
2. Delta refuses a commit if another one has added a transaction of the same application since the handle was loaded. So
   the record of a pipeline is compared and set (invariant 4 of `table`).
3. The number of a query may be lower than that of the query before: Delta keeps the last one, not the highest.
4. A merge that changes no row is no commit of Delta's. An empty commit then records the batch.
5. A replay is Delta's own replacement of the rows that fulfil a predicate. deltalake compares it with the commits of
   others since the table was read, by this predicate and the statistics of their files.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from gnomon.spark.tables.data_files.data_file import DataFile, FileLayout
from gnomon.spark.tables.delta_rules import check_rules
from gnomon.spark.tables.lake_package import lake_package
from gnomon.spark.tables.local_folder import local_folder, make_folder, sync, sync_newest
from gnomon.spark.tables.replaced_rows import Condition, as_sql
from gnomon.spark.tables.schema_fit import Evolution, additions, check_partitioning, check_rows
from gnomon.spark.tables.staged_files import remove_staged, remove_unused, staged_folder, staged_layout, staged_rows
from gnomon.spark.tables.table import (
    AGAIN,
    QUERY_DIGITS,
    BadTable,
    CommitMode,
    CommitVerdict,
    TableBatch,
    checked_pipeline_name,
    decided,
    verdict,
)
from gnomon.spark.tables.upsert_rows import check_keys, read_rows

if TYPE_CHECKING:
    import deltalake

_SYNCED_VERSIONS: Final = 10
"""More than one, since the driver of an earlier version may have died before it synced the log."""


class DeltaTable:
    """A Delta table in a local folder.

    Args:
        location: the folder, as a path or a `file://` URI.
        pipeline: the name of the pipeline; several may write to one table.
        partition_by: the columns that the table is partitioned by.
        keys: the columns that identify a row; for upserts.
        evolve: see `schema_fit`.
        replaces: the query whose place this one takes.

    Raises:
        BadTable: no Delta table can be written so.
        ModuleNotFoundError: deltalake is not installed.
    """

    def __init__(
        self,
        location: str,
        pipeline: str,
        *,
        partition_by: Sequence[str] = (),
        mode: CommitMode = CommitMode.APPEND,
        keys: Sequence[str] = (),
        evolve: Evolution = "fail",
        replaces: str | None = None,
    ) -> None:
        self._delta = lake_package("deltalake")
        self._errors = lake_package("deltalake.exceptions")
        self._folder = local_folder(location)
        self._name = f"the Delta table {self._folder}"
        self._app = f"gnomon/{checked_pipeline_name(pipeline)}"
        self._pipeline = pipeline
        self._partition_by = tuple(partition_by)
        self._mode = mode
        self._keys = tuple(keys)
        self._evolve: Evolution = evolve
        self._replaces = replaces

    def check(self, schema: pa.Schema) -> None:
        """See `LakeTable`."""
        self._check(schema)
        handle = self._load()
        if handle is not None:
            self._additions(handle, schema)

    def recover(self) -> None:
        """See `LakeTable`: a commit shows all rows."""

    def prepare(self, schema: pa.Schema) -> FileLayout:
        """See `LakeTable`."""
        self._check(schema)
        make_folder(self._folder)
        handle = self._load() or self._create(schema)
        self._additions(handle, schema)
        if self._mode is not CommitMode.APPEND:
            return staged_layout(self._folder)
        return FileLayout(str(self._folder), self._partition_by, keep_partition_columns=False)

    def schema(self) -> pa.Schema | None:
        """See `LakeTable`."""
        handle = self._load()
        return None if handle is None else pa.schema(handle.schema().to_arrow())

    def last(self) -> TableBatch | None:
        """See `LakeTable`."""
        handle = self._load()
        return None if handle is None else self._last(handle)

    def commit(self, batch: TableBatch, schema: pa.Schema, files: Sequence[DataFile]) -> CommitVerdict:
        """See `LakeTable`."""
        found = decided(self._name, lambda: self._attempt(batch, schema, files))
        if found is not CommitVerdict.FENCED:
            self._sync_log()
            if self._mode is CommitMode.UPSERT:
                remove_staged(self._folder, files)
        return found

    def replace(self, schema: pa.Schema, files: Sequence[DataFile], replaced: Condition) -> None:
        """See `ReplacingTable`."""
        decided(self._name, lambda: self._replaced(schema, files, replaced))
        self._sync_log()
        remove_staged(self._folder, files)

    def maintain(self) -> str:
        """Merges small files, and removes those that no version of the last week has; see `LakeTable`."""
        handle = self._load()
        if handle is None:
            return "nothing to merge: the table does not exist"
        try:
            merged = handle.optimize.compact()
        except self._errors.CommitFailedError:
            return "nothing merged, since another writer changed the table: try again later"
        removed = len(handle.vacuum(dry_run=False, full=True)) + remove_unused(staged_folder(self._folder))
        return (
            f"{merged['numFilesRemoved']} files merged into {merged['numFilesAdded']}; {removed} files removed that no"
            " version of the table within its time of retention has"
        )

    def _attempt(self, batch: TableBatch, schema: pa.Schema, files: Sequence[DataFile]) -> CommitVerdict | None:
        handle = self._load()
        if handle is None:
            self.prepare(schema)
            return AGAIN
        found = verdict(self._last(handle), batch, self._replaces)
        if found is not CommitVerdict.OPEN:
            return found
        try:
            if self._grown(handle, schema):
                return AGAIN  # the handle may have seen commits of others since the verdict
            if self._mode is CommitMode.UPSERT and files:
                self._merge(handle, batch, files)
            else:
                self._append(handle, batch, files)
        except self._errors.CommitFailedError:
            return AGAIN
        return CommitVerdict.COMMITTED

    def _replaced(self, schema: pa.Schema, files: Sequence[DataFile], replaced: Condition) -> CommitVerdict | None:
        handle = self._load()
        if handle is None:
            raise BadTable(f"{self._name} was removed while a replay read its records: nothing is replaced")
        try:
            if self._grown(handle, schema):
                return AGAIN
            columns = pa.schema(handle.schema().to_arrow())
            self._delta.write_deltalake(
                handle,
                pa.RecordBatchReader.from_batches(columns, staged_rows(self._folder, files, columns)),
                mode="overwrite",
                predicate=as_sql(replaced),
                commit_properties=self._delta.CommitProperties(
                    {"gnomon.pipeline": self._pipeline, "gnomon.replay": "true"}
                ),
            )
        except self._errors.CommitFailedError:
            return AGAIN
        except self._errors.DeltaError as error:
            raise BadTable(f"{self._name} refuses the rows of the replay: {error}") from error
        return CommitVerdict.COMMITTED

    def _grown(self, handle: deltalake.DeltaTable, schema: pa.Schema) -> bool:
        """Whether columns that the table lacked were added to it; raises as `_additions`."""
        added = self._additions(handle, schema)
        if added:
            handle.alter.add_columns(list(self._delta.Schema.from_arrow(pa.schema(added)).fields))
        return bool(added)

    def _append(self, handle: deltalake.DeltaTable, batch: TableBatch, files: Sequence[DataFile]) -> None:
        actions = [
            self._delta.transaction.AddAction(
                path=file.path,
                size=file.bytes,
                partition_values=dict(zip(self._partition_by, file.partition, strict=True)),
                modification_time=os.stat(self._folder / file.path).st_mtime_ns // 1_000_000,
                data_change=True,
                stats=file.statistics,
            )
            for file in files
        ]
        handle.create_write_transaction(
            actions, "append", handle.schema(), list(self._partition_by), commit_properties=self._record(batch)
        )

    def _merge(self, handle: deltalake.DeltaTable, batch: TableBatch, files: Sequence[DataFile]) -> None:
        columns = pa.schema(handle.schema().to_arrow())
        rows = read_rows(self._name, self._folder, files, columns, self._keys)
        values = {_quoted(name): f"source.{_quoted(name)}" for name in columns.names}
        version = handle.version()
        (
            handle.merge(
                rows,
                " AND ".join(f"target.{_quoted(key)} = source.{_quoted(key)}" for key in self._keys),
                source_alias="source",
                target_alias="target",
                commit_properties=self._record(batch),
            )
            .when_matched_delete("source._deleted")
            .when_matched_update(values, "NOT source._deleted")
            .when_not_matched_insert(values, "NOT source._deleted")
            .execute()
        )
        if handle.version() == version:
            self._append(handle, batch, ())

    def _record(self, batch: TableBatch) -> deltalake.CommitProperties:
        """See invariant 1."""
        transactions = [
            self._delta.Transaction(self._app, int(batch.query_digits, 16)),
            self._delta.Transaction(f"{self._app}/{batch.query_digits}", batch.number),
        ]
        people = {"gnomon.pipeline": self._pipeline, "gnomon.query": batch.query, "gnomon.batch": str(batch.number)}
        properties: deltalake.CommitProperties = self._delta.CommitProperties(people, app_transactions=transactions)
        return properties

    def _last(self, handle: deltalake.DeltaTable) -> TableBatch | None:
        owner = handle.transaction_version(self._app)
        if owner is None:
            return None
        query = f"{owner:0{QUERY_DIGITS}x}"
        number = handle.transaction_version(f"{self._app}/{query}")
        if number is None:
            raise BadTable(
                f"{self._name} names the query {query} as the one of {self._pipeline!r}, but none of its batches: write"
                " to another table"
            )
        return TableBatch(query, number)

    def _load(self) -> deltalake.DeltaTable | None:
        try:
            handle: deltalake.DeltaTable = self._delta.DeltaTable(str(self._folder))
        except self._errors.TableNotFoundError:
            return None
        return handle

    def _create(self, schema: pa.Schema) -> deltalake.DeltaTable:
        """Creates the table; if another driver has just done so, this is that driver's."""
        failure: Exception | None = None
        try:
            columns = self._delta.Schema.from_arrow(schema)
            self._delta.DeltaTable.create(self._folder, columns, "ignore", list(self._partition_by))
        except self._errors.DeltaError as error:
            failure = error
        handle = self._load()
        if handle is None:
            raise BadTable(f"{self._name} cannot be created: {failure or 'it was removed'}") from failure
        self._sync_log()
        return handle

    def _check(self, schema: pa.Schema) -> None:
        check_rows(self._name, schema, self._partition_by, self._keys)
        if self._mode is CommitMode.UPSERT:
            check_keys(self._name, schema, self._keys)

    def _additions(self, handle: deltalake.DeltaTable, schema: pa.Schema) -> list[pa.Field]:
        """The columns that the table lacks.

        Raises:
            BadTable: the rows do not fit, or the table has rules for its rows that files would evade.
        """
        self._check(schema)
        metadata = handle.metadata()
        check_partitioning(self._name, metadata.partition_columns, self._partition_by)
        check_rules(self._name, metadata.configuration, handle.protocol().writer_features or [])
        return additions(self._name, schema, pa.schema(handle.schema().to_arrow()), self._evolve)

    def _sync_log(self) -> None:
        """Syncs the log, so that a batch is not forgotten by a power loss after Spark has remembered it."""
        sync_newest(self._folder / "_delta_log", "*.json", _SYNCED_VERSIONS)
        sync(self._folder)


def _quoted(name: str) -> str:
    return f"`{name}`"
