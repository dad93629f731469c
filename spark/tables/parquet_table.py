"""A folder of Parquet files that a pipeline appends to.

    orders/day=2024-12-31/<uuid>.parquet                    the rows
    orders/_gnomon/commits/<pipeline>/<number>.json         the decisions: manifests
    orders/_gnomon/staged/<uuid>.staged                     the files of batches that are not decided

1. A batch is decided by the manifest that names its staged files. A manifest is created with its whole content, and
   never replaced: of two drivers that decide at the same time, one fails and decides again.
2. The staged files of a decided batch are renamed into the table. This can be repeated, by any driver. Manifest n + 1
   is created after all renames of manifest n, so that the last manifest alone may be unfinished.
3. Manifests are kept. A driver that was stopped before it created number n would create it again if that were free.
4. The rows of a batch become visible file by file, from the first rename to the last one. A reader that needs whole
   batches reads a Delta or Iceberg table.

Spark, DuckDB and others skip names that begin with `_` or do not end with `.parquet`. Readers of a table whose columns
grew need an option, such as DuckDB's `union_by_name` or Spark's `mergeSchema`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from gnomon.spark.tables.data_files.data_file import DataFile, FileLayout
from gnomon.spark.tables.local_folder import create_whole, local_folder, make_folder, sync_folders
from gnomon.spark.tables.manifest import Manifest, StagedFile, decoded, manifest_name, number_in, staged_files
from gnomon.spark.tables.schema_fit import Evolution, additions, check_partitioning, check_rows
from gnomon.spark.tables.staged_files import remove_unused, staged_folder, staged_layout
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


class ParquetTable:
    """A folder of Parquet files.

    Args:
        location: the folder, as a path or a `file://` URI.
        pipeline: the name of the pipeline; several may write to one folder.
        partition_by: the columns that folders are named after.
        mode: APPEND; the others, and `keys`, are there so that all kinds of tables are made in the same way.
        evolve: see `schema_fit`.
        replaces: the query whose place this one takes.

    Raises:
        BadTable: no folder of Parquet files can be written so.
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
        if mode is not CommitMode.APPEND or keys:
            raise BadTable(
                f"{location} is a folder of Parquet files, which only grows: use Delta or Iceberg for upserts"
            )
        self._folder = local_folder(location)
        self._pipeline = checked_pipeline_name(pipeline)
        self._partition_by = tuple(partition_by)
        self._evolve: Evolution = evolve
        self._replaces = replaces
        self._staged = staged_folder(self._folder)
        self._commits = self._folder / "_gnomon" / "commits" / self._pipeline
        self._number = -1
        self._finished = -1

    def check(self, schema: pa.Schema) -> None:
        """See `LakeTable`."""
        self._fitted(self._last(), schema)

    def recover(self) -> None:
        """See `LakeTable`."""
        last = self._last()
        if last is not None:
            self._finish(last)

    def prepare(self, schema: pa.Schema) -> FileLayout:
        """See `LakeTable`; finishes the last batch, too."""
        make_folder(self._staged)
        make_folder(self._commits)
        self.recover()
        self._fitted(self._last(), schema)
        return staged_layout(self._folder, self._partition_by, keep_partition_columns=False)

    def schema(self) -> pa.Schema | None:
        """See `LakeTable`: the columns of this pipeline's rows."""
        last = self._last()
        return None if last is None else last.schema

    def last(self) -> TableBatch | None:
        """See `LakeTable`."""
        last = self._last()
        return None if last is None else last.batch

    def commit(self, batch: TableBatch, schema: pa.Schema, files: Sequence[DataFile]) -> CommitVerdict:
        """See `LakeTable`."""
        self.prepare(schema)
        return decided(str(self._folder), lambda: self._attempt(batch, schema, files))

    def maintain(self) -> str:
        """Removes staged files that no batch will name; see `LakeTable`."""
        if not self._staged.is_dir():
            return "nothing to remove: the table does not exist"
        make_folder(self._commits)
        named = {file.staged for name in os.listdir(self._commits.parent) for file in self._last_files(name)}
        manifests = [name for name in os.listdir(self._commits) if number_in(name) is not None]
        removed = remove_unused(self._staged, named) + remove_unused(self._commits, manifests)
        return f"{removed} files removed that tasks left more than a day ago; the files of a folder are not merged"

    def _attempt(self, batch: TableBatch, schema: pa.Schema, files: Sequence[DataFile]) -> CommitVerdict | None:
        last = self._last()
        if last is not None:
            self._finish(last)
        found = verdict(None if last is None else last.batch, batch, self._replaces)
        if found is not CommitVerdict.OPEN:
            return found
        columns = self._fitted(last, schema)
        self._check_staged(files)
        number = 0 if last is None else last.number + 1
        manifest = Manifest(
            self._pipeline, number, batch, columns, self._partition_by, staged_files(files, self._partition_by)
        )
        if not create_whole(self._commits / manifest_name(number), manifest.encode()):
            return AGAIN
        self._finish(manifest)
        return CommitVerdict.COMMITTED

    def _finish(self, manifest: Manifest) -> None:
        """Renames the staged files of a manifest into the table (invariant 2)."""
        if manifest.number == self._finished:
            return
        folders = []
        for file in manifest.files:
            place = self._folder / file.path
            folders += [each for each in place.parents if each.is_relative_to(self._folder)]
            if (self._staged / file.staged).exists():
                make_folder(place.parent)
                try:
                    os.rename(self._staged / file.staged, place)
                except FileNotFoundError:
                    pass  # another driver has just renamed it
        sync_folders(each for each in folders if each.exists())
        self._finished = manifest.number

    def _fitted(self, last: Manifest | None, schema: pa.Schema) -> pa.Schema:
        """The columns of the table with those of the rows.

        Raises:
            BadTable: they do not fit.
        """
        name = str(self._folder)
        check_rows(name, schema, self._partition_by)
        if last is None:
            return schema
        check_partitioning(name, last.partition_by, self._partition_by)
        added = additions(name, schema, last.schema, self._evolve)
        return pa.schema([*last.schema, *added])

    def _last(self) -> Manifest | None:
        """The last manifest: numbers have no gaps and are never removed, so the search goes on from the last one."""
        if self._number < 0:
            self._number = _last_number(self._commits)
        while self._number >= 0 and (self._commits / manifest_name(self._number + 1)).exists():
            self._number += 1
        return None if self._number < 0 else _read(self._commits, self._pipeline, self._number)

    def _check_staged(self, files: Sequence[DataFile]) -> None:
        for file in files:
            if not (self._staged / file.path).exists():
                raise BadTable(f"{self._staged / file.path} is gone, with {file.rows} rows: run the batch again")

    def _last_files(self, pipeline: str) -> Sequence[StagedFile]:
        folder = self._commits.parent / pipeline
        number = _last_number(folder)
        return () if number < 0 else _read(folder, pipeline, number).files


def _last_number(folder: Path) -> int:
    """The number of the last manifest in a folder, -1 if there is none."""
    names = os.listdir(folder) if folder.is_dir() else []
    return max((number for name in names if (number := number_in(name)) is not None), default=-1)


def _read(folder: Path, pipeline: str, number: int) -> Manifest:
    place = folder / manifest_name(number)
    return decoded(place.read_bytes(), str(place), pipeline, number)
